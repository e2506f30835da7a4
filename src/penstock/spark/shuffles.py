"""The levels of an epoch as one Spark job, with a shuffle between each two: over RDDs, or over DataFrames.

RDDs carry envelopes as bytes that Spark does not look into, and need no query plan: an epoch of three levels costs a
quarter of a second less than over DataFrames. DataFrames are needed where rows come from one, and on a cluster, because
only a join ties a task to the executor that holds its shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

from penstock.spark.anchors import Anchors
from penstock.spark.envelope import DDL
from penstock.spark.spec import EpochSpec


class Shuffles(Protocol):
    """A way to run an epoch."""

    def run(self, packed: bytes, spec: EpochSpec, frame: Any | None, timings: Any) -> Iterable[tuple[int, Any]]:
        """Run the job; return kind and payload of what its tasks send to the driver."""


class ByteShuffles:
    """Run epochs over RDDs of bytes."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._numbers: dict[int, Any] = {}

    def run(self, packed: bytes, spec: EpochSpec, frame: Any | None, timings: Any) -> Iterable[tuple[int, Any]]:
        """Run the job."""
        assert frame is None, "rows of a DataFrame need a DataFrame"
        made = self._splits(1 if spec.solo else len(spec.splits))
        last = 0 if spec.solo else len(spec.tasks) - 1
        for level in range(last):
            made = self._shuffled(made.mapPartitions(_sending(packed, spec, level, timings)), spec.tasks[level + 1])
        made = made.mapPartitions(_reporting(packed, spec, last, timings))
        try:
            return made.collect()  # type: ignore[no-any-return]
        finally:
            with suppress(Exception):  # a Spark that is gone has nothing to clean
                # Otherwise the files stay until the JVM happens to collect what refers to them.
                made._jrdd.rdd().cleanShuffleDependencies(False)

    def _splits(self, count: int) -> Any:
        """Return an RDD of the numbers of splits, one in each partition."""
        if count not in self._numbers:
            self._numbers[count] = self._context.parallelize(range(count), count)
        return self._numbers[count]

    def _shuffled(self, sending: Any, tasks: int) -> Any:
        """Shuffle (task, frame) pairs, as `RDD.partitionBy` does, but without pickling and gathering them first."""
        from pyspark import RDD
        from pyspark.serializers import NoOpSerializer

        java = self._context._jvm
        sending._bypass_serializer = True
        pairs = java.PairwiseRDD(sending._jrdd.rdd()).asJavaPairRDD()
        shuffled = pairs.partitionBy(java.PythonPartitioner(tasks, 0))
        return RDD(java.PythonRDD.valueOfPair(shuffled), self._context, NoOpSerializer())


def _sending(packed: bytes, spec: EpochSpec, level: int, timings: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def level_task(arriving: Iterator[Any]) -> Iterator[Any]:
        from pyspark.serializers import pack_long

        from penstock.spark.entry import run_on_frames

        for task, frame in run_on_frames(packed, spec, level, arriving, timings):
            yield pack_long(task)
            yield frame

    return level_task


def _reporting(packed: bytes, spec: EpochSpec, level: int, timings: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def level_task(arriving: Iterator[Any]) -> Iterator[Any]:
        from penstock.spark.entry import run_last_on_frames

        return run_last_on_frames(packed, spec, level, arriving, timings)

    return level_task


class RowShuffles:
    """Run epochs over DataFrames."""

    def __init__(self, session: Any, anchors: Anchors | None) -> None:
        self._session, self._anchors = session, anchors

    def run(self, packed: bytes, spec: EpochSpec, frame: Any | None, timings: Any) -> Iterable[tuple[int, Any]]:
        """Run the job."""
        try:
            return self._job(packed, spec, frame, timings).collect()  # type: ignore[no-any-return]
        except Exception:
            if self._anchors is not None:
                self._anchors.forget()
            raise

    def _job(self, packed: bytes, spec: EpochSpec, frame: Any | None, timings: Any) -> Any:
        session = self._session if frame is None else frame.sparkSession
        if spec.solo:
            whole = session.range(0, 1, 1, 1) if frame is None else frame.coalesce(1)
            return whole.mapInArrow(_on_batches(packed, spec, 0, timings), DDL).select("kind", "payload")
        # One partition a group of splits; there is always one, which wakes the tasks of the levels below.
        levels = [session.range(0, len(spec.splits), 1, len(spec.splits)), *([] if frame is None else [frame])]
        inputs = [level.mapInArrow(_on_batches(packed, spec, 0, timings), DDL) for level in levels]
        made = inputs[0] if len(inputs) == 1 else inputs[0].unionAll(inputs[1])
        if self._anchors is not None:
            self._anchors.notice()
        for level, tasks in enumerate(spec.tasks[1:], 1):
            made = made.repartitionById(tasks, "task")
            if self._anchors is not None:
                made = self._anchors.join(session, made, tasks)
            made = made.mapInArrow(_on_batches(packed, spec, level, timings), DDL)
        return made.select("kind", "payload")


def _on_batches(
    packed: bytes, spec: EpochSpec, level: int, timings: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def level_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.spark.entry import run_on_batches

        return run_on_batches(packed, spec, level, batches, timings)

    return level_task
