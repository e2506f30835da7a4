"""Steer the number of tasks: one for a whole small epoch, otherwise a number for each level with keyed operators."""

from __future__ import annotations

from penstock.elastic.epoch_model import EpochStatistics, EpochTasks
from penstock.elastic.journal import Journal
from penstock.elastic.one_task import OneTask, WorkStatistics
from penstock.spark.stages import Stages
from penstock.spark.steering.measured import is_telling
from penstock.spark.worker_state import shard_count
from penstock.statistics import FlowStats

WARM_EPOCHS = 4
"""The first epochs wait for the JVM's compiler and for Python workers to start: their times say nothing."""


class Tasks:
    """The tasks of each level.

    Level 0 reads with one task a core, and sinks are sliced by their rows: neither has a choice worth measuring.
    """

    def __init__(self, stages: Stages, journal: Journal, epoch: int, *, cores: int, target: float | None) -> None:
        self._stages, self._journal = stages, journal
        keyed = [node for node in stages.plan.keyed if shard_count(node) > 1]
        self._steered = sorted({stages.levels[node.name] for node in keyed})
        self.levels = [cores] * (stages.last + 1)
        self._open = set(self._steered)
        """The levels that nothing is known of: they have one task a core."""
        self._seen = 0
        self._rows: int | None = None
        """Of the last epoch."""
        journal.begin("epoch/one_task", OneTask(), epoch)
        for level in self._steered:
            # The levels of an epoch take turns: each gets its part of what an epoch may take.
            share = None if target is None else target / 2 / (stages.last + 1)
            journal.begin(f"level {level}/tasks", EpochTasks(target=share, high=stages.plan.shards), epoch)

    def restore(self, tables: dict[str, list[int]]) -> None:
        """Go on with the tasks of tables that were committed."""
        for level in self._steered:
            known = [max(tables[node.name]) + 1 for node in self._stages.entries(level) if node.name in tables]
            if known:
                self.levels[level] = max(known)
                self._open.discard(level)

    def one_task(self, done: FlowStats | None, rows: int | None, cores: int, epoch: int) -> bool:
        """Tell whether one task is to run the next epoch; `rows` is what it will have, None where that is not known."""
        if done is not None:
            self._rows = done.rows_in
        expected = self._rows if rows is None else rows
        if expected is None:
            return False
        known = done is not None and is_telling(done)
        seen = WorkStatistics(
            done.rows_in if done is not None and known else 0,
            done.computed if done is not None and known else 0.0,
            expected,
            cores,
        )
        self._journal.step("epoch/one_task", seen, epoch)
        return bool(self._journal.state("epoch/one_task").one)

    def choose(self, done: FlowStats | None, rows: int | None, cores: int, most: int | None, epoch: int) -> None:
        """Choose the tasks of each level for an epoch of so many rows.

        There is room for `most` tasks, None where that is not known; on a cluster it changes, as the cores do.
        """
        for level in range(len(self.levels)):
            if level not in self._steered:
                self.levels[level] = cores
            elif level in self._open:
                self.levels[level] = min(cores, self._stages.plan.shards)
            elif most is not None and self.levels[level] > most:
                self._step(level, EpochStatistics(self.levels[level], 0, 0.0, rows or 0, cores, most), epoch)
        if done is None or done.solo or not is_telling(done):
            return
        self._seen += 1
        if self._seen <= WARM_EPOCHS:
            return
        expected = done.rows_in if rows is None else rows
        for level in self._steered:
            entered = sum(done.operators[node.name].rows_in for node in self._stages.entries(level))
            spent = done.level_seconds.get(level, 0.0)
            if not entered or spent <= 0:
                continue
            ahead = round(expected * entered / done.rows_in)
            self._step(level, EpochStatistics(done.level_tasks[level], entered, spent, ahead, cores, most), epoch)

    def _step(self, level: int, seen: EpochStatistics, epoch: int) -> None:
        for action in self._journal.step(f"level {level}/tasks", seen, epoch):
            if action.what == "tasks" and isinstance(action.after, int):
                self.levels[level] = action.after
                self._open.discard(level)
