"""Run one epoch as one Spark job, and gather what its tasks report."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, Protocol

from penstock.errors import PenstockError, StorageError
from penstock.spark.anchors import Anchors
from penstock.spark.envelope import from_frame
from penstock.spark.frames import is_streaming
from penstock.spark.parts import TaskReport
from penstock.spark.session import Executors, allocates_dynamically, check_workers, engine_session, refuse_connect
from penstock.spark.ship import ship
from penstock.spark.shuffles import ByteShuffles, RowShuffles, Shuffles, job_label, stage_labels
from penstock.spark.stages import EpochSpec, Stages


class Backend(Protocol):
    """What runs epochs: Spark, or, in tests, one process that plays its part."""

    session: Any
    one_executor: bool
    """Whether all tasks share one machine, so that any of them can have any shard."""
    executors: Executors | None
    """What can be changed of a cluster; None where there is none."""

    @property
    def cores(self) -> int:
        """Return how many tasks run at once."""

    @property
    def task_cores(self) -> int:
        """Return how many cores a task has."""

    def prepare(self, stages: Stages) -> None:
        """Get ready to run the epochs of a flow."""

    @property
    def ready(self) -> int:
        """Return how many tasks find their workers started; all of them where none is being started."""

    def keep_ready(self) -> None:
        """Have workers started that no epoch has needed yet, and kept from then on."""

    def run(self, spec: EpochSpec, frames: list[Any]) -> TaskReport:
        """Run an epoch; `frames` have the rows of streaming DataFrames, if there are any. Raises `JobLost`."""

    def close(self) -> None:
        """Let go of what is held for the epochs to come."""


class JobLost(Exception):
    """Spark gave a job up: nothing of it is visible, and it may be run again."""


class SparkBackend:
    """Build and run the job of an epoch on Spark."""

    def __init__(self, session: Any) -> None:
        refuse_connect(session)
        self.session = engine_session(session)
        self._context = self.session.sparkContext
        # In local mode there is one executor, so that every task is where its shards are.
        self.one_executor = self._context.master.startswith("local[") or self._context.master == "local"
        self._dynamic = allocates_dynamically(self._context.getConf())
        anchored = not self.one_executor and not self._dynamic
        self._rows = RowShuffles(self.session, Anchors(self._context) if anchored else None)
        self.executors = None if self.one_executor else Executors(self._context)
        self._bytes = ByteShuffles(self._context)
        self._timings = self._context.accumulator([], _list_parameter())

    @property
    def cores(self) -> int:
        """Return how many tasks run at once; executors come and go."""
        found = 0 if self.executors is None else self.executors.cores
        return found or max(1, int(self._context.defaultParallelism))

    @property
    def task_cores(self) -> int:
        """Return how many cores a task has: one, unless the application was started with `spark.task.cpus`."""
        return int(self._context.getConf().get("spark.task.cpus", "1"))

    def prepare(self, stages: Stages) -> None:
        self._stages, self._packed = stages, ship(self._context, stages.plan)
        self._labels = stage_labels(stages)

    @property
    def ready(self) -> int:
        return max(1, self.cores - self._bytes.starting)

    def keep_ready(self) -> None:
        if self.one_executor and not any(map(is_streaming, self._stages.plan.sources)):
            self._bytes.keep_ready(self._packed, self._stages.last + 1, self._timings)
        elif not self._dynamic:  # there Spark takes executors away that have nothing to do
            self._rows.keep_ready(self._packed, lambda: self.cores)

    def run(self, spec: EpochSpec, frames: list[Any]) -> TaskReport:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        check_workers(self._context)
        self._timings.value = []
        shuffles: Shuffles = self._bytes if not frames and self.one_executor else self._rows
        try:
            self._context.setJobDescription(job_label(self._stages.plan.name, spec.epoch, self._labels))
            rows = shuffles.run(self._packed, spec, frames, self._timings, self._labels)
        except OSError as error:
            raise PenstockError(
                f"epoch {spec.epoch}: Spark does not answer any more ({error}); start the flow again with its "
                f"checkpoint, and it goes on with this epoch"
            ) from None
        except (Py4JError, PySparkException) as error:
            raise JobLost(_short(error)) from None
        outcome = gather(rows, list(self._timings.value))
        if any(isinstance(failure.error, StorageError) for failure in outcome.failures):
            self._rows.let_go()  # the next attempt may run elsewhere: the fault may be one machine's
        return outcome

    def close(self) -> None:
        self._rows.close()
        self._bytes.close()


def gather(frames: Iterable[tuple[int, Any]], timings: list[dict[str, Any]]) -> TaskReport:
    """Add up what tasks sent to the driver: frames with a report in each, after the task that they are for."""
    found = TaskReport(timings=timings)
    for _, frame in frames:
        report: Any = from_frame(frame).payload
        found.add(pickle.loads(report))
    return found


def _short(error: Exception) -> str:
    """Return the line of a JVM error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by:") or "Error" in line or "lost" in line.lower()]
    return (causes[-1] if causes else lines[0] if lines else type(error).__name__)[:400]


def _list_parameter() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class ListParameter(AccumulatorParam):  # type: ignore[misc]
        """Collect lists."""

        def zero(self, value: list[Any]) -> list[Any]:
            return []

        def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:
            value1.extend(value2)
            return value1

    return ListParameter()
