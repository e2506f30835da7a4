"""The levels of an epoch as one Spark job, with a shuffle between each two: over RDDs, or over DataFrames.

RDDs carry envelopes as bytes that Spark does not look into, and need no query plan: an epoch of three levels costs a
quarter of a second less than over DataFrames. DataFrames are needed where rows come from one, and on a cluster, because
only a join ties a task to the executor that holds its shards.
"""

from __future__ import annotations

import base64
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from typing import IO, Any, Protocol, TypeAlias

import pyarrow as pa

from penstock.spark.anchors import Anchors
from penstock.spark.envelope import DDL
from penstock.spark.ready import Ready
from penstock.spark.stages import EpochSpec, Stages
from penstock.spark.worker_state import LANE

SPEC = "penstock.epoch"
"""The property of a job over RDDs that holds its epoch's specification, or the path of a file that does."""
WAKE = "wake"
"""What it holds where a worker is only to get ready."""
SPEC_BYTES = 64 << 10
"""Above this a specification goes by a file: in local mode all workers are on this machine."""


STAGE = "callSite.short"
"""The property of a thread that names what Spark makes next; otherwise a stage is called after a line of ours."""
LETTERS = 120


def stage_labels(stages: Stages) -> list[str]:
    """Return what to call the stage of each level: the operators that run in it, in order."""
    names: list[list[str]] = [[] for _ in range(stages.last + 1)]
    for name, level in stages.stage_of.items():
        names[level].append(name)
    return [_shortened(operators) for operators in names]


def solo_label(labels: list[str]) -> str:
    """Return what to call the one stage of an epoch that runs in one task."""
    return _cut(" | ".join(labels))


def job_label(flow: str, epoch: int, labels: list[str]) -> str:
    return f"{flow}: epoch {epoch} ({_cut(' | '.join(labels))})"


def _shortened(operators: list[str]) -> str:
    """Name as many operators as there is room for, and count the others."""
    shown = list(operators)
    while len(", ".join(shown)) > LETTERS - 12 and len(shown) > 1:
        shown.pop()
    left = len(operators) - len(shown)
    return _cut(", ".join(shown)) + (f" and {left} more" if left else "")


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


class Shuffles(Protocol):
    """A way to run an epoch."""

    def run(
        self, packed: bytes, spec: EpochSpec, frames: list[Any], timings: Any, labels: list[str]
    ) -> Iterable[tuple[int, Any]]:
        """Run the job; return what its tasks send to the driver: (0, frame). `labels` name its levels."""


def threads_of(master: str) -> int:
    """Return how many tasks local mode runs at once, whatever parallelism is set to be the default."""
    found = re.match(r"local\[(\d+|\*)", master)
    return 1 if found is None else (os.cpu_count() or 1) if found[1] == "*" else int(found[1])


def tasks_of(spec: EpochSpec) -> tuple[int, ...]:
    """Return how many tasks each level of an epoch's job has."""
    return (1,) if spec.solo else (len(spec.splits), *spec.tasks[1:])


Job: TypeAlias = tuple[Any, list[Any]]
"""The RDD to collect, and the shuffles before it."""
Following: TypeAlias = tuple[Any, Callable[[], Job]]
"""What an epoch is for (the flow, and the tasks of each level), and what makes it."""


