"""The way into a worker: unpack the flow once, then run the task."""

from __future__ import annotations

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
    task = Task(stages, spec, level, context.partitionId() if context is not None else 0)
    yield from task.run(batches)
    timings.add([task.timings()])
