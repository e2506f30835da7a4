"""Open the Spark engine as `ps.Spark` says, or refuse what it could not do before Spark is started."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace

from penstock.options import Options, Spark
from penstock.plan.plan import Plan
from penstock.spark.engine import SparkEngine
from penstock.spark.job import SparkBackend
from penstock.spark.outputs import check_directories
from penstock.spark.session import make_session
from penstock.statistics import FlowStats
from penstock.store.identity import check_names


def refuse_early(plan: Plan, checkpoint: str | None) -> None:
    """Refuse names and directories that this run could not use."""
    if checkpoint is not None:
        check_names(plan)
    check_directories(plan, checkpoint)


def open_engine(plan: Plan, on: Spark, options: Options, listener: Callable[[FlowStats], None]) -> SparkEngine:
    """Make the engine, and the session where none is given."""
    given = options.directory
    refuse_early(plan, given)
    session = on.session or make_session(f"penstock: {plan.name}", master=on.master)
    backend = SparkBackend(session)
    if given is not None:
        path = given if "://" in given else os.path.abspath(given)
        return SparkEngine(plan, backend, replace(options, checkpoint=path), listener)
    name = "".join(c if c.isalnum() else "-" for c in plan.name)
    kept = replace(options, checkpoint=tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    return SparkEngine(plan, backend, kept, listener, forget=True)
