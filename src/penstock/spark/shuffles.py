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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from typing import IO, Any, Protocol, TypeAlias

import pyarrow as pa

from penstock.spark.envelope import DDL
from penstock.spark.stages import EpochSpec, Stages
from penstock.spark.worker_state import LANE


class Anchors:
    """The anchors of one Spark context, one for each number of tasks.

    An anchor is a frame with one row a task, which the executors hold in memory. Joined with it by task, a shuffle's
    rows go to the executor that holds the row: Spark runs a task where its cached input is. The join needs no further
    exchange.

    With dynamic allocation there are none: an executor that holds a cached row would never be given back.
    """

    def __init__(self, context: Any) -> None:
        self._scala = context._jsc.sc()
        self._frames: dict[int, Any] = {}
        self._executors: set[str] = set()
        self._crowded = False
        """Whether an executor has no task while another has several."""
        self._epochs, self._patience = 0, 1

    def join(self, session: Any, made: Any, tasks: int) -> Any:
        """Return rows that were repartitioned by task, joined so that they go where their task was before."""
        from pyspark.sql import functions as F

        anchor = self._frames.get(tasks)
        if anchor is None:
            anchor = self._frames[tasks] = self._make(session, tasks)
        # A merge holds the right side's rows of a key in memory, so that must be the anchor.
        return made.join(anchor.hint("merge"), F.col("task") == F.col("anchor")).drop("anchor")

    def notice(self) -> None:
        """Anchor anew where executors have come, so that they get their part; those that go leave theirs to the rest.

        An executor that is new does not take tasks at once, so this is tried again, ever more seldom, until it does.
        """
        executors = set(self._scala.getExecutorIds().mkString(",").split(","))
        self._epochs += 1
        if executors - self._executors:
            self._patience = 1
            self.forget()
        elif self._crowded and self._epochs > self._patience:
            self._patience *= 2
            self.forget()
        self._executors = executors

    def forget(self) -> None:
        """Let Spark choose anew where tasks run."""
        for frame in self._frames.values():
            with suppress(Exception):  # what cannot be given back is with an executor, or a Spark, that is gone
                cached = frame._jdf.queryExecution().withCachedData()
                frame.unpersist()
                # The shuffle that put the rows where they were has left files, too.
                cached.cacheBuilder().cachedPlan().execute().cleanShuffleDependencies(False)
        self._frames.clear()
        self._epochs, self._crowded = 0, False

    def _make(self, session: Any, tasks: int) -> Any:
        from pyspark.sql import functions as F

        frame = session.range(0, tasks, 1, tasks).select(F.col("id").cast("int").alias("anchor"))
        frame = frame.repartitionById(tasks, "anchor").persist()
        rows = frame._jdf.queryExecution().toRdd()  # a count of the frame would be one more shuffle
        rows.count()
        # Spark looks where cached rows are when a job begins: without a second one it believes that they are nowhere.
        rows.count()
        self._crowded |= len(self._places(frame, tasks)) < min(tasks, len(self._executors))
        return frame

    def _places(self, frame: Any, tasks: int) -> set[str]:
        """Return the executors that hold the rows of an anchor."""
        rows = frame._jdf.queryExecution().toRdd()
        return {self._scala.getPreferredLocs(rows, task).mkString(",") for task in range(tasks)}


SPEC = "penstock.epoch"
"""The property of a job over RDDs that holds its epoch's specification, or the path of a file that does."""
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
        tasks = (1,) if spec.solo else (len(spec.splits), *spec.tasks[1:])
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
        made, shuffles, last = self._first.get((packed, len(tasks) == 1, tasks[0])), [], len(tasks) - 1
        for level in range(last + 1):
            if level or made is None:
                self._context.setLocalProperty(STAGE, labels[level])
                each = range(tasks[level])
                functions = [self._function(packed, level, level == last, timings, task) for task in each]
                inputs = [self._input(made, task, tasks[level]) for task in each]
                made = self._union([self._python_rdd(inputs[n], functions[n], False, False) for n in each])
                made = made if level == last else self._pairs(made).asJavaPairRDD()
            if level == 0:
                # What nothing is before is the same in each epoch; after a shuffle all is new.
                self._first[packed, last == 0, tasks[0]] = made
            if level < last:
                shuffles.append(made.partitionBy(self._by_number(tasks[level + 1], 0)))
                made = self._values_of(shuffles[-1]).rdd()
        return made, shuffles

    def close(self) -> None:
        """Wait until what the last epoch left is gone, and end the thread: whoever keeps a run does not keep that."""
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

        from penstock.spark.entry import run_on_frames

        context = TaskContext.get()
        assert context is not None
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

    def close(self) -> None:
        """Let go of what executors hold for the epochs to come."""
        if self._anchors is not None:
            self._anchors.forget()

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
