"""Tie the tasks of a cluster to executors, so that a task finds the shards that it had before."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


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
