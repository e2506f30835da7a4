"""Threads inside a task: operators without memory share the work of a task, and nothing else changes."""

from __future__ import annotations

import threading
from typing import Any

import penstock as ps
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.spark.engine import SparkEngine
from tests.conformance.inline import InlineBackend

from ..patience import PATIENCE

ROWS = 256
MEETING = threading.Barrier(2, timeout=PATIENCE)
SEEN: set[str] = set()


def meet(row: Any) -> int:
    """Wait until the other thread is here, too: one alone would wait for ever."""
    SEEN.add(threading.current_thread().name.rsplit("_", 1)[0])
    MEETING.wait()
    return row.v


def built() -> ps.Flow:
    flow = ps.Flow("threads")
    source = flow.source("in", ps.read.items([{"v": v} for v in range(ROWS)], schema={"v": int}))
    source.map(meet, schema=int, name="meet").key_by(lambda v: v % 3).scan(lambda n, v: (n + v, (v, n + v)), 0).sink(
        "out"
    )
    return flow


def test_two_threads_are_in_an_operator_at_once(tmp_path):
    engine = SparkEngine(
        make_plan(built()), InlineBackend(1, 0), Options(on=ps.Spark(tasks=1, threads=2), checkpoint=str(tmp_path))
    )
    engine.run()
    assert engine.outputs is not None
    sums = {0: 0, 1: 0, 2: 0}
    expected = []
    for v in range(ROWS):
        sums[v % 3] += v
        expected.append((v, sums[v % 3]))
    assert engine.outputs.results["out"] == expected
    assert {"penstock-task"} == SEEN