class ByteShuffles:
    """Run epochs over RDDs of bytes.

    What PySpark's `RDD` would do for each epoch is done once here: the functions of a flow's levels are pickled and
    given to the JVM, and each job gets its epoch as a property. An epoch then takes a few calls into the JVM.

    Spark gives a task to whichever Python worker has been idle for longest, so that after some epochs every worker
    would hold every shard. Here each task has a *lane*, one for each core: workers of different lanes have different
    environments, and so a task, and its shards, stay in one process. More tasks than cores share lanes.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        java = context._jvm
        self._python_rdd, self._pairs, self._by_number = java.PythonRDD, java.PairwiseRDD, java.PythonPartitioner
        self._values_of = java.PythonRDD.valueOfPair
        self._prune, self._sequence = java.org.apache.spark.rdd.PartitionPruningRDD.create, java.PythonUtils.toSeq
        self._java_rdd = java.org.apache.spark.api.java.JavaRDD
        self._lanes = min(threads_of(context.master), max(1, int(context.defaultParallelism)))
        self._nothing: Any = None
        self._only: dict[int, Any] = {}
        self._functions: dict[tuple[bytes, int, bool, int], Any] = {}
        self._first: dict[tuple[bytes, bool, int], Any] = {}
        """The level that reads, made for a flow, as the last one or not, and a number of tasks."""
        self._ahead: tuple[Any, Job] | None = None
        """The next epoch, with what it is for."""
        self._ready = Ready(context, self._lanes)
        self._sweeper = ThreadPoolExecutor(1, "penstock-sweep")
        self._swept: Future[None] = Future()
        self._swept.set_result(None)
        # Spark removes it when it ends.
        self._directory = java.org.apache.spark.SparkFiles.getRootDirectory()

    def run(
        self, packed: bytes, spec: EpochSpec, frames: list[Any], timings: Any, labels: list[str]
    ) -> Iterable[tuple[int, Any]]:
        assert not frames, "rows of a DataFrame need a DataFrame"
        self._swept.result()
        tasks = tasks_of(spec)
        named = [solo_label(labels)] if spec.solo else labels
        make, last = partial(self._job, packed, tasks, timings, named), len(tasks) - 1
        ahead, self._ahead = self._ahead, None
        made, shuffles = make() if ahead is None or ahead[0] != (packed, tasks) else ahead[1]
        self._context.setLocalProperty(STAGE, named[last])
        shared = self._shared() if last else None
        packed_spec = pickle.dumps(replace(spec, shared=shared))
        # Rows from the driver may be in it. Properties are copied for each task and logged; a file is not.
        file = spec_file(packed_spec) if len(packed_spec) > SPEC_BYTES else None
        self._context.setLocalProperty(SPEC, f"file:{file.name}" if file else base64.b64encode(packed_spec).decode())
        try:
            with self._ready.in_use(self._lanes_of(tasks)):
                return _received(self._python_rdd.collectAndServe(made), self._context.serializer)
        finally:
            with suppress(Exception):  # a Spark that is gone has nothing to clean
                self._context.setLocalProperty(SPEC, None)
                self._context.setLocalProperty(STAGE, None)
            if file is not None:
                file.close()
            self._sweep_aside(shuffles, shared, ((packed, tasks), make))

    def _job(self, packed: bytes, tasks: tuple[int, ...], timings: Any, labels: list[str]) -> Job:
        """Make the RDDs of an epoch with so many tasks on each level: some fifty calls into the JVM."""
        shuffles: list[Any] = []
        made, last = self._first.get((packed, len(tasks) == 1, tasks[0])), len(tasks) - 1
        for level in range(last + 1):
            if level or made is None:
                self._context.setLocalProperty(STAGE, labels[level])
                made = self._level(packed, made, level, level == last, timings, range(tasks[level]))
            if level == 0:
                # What nothing is before is the same in each epoch; after a shuffle all is new.
                self._first[packed, last == 0, tasks[0]] = made
            if level < last:
                made = self._shuffled(made, tasks[level + 1], shuffles)
        return made, shuffles

    def _level(self, packed: bytes, made: Any, level: int, last: bool, timings: Any, tasks: Sequence[int]) -> Any:
        """Return the RDD of a level's tasks, each with the function of its lane, after what was made so far."""
        functions = [self._function(packed, level, last, timings, task) for task in tasks]
        inputs = [self._input(made, number, len(tasks)) for number in range(len(tasks))]
        parts = [
            self._python_rdd(given, function, False, False) for given, function in zip(inputs, functions, strict=True)
        ]
        return self._union(parts) if last else self._pairs(self._union(parts)).asJavaPairRDD()

    def _shuffled(self, made: Any, tasks: int, shuffles: list[Any]) -> Any:
        """Return the RDD of what arrives at the tasks after a level."""
        shuffles.append(made.partitionBy(self._by_number(tasks, 0)))
        return self._values_of(shuffles[-1]).rdd()

    # Workers that are there before a task needs them -------------------------------------------------------------

    def keep_ready(self, packed: bytes, levels: int, timings: Any) -> None:
        """Have the workers of all lanes started that have none, and kept from then on."""
        self._ready.keep(partial(self._wake, packed, levels, timings))

    @property
    def starting(self) -> int:
        """How many lanes have workers that are about to start."""
        return self._ready.starting

    def _lanes_of(self, tasks: tuple[int, ...]) -> set[int]:
        return set(range(min(max(tasks), self._lanes)))

    def _wake(self, packed: bytes, levels: int, timings: Any, lanes: list[int], first: bool) -> None:
        """Run a task of nothing in the workers of some lanes; the first time through shuffles, which start cold too."""
        made, shuffles, last = None, list[Any](), levels - 1 if first else 0
        try:
            for level in range(last + 1):
                made = self._level(packed, made, level, level == last, timings, lanes)
                if level < last:
                    made = self._shuffled(made, len(lanes), shuffles)
            self._context.setLocalProperty(SPEC, WAKE)
            _received(self._python_rdd.collectAndServe(made), self._context.serializer)
        finally:
            self._sweep(shuffles, None)

    def close(self) -> None:
        """Wait until what the last epoch left is gone, and end the threads: whoever keeps a run does not keep those."""
        self._ready.close()
        self._sweeper.shutdown()

    def _shared(self) -> str | None:
        """Make a directory for an epoch's rows; without one, where somebody has tidied up, they go through Spark."""
        with suppress(OSError):
            return tempfile.mkdtemp(prefix="penstock-", dir=self._directory)
        return None

    def _sweep_aside(self, shuffles: list[Any], shared: str | None, following: Following | None = None) -> None:
        """Have the files of an epoch removed, and the next one like it prepared: nobody is to wait for that."""
        try:
            self._swept = self._sweeper.submit(self._sweep, shuffles, shared, following)
        except RuntimeError:  # closed, or the main thread has ended, and pools with it, and another one runs the flow
            self._sweep(shuffles, shared)

    def _sweep(self, shuffles: list[Any], shared: str | None, following: Following | None = None) -> None:
        """Remove the files of an epoch, once what is `following` is prepared.

        Those of shuffles would stay until the JVM happens to collect what refers to them. One by one: Spark's own way
        goes through each task of each level for each of the next.
        """
        if following is not None:
            with suppress(Exception):  # the next epoch says what is wrong
                self._ahead = (following[0], following[1]())
        if shared is not None:
            shutil.rmtree(shared, ignore_errors=True)
        with suppress(Exception):  # a Spark that is gone has nothing to clean
            cleaner = self._context._jsc.sc().cleaner() if shuffles else None
            if cleaner is not None and cleaner.isDefined():
                for shuffle in shuffles:
                    cleaner.get().doCleanupShuffle(shuffle.rdd().dependencies().head().shuffleId(), False)

    def _input(self, made: Any, task: int, tasks: int) -> Any:
        """Return the RDD of what arrives at one task: of one partition."""
        if made is None:
            if self._nothing is None:
                self._nothing = self._context.parallelize([], 1)._jrdd.rdd()
            return self._nothing
        if tasks == 1:
            return made
        if task not in self._only:
            self._only[task] = self._sequence([task]).toSet()  # to Scala, a set is a function that tells what is in it
        return self._prune(made, self._only[task])

    def _union(self, parts: list[Any]) -> Any:
        """Return the RDD whose partitions are those of several, in order."""
        if len(parts) == 1:
            return parts[0]
        array = self._context._gateway.new_array(self._java_rdd, len(parts))
        for number, part in enumerate(parts):
            array[number] = part.asJavaRDD()
        return self._context._jsc.union(array).rdd()

    def _function(self, packed: bytes, level: int, last: bool, timings: Any, task: int) -> Any:
        """Return the JVM's handle of the function of a level, for the lane of a task."""
        from pyspark.core.rdd import _wrap_function
        from pyspark.serializers import NoOpSerializer

        lane = task % self._lanes
        found = self._functions.get((packed, level, last, lane))
        if found is None:
            plain = self._functions.get((packed, level, last, -1))
            if plain is None:
                function = _level_task(packed, level, last, timings)
                out = self._context.serializer if last else NoOpSerializer()
                plain = _wrap_function(self._context, function, NoOpSerializer(), out)
                self._functions[packed, level, last, -1] = plain
            # All lanes have the very same command: it goes to a task once, with the functions of all.
            found = self._functions[packed, level, last, lane] = self._context._jvm.SimplePythonFunction(
                plain.command(),
                {**self._context.environment, LANE: f"{lane}/{self._lanes}"},
                plain.pythonIncludes(),
                plain.pythonExec(),
                plain.pythonVer(),
                plain.broadcastVars(),
                plain.accumulator(),
            )
        return found


