"""Steer the executors of a cluster: ask for more, give some back, or say what would be right."""

from __future__ import annotations

from penstock.elastic.executor_count import ExecutorCount, ExecutorStatistics
from penstock.elastic.journal import Journal
from penstock.keys import SHARDS
from penstock.spark.executors import Executors
from penstock.spark.steering.measured import is_telling
from penstock.statistics import FlowStats


class ExecutorSteering:
    """The executors of the application.

    They belong to the user, and other jobs may run on them: only a latency target says how fast is fast enough, so that
    the rest can go. Without one, or where Spark decides by itself, this is advice.
    """

    def __init__(
        self, executors: Executors, journal: Journal, epoch: int, *, target: float | None, shards: int = SHARDS
    ) -> None:
        """More executors than shards would have no work."""
        self._executors, self._journal = executors, journal
        acts = target is not None and executors.can_change
        controller = ExecutorCount(target=target, high=shards, advise=not acts)
        journal.begin("executors", controller, epoch)

    def took(self, done: FlowStats) -> None:
        """See an epoch, and change the executors if need be."""
        found = self._executors.found()
        # One that was asked for and has not come says nothing of what it will bring.
        if not is_telling(done) or not found or self._executors.changing:
            return
        seen = ExecutorStatistics(
            len(found),
            self._executors.cores_each,
            done.job_seconds,
            done.task_seconds,
            self._executors.most,
        )
        for action in self._journal.step("executors", seen, done.epoch):
            if action.what == "executors" and isinstance(action.after, int):
                self._executors.change(action.after)
