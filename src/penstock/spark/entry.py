"""The way into a worker: unpack the flow once, then run the task."""

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from penstock import errors
from penstock.spark.ship import unpack_plan
from penstock.spark.spec import EpochSpec
from penstock.spark.stages import Stages
from penstock.spark.task import Task

_KEPT = 4
_stages: OrderedDict[bytes, Stages] = OrderedDict()


def run_task(
    packed: bytes, spec: EpochSpec, level: int, batches: Iterable[pa.RecordBatch], timings: Any
) -> Iterator[pa.RecordBatch]:
    """Run one task of an epoch."""
    from pyspark import TaskContext

    stages = _stages.get(packed)
    if stages is None:
        bundle = unpack_plan(packed)
        errors.ROOTS.update(bundle.roots)
        stages = _stages[packed] = Stages(bundle.plan)
        while len(_stages) > _KEPT:
            _stages.popitem(last=False)
    context = TaskContext.get()
    number = context.partitionId() if context is not None else 0
    levels = range(stages.last + 1) if spec.solo else [level]
    tasks = [Task(stages, spec, each, number) for each in levels]
    collecting = gc.isenabled()
    # Rows are many and short-lived, and the cycle collector would look at each of them again and again.
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        for task in tasks:
            batches = task.run(batches)
        yield from batches
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        timings.add([{**task.timings(), **spent} for task in tasks])
    finally:
        if collecting:
            gc.enable()
