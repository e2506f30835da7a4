"""The Spark engine without Spark: its driver loop and its tasks in this process, and as unkind as Spark may be.

Shuffled envelopes arrive in any order, tasks run in any order and on any of two workers, each with a cache that may
have missed some epochs or be empty, and what is sent is pickled. Nothing here is measured; everything here is allowed
to happen.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
import zlib
from contextlib import closing
from typing import Any
from unittest import mock

import pyarrow as pa

from penstock import read
from penstock.connectors.interfaces import Feed, Json, Slice, Split
from penstock.flow import Flow
from penstock.options import Options, Spark
from penstock.plan.plan import Plan, make_plan
from penstock.spark import envelope as envelopes
from penstock.spark import task as tasks
from penstock.spark.engine import SparkEngine
from penstock.spark.entry import by_file
from penstock.spark.envelope import SCHEMA, Envelope, SharedFile, from_batch, from_frame, to_batch, to_frame
from penstock.spark.job import gather
from penstock.spark.parts import TaskReport
from penstock.spark.ship import pack_plan, unpack_plan
from penstock.spark.stages import EpochSpec, Stages
from penstock.spark.worker_state import ShardCache

from .scratch import scratch


def run_on_table(
    task: tasks.Task, spec: EpochSpec, level: int, table: pa.Table, size: int, shared: SharedFile | None = None
) -> list[pa.RecordBatch]:
    """Run a task on rows that stand for envelopes, so many at a time."""
    batches = table.to_batches(max_chunksize=size)
    arriving = [n for batch in batches for n in batch["id"].to_pylist()] if level == 0 else map(through_frames, batches)
    following, shared = spec.following(level), shared or SharedFile(None)
    return [to_batch([by_file(each, shared) for each in some], following) for some in task.run(arriving)]


def through_frames(batch: pa.RecordBatch) -> list[Envelope]:
    """Read envelopes and send them once more, as an RDD does."""
    return [from_frame(bytes(to_frame(envelope))) for envelope in from_batch(batch)]


class InlineBackend:
    """Play the part of Spark for one flow."""

    session = None
    one_executor = True
    executors = None

    def __init__(self, cores: int, seed: int, threads: int = 1) -> None:
        self.cores, self.task_cores = cores, threads
        self._random = random.Random(seed)
        self._caches = [ShardCache() for _ in range(2)]

    def prepare(self, stages: Stages) -> None:
        """Send the flow: what cannot be pickled cannot run."""
        self._stages = Stages(unpack_plan(pack_plan(stages.plan, {})).plan)

    @property
    def ready(self) -> int:
        """All are."""
        return self.cores

    def keep_ready(self) -> None:
        """There is nothing to start."""

    def run(self, spec: EpochSpec, frames: list[Any]) -> TaskReport:
        """Run an epoch, level after level."""
        assert not frames
        with scratch() as shared, mock.patch.object(envelopes, "LEAST_BYTES", 0):
            return self._run(pickle.loads(pickle.dumps(dataclasses.replace(spec, shared=shared))))

    def _run(self, spec: EpochSpec) -> TaskReport:
        inputs = {number: pa.table({"id": [number]}) for number in range(len(spec.splits))}
        sent = self._level(spec, 0, inputs)
        for level in range(1, self._stages.last + 1):
            sent = sent.take(pa.array(self._shuffled(range(sent.num_rows)), pa.int64()))
            owners = sent.column("task").to_pylist()
            inputs = {
                task: sent.take(pa.array([i for i, owner in enumerate(owners) if owner == task], pa.int64()))
                for task in set(owners)
            }
            sent = self._level(spec, level, inputs)
        return gather(zip(sent.column("task").to_pylist(), sent.column("frame").to_pylist(), strict=True), [])

    def close(self) -> None:
        """Nothing is held between epochs."""

    def _level(self, spec: EpochSpec, level: int, inputs: dict[int, pa.Table]) -> pa.Table:
        batches = []
        for number in self._shuffled(inputs):
            worker = self._random.randrange(len(self._caches))
            if self._random.random() < 0.1:
                self._caches[worker] = ShardCache()  # a worker that has seen nothing yet
            size = self._random.choice([1, 3, 1000])
            shared = SharedFile(spec.shared if self._random.random() < 0.5 else None)
            with mock.patch.object(tasks, "CACHE", self._caches[worker]), closing(shared):
                task = tasks.Task(self._stages, spec, level, number)
                batches += run_on_table(task, spec, level, inputs[number], size, shared)
        return pa.Table.from_batches(batches, SCHEMA)

    def _shuffled(self, values: Any) -> list[Any]:
        values = list(values)
        self._random.shuffle(values)
        return values


class CutFeed(Feed):
    """Give the rows of a source in epochs that were cut beforehand."""

    def __init__(self, epochs: list[list[Any]], pieces: int, alone: bool = False) -> None:
        """Make the feed; one that ends `alone` does so behind its own last row, not behind the last epoch of all."""
        self._epochs, self._next, self._taken, self._pieces, self._alone = epochs, 0, 0, pieces, alone

    def poll(self, limit: int) -> Slice | None:
        """Return the rows of the next epoch, in several splits where there are enough."""
        rows = self._epochs[self._next] if self._next < len(self._epochs) else []
        self._next += 1
        if not rows:
            return None
        start, self._taken = self._taken, self._taken + len(rows)
        size = -(-len(rows) // self._pieces)
        splits = tuple(
            Split(0, start + at, start + at + len(part), payload=pickle.dumps(part))
            for at in range(0, len(rows), size)
            if (part := rows[at : at + size])
        )
        return Slice(splits, {"taken": self._taken}, {}, len(rows))

    def replay(self, logged: Json, offset: Json) -> Slice:
        raise AssertionError("nothing is replayed here")

    def restore(self, offset: Json) -> None:
        raise AssertionError("nothing is restored here")

    def undo(self) -> None:
        raise AssertionError("nothing is looked at before it is taken")

    def exhausted(self) -> bool:
        return self._next > len(self._epochs) or (self._alone and not any(self._epochs[self._next :]))

    def close(self) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Arriving(read.Items):
    """Rows that come with time: where there are several sources, who came first is an input of its own."""

    goes_on = True  # type: ignore[assignment]


class _CutEngine(SparkEngine):
    """The engine with feeds that were cut beforehand, and no waiting."""

    feeds: dict[str, CutFeed]

    def _feeds(self) -> Any:
        return self.feeds or super()._feeds()


def epoch_rows(epochs: list[dict[str, list[Any]]]) -> int:
    """Return how many rows an epoch may take of each source, so that it is about these."""
    return max((len(rows) for epoch in epochs for rows in epoch.values()), default=1)


def cut_feeds(plan: Plan, epochs: list[dict[str, list[Any]]], pieces: int, alone: bool) -> dict[str, CutFeed]:
    """Return feeds that give their rows in these epochs; none where the input does not depend on when rows come."""
    if plan.layout.sequence != "own":
        return {}
    return {node.name: CutFeed([e.get(node.name, []) for e in epochs], pieces, alone) for node in plan.sources}


def run_cut(
    flow: Flow, epochs: list[dict[str, list[Any]]], backend: Any, tasks: int, alone: bool = False
) -> dict[str, list[Any]]:
    """Run a flow on a backend, with its input cut in these epochs, and return the rows of all sinks."""
    plan: Plan = make_plan(flow)
    # An epoch in which nothing is new for any source does not happen.
    epochs = [epoch for epoch in epochs if any(epoch.values())]
    with scratch() as path:
        engine = _CutEngine(
            plan, backend, Options(on=Spark(tasks=tasks, epoch_rows=epoch_rows(epochs)), checkpoint=path)
        )
        engine.feeds = cut_feeds(plan, epochs, tasks, alone)
        engine.run()
        assert engine.outputs is not None
        return dict(engine.outputs.results)


class Inline:
    """Run flows in this process; `tasks` is the number of tasks of every level."""

    def __init__(self, tasks: int, seed: int = 0, threads: int = 1) -> None:
        self._tasks, self._seed, self._threads = tasks, seed, threads

    def __call__(self, flow: Flow, epochs: list[dict[str, list[Any]]], alone: bool = False) -> dict[str, list[Any]]:
        # Another schedule for each input, and the same one when it is run again.
        seed = zlib.crc32(repr(epochs).encode()) + self._seed
        return run_cut(flow, epochs, InlineBackend(self._tasks, seed, self._threads), self._tasks, alone)
