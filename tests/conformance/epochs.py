"""Run a flow on an engine in epochs, or batches, of so many rows, with feeds and a clock of the test's own."""

from __future__ import annotations

import time
from typing import Any

import penstock as ps
from penstock.flow import Flow
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.spark.engine import SparkEngine
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings

from .inline import InlineBackend
from .scratch import scratch


def spark_engine(
    flow: Flow, backend: Any, *, epoch_rows: int, tasks: int = 3, feeds: Any = None, now: Any = time.monotonic
) -> dict[str, list]:
    """Run a flow on the Spark engine."""
    with scratch() as path:
        engine = SparkEngine(
            make_plan(flow), backend, Options(on=ps.Spark(tasks=tasks, epoch_rows=epoch_rows), checkpoint=path)
        )
        if feeds is not None:
            engine._feeds = lambda: feeds  # type: ignore[method-assign]
        engine._now = now
        engine.run()
        assert engine.outputs is not None
        return dict(engine.outputs.results)


def inline(flow: Flow, *, epoch_rows: int, **options: Any) -> dict[str, list]:
    return spark_engine(flow, InlineBackend(3, epoch_rows), epoch_rows=epoch_rows, **options)


def threads(flow: Flow, *, epoch_rows: int, feeds: Any = None, now: Any = time.monotonic) -> dict[str, list]:
    engine = LocalEngine(make_plan(flow), LocalOptions(epoch_rows, settings=Settings(workers=2, partitions=3)))
    if feeds is not None:
        engine._feeds = lambda: feeds  # type: ignore[method-assign]
    engine._cutter._clock = now
    engine.run()
    return engine.results