def spec_file(packed: bytes) -> IO[bytes] | None:
    """Return a file with an epoch's specification, which goes when it is closed; None where there is no room for it."""
    with suppress(OSError):
        file = tempfile.NamedTemporaryFile(prefix="penstock-epoch-")  # noqa: SIM115
        try:
            file.write(packed)
            file.flush()
            return file
        except OSError:
            with suppress(OSError):
                file.close()
    return None


def _level_task(packed: bytes, level: int, last: bool, timings: Any) -> Callable[[int, Iterator[Any]], Iterator[Any]]:
    def level_task(_: int, arriving: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext
        from pyspark.serializers import pack_long

        from penstock.spark.entry import get_ready, run_on_frames

        context = TaskContext.get()
        assert context is not None
        if context.getLocalProperty(SPEC) == WAKE:
            get_ready(packed, arriving)
            yield from [] if last else [pack_long(0), b""]  # what comes after this level is to start, too
            return
        spec, given = _this_epoch(context), _input(level, context.partitionId(), arriving)
        for target, frame in run_on_frames(packed, spec, level, given, timings):
            if last:
                yield target, bytes(frame)
            else:
                yield pack_long(target)
                yield frame

    return level_task


def _input(level: int, task: int, arriving: Iterator[Any]) -> Iterable[Any]:
    """Return what a task works on: at level 0 the split of its own number, for nothing arrives there."""
    if level > 0:
        return arriving
    # Spark ends a worker that has not read its input to the end.
    return [*arriving, task]


def _this_epoch(context: Any) -> EpochSpec:
    """Return the epoch of the job that a task belongs to."""
    found = context.getLocalProperty(SPEC)
    assert found is not None, "the job came without its epoch: is PYSPARK_PIN_THREAD off?"
    if found.startswith("file:"):
        with open(found.removeprefix("file:"), "rb") as file:
            return pickle.load(file)  # type: ignore[no-any-return]
    return pickle.loads(base64.b64decode(found))  # type: ignore[no-any-return]


class RowShuffles:
    """Run epochs over DataFrames."""

    def __init__(self, session: Any, anchors: Anchors | None) -> None:
        self._session, self._anchors = session, anchors
        # Its workers have no lanes, and all of them stay while one has tasks: one lane that no epoch has for itself.
        self._ready = Ready(session.sparkContext, 1)

    def run(
        self, packed: bytes, spec: EpochSpec, frames: list[Any], timings: Any, labels: list[str]
    ) -> Iterable[tuple[int, Any]]:
        # Spark makes all stages of a query at once, so that they have one name.
        context = self._session.sparkContext
        context.setLocalProperty(STAGE, solo_label(labels))
        made = None
        try:
            made = self._job(packed, spec, frames, timings)
            return _received(made._jdf.collectToPython(), _row_serializer())
        except Exception:
            if self._anchors is not None:
                self._anchors.forget()
            raise
        finally:
            with suppress(Exception):  # a Spark that is gone has nothing to clean
                context.setLocalProperty(STAGE, None)
                if made is not None:
                    # Otherwise the files stay until the JVM happens to collect the query.
                    made._jdf.queryExecution().toRdd().cleanShuffleDependencies(False)

    def keep_ready(self, packed: bytes, cores: Callable[[], int]) -> None:
        """Have as many workers started as tasks run at once, beside the epochs, and kept from then on."""
        self._ready.keep(partial(self._wake, packed, cores))

    def _wake(self, packed: bytes, cores: Callable[[], int], *_: Any) -> None:
        def woken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from penstock.spark.entry import get_ready

            get_ready(packed, batches)
            return iter(())

        tasks = cores()
        self._session.range(0, tasks, 1, tasks).mapInArrow(woken, "nothing int")._jdf.collectToPython()

    def let_go(self) -> None:
        """Let go of what executors hold for the epochs to come."""
        if self._anchors is not None:
            self._anchors.forget()

    def close(self) -> None:
        """Let go of all that is held for the epochs to come."""
        self._ready.close()
        self.let_go()

    def _job(self, packed: bytes, spec: EpochSpec, frames: list[Any], timings: Any) -> Any:
        session = frames[0].sparkSession if frames else self._session
        if spec.solo:
            whole = frames[0].coalesce(1) if frames else session.range(0, 1, 1, 1)
            return whole.mapInArrow(_on_batches(packed, spec, 0, timings), DDL)
        # One partition a group of splits; there is always one, which wakes the tasks of the levels below.
        levels = [session.range(0, len(spec.splits), 1, len(spec.splits)), *frames]
        inputs = [level.mapInArrow(_on_batches(packed, spec, 0, timings), DDL) for level in levels]
        made = reduce(lambda above, below: above.unionAll(below), inputs)
        if self._anchors is not None:
            self._anchors.notice()
        for level, tasks in enumerate(spec.tasks[1:], 1):
            made = made.repartitionById(tasks, "task")
            if self._anchors is not None:
                made = self._anchors.join(session, made, tasks)
            made = made.mapInArrow(_on_batches(packed, spec, level, timings), DDL)
        return made


def _received(served: Any, serializer: Any) -> list[tuple[int, Any]]:
    """Read what a job serves to the driver: as PySpark's `collect`, which would call the job after this file."""
    from pyspark.util import _load_from_socket

    with _load_from_socket(served, serializer) as stream:
        return list(stream)


def _row_serializer() -> Any:
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    return BatchedSerializer(CPickleSerializer())


def _on_batches(
    packed: bytes, spec: EpochSpec, level: int, timings: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def level_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.spark.entry import run_on_batches

        return run_on_batches(packed, spec, level, batches, timings)

    return level_task
