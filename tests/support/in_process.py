"""Run the Spark engine's own tasks in this process: the same code but for the shuffle, thousands of times faster to start."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import pyarrow as pa

from penstock.flow import Flow
from penstock.plan import make_plan
from penstock.spark.engine import Options, SparkEngine
from penstock.spark.job import Outcome, gather
from penstock.spark.spec import EpochSpec
from penstock.spark.stages import Stages
from penstock.spark.task import Task


class InProcessBackend:
    """Play Spark: run every task of a level, then give its rows to the tasks of the next in a random order."""

    session = None

    def __init__(self, cores: int = 2, seed: int = 0) -> None:
        self.cores, self._random = cores, random.Random(seed)

    def prepare(self, stages: Stages) -> None:
        self._stages = stages

    def run(self, spec: EpochSpec, frame: Any | None) -> Outcome:
        assert frame is None
        timings = []
        inputs = [[pa.RecordBatch.from_pydict({"id": [number]})] for number in range(len(spec.splits))]
        for level in range(self._stages.last + 1):
            sent: list[pa.RecordBatch] = []
            for number, batches in enumerate(inputs):
                if batches:  # Spark does not call Python for a task without rows
                    task = Task(self._stages, spec, level, number)
                    sent.extend(task.run(batches))
                    timings.append(task.timings())
            last = level == self._stages.last
            inputs = [[] for _ in range(1 if last else spec.tasks[level + 1])]
            for batch in sent:
                for row in range(batch.num_rows):
                    task_number = 0 if last else batch.column("task")[row].as_py()
                    inputs[task_number].append(batch.slice(row, 1))
            for batches in inputs:
                self._random.shuffle(batches)
        rows = [(b.column("kind")[0].as_py(), b.column("payload")[0].as_py()) for b in inputs[0]]
        return gather(rows, timings)


def run_in_process(flow: Flow, *, cores: int = 2, tasks: int | None = None, epoch_rows: int = 1_000_000, seed: int = 0,
                   checkpoint: str | None = None, end: bool = True) -> dict[str, list[Any]]:
    """Run a flow to its end on the tasks of the Spark engine, without Spark; return the rows of its sinks."""
    with tempfile.TemporaryDirectory() as directory:
        options = Options(checkpoint or directory, tasks, epoch_rows, end=end)
        engine = SparkEngine(make_plan(flow), InProcessBackend(cores, seed), options)
        engine.run()
        assert engine.outputs is not None
        return engine.outputs.results
