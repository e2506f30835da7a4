"""How the work of an epoch on Spark is shared out: by one task or several, and which of them has each shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.elastic.epoch_tasks import EpochStatistics, EpochTasks
from penstock.elastic.epochs import OneTask, WorkStatistics
from penstock.elastic.journal import Journal
from penstock.elastic.shard_balance import HotKey, ShardKeys, ShardStatistics, calm_balance, imbalance
from penstock.spark.measured import ShardLoads, is_telling
from penstock.spark.stages import Stages, even_table, shard_count
from penstock.statistics import FlowStats, OperatorStats

WARM_EPOCHS = 4
"""The first epochs wait for the JVM's compiler and for Python workers to start: their times say nothing."""


class Tasks:
    """The tasks of each level.

    Level 0 reads with one task a core, and sinks are sliced by their rows: neither has a choice worth measuring.
    """

    def __init__(
        self,
        stages: Stages,
        journal: Journal,
        epoch: int,
        *,
        cores: int,
        target: float | None,
        shards: Callable[[int], tuple[ShardStatistics, ...]],
    ) -> None:
        """What is known of the shards of a level's operators is asked of `shards` where its tasks change."""
        self._stages, self._journal, self._shards = stages, journal, shards
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

    def one_task(self, done: FlowStats | None, rows: int | None, cores: int, epoch: int, at: float) -> bool:
        """Tell whether one task is to run the next epoch, whose rows were taken at that time.

        `rows` is how many it will have, None where that is not known.
        """
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
            at,
        )
        self._journal.step("epoch/one_task", seen, epoch)
        return bool(self._journal.state("epoch/one_task").one)

    def choose(
        self, done: FlowStats | None, rows: int | None, cores: int, most: int | None, epoch: int, at: float
    ) -> dict[str, list[int]]:
        """Choose the tasks of each level for an epoch of so many rows; return the tables that go with a change.

        There is room for `most` tasks, None where that is not known; on a cluster it changes, as the cores do.
        """
        tables: dict[str, list[int]] = {}
        for level in range(len(self.levels)):
            if level not in self._steered:
                self.levels[level] = cores
            elif level in self._open:
                self.levels[level] = min(cores, self._stages.plan.shards)
            elif most is not None and self.levels[level] > most:
                seen = EpochStatistics(self.levels[level], 0, 0.0, rows or 0, cores, most=most, at=at)
                tables |= self._step(level, seen, epoch)
        if done is None or done.solo or not is_telling(done):
            return tables
        self._seen += 1
        if self._seen <= WARM_EPOCHS:
            return tables
        expected = done.rows_in if rows is None else rows
        for level in self._steered:
            entered = sum(done.operators[node.name].rows_in for node in self._stages.entries(level))
            spent = done.level_seconds.get(level, 0.0)
            if not entered or spent <= 0:
                continue
            ahead = round(expected * entered / done.rows_in)
            seen = EpochStatistics(done.level_tasks[level], entered, spent, ahead, cores, most=most, at=at)
            tables |= self._step(level, seen, epoch)
        return tables

    def _step(self, level: int, seen: EpochStatistics, epoch: int) -> dict[str, list[int]]:
        def with_shards() -> EpochStatistics:
            return replace(seen, operators=self._shards(level))

        tables: dict[str, list[int]] = {}
        for action in self._journal.step(f"level {level}/tasks", seen, epoch, changing=with_shards):
            if action.what == "tasks" and isinstance(action.after, int):
                self.levels[level] = action.after
                self._open.discard(level)
                tables |= {table.operator: list(table.tasks) for table in action.tables}
        return tables


LEAST_GAIN = 0.01
"""Seconds of an epoch that the busiest task must exceed the mean by before shards move."""
BALANCE = calm_balance(LEAST_GAIN)


class Tables:
    """Which task holds each shard: the table of each keyed operator is changed where a task is too busy."""

    def __init__(self, stages: Stages, journal: Journal, epoch: int, tables: dict[str, list[int]]) -> None:
        self._stages, self._journal = stages, journal
        self._keyed = [node for node in stages.plan.keyed if shard_count(node) > 1]
        self._tables = {n.name: list(tables[n.name]) for n in self._keyed if len(tables.get(n.name, ())) == n.shards}
        self._tasks: dict[str, int] = {}
        """The number of tasks that each table is made for; not known of one that was read from a checkpoint."""
        self._loads = {node.name: ShardLoads(node.shards) for node in self._keyed}
        self._even = dict.fromkeys(self._loads, 0)
        """How many epochs in a row each table was even enough."""
        for node in self._keyed:
            journal.begin(f"{node.name}/shards", BALANCE, epoch)

    def took(self, done: FlowStats) -> None:
        """Take in the loads of an epoch."""
        for name, loads in self._loads.items():
            loads.add(done.operators[name].shards)

    def shards(self, level: int) -> tuple[ShardStatistics, ...]:
        """Return what is known of the operators of a level that have a table and work to share out."""
        names = [node.name for node in self._stages.entries(level)]
        return tuple(self._seen(name, 1, None, 0.0) for name in names if name in self._tables and self._heavy(name))

    def choose(
        self,
        levels: tuple[int, ...],
        fixed: dict[str, list[int]],
        made: dict[str, list[int]],
        done: FlowStats | None,
        epoch: int,
        at: float,
    ) -> dict[str, list[int]]:
        """Return the table of each keyed operator, given the tasks of each level and the tables that the user set.

        Those that were `made` together with another number of tasks are taken as they are.
        """
        chosen = {}
        for number, node in enumerate(self._stages.plan.keyed):
            tasks = levels[self._stages.levels[node.name]]
            if node.name not in self._loads:
                # Operators of one shard go to different tasks, so that they can run side by side.
                chosen[node.name] = fixed.get(node.name) or even_table(1, tasks, number)
                continue
            if node.name in fixed:
                self._tables[node.name] = list(fixed[node.name])
            elif node.name in made:
                self._tables[node.name] = made[node.name]
            else:
                self._balance(node.name, tasks, done, epoch, at)
            self._tasks[node.name] = tasks
            chosen[node.name] = list(self._tables[node.name])
        return chosen

    def _heavy(self, name: str) -> bool:
        """Tell whether an operator has work that is worth sharing out by what its shards took."""
        return sum(self._loads[name].loads) > LEAST_GAIN

    def _balance(self, name: str, tasks: int, done: FlowStats | None, epoch: int, at: float) -> None:
        table = self._tables.get(name)
        loads, heavy = self._loads[name].loads, self._heavy(name)
        resized = table is not None and self._tasks.get(name, max(table) + 1) != tasks
        if table is None or (resized and (not heavy or tasks == 1)):
            if table is None or max(table) >= tasks or name in self._tasks:
                self._tables[name] = even_table(len(loads), tasks)
            return
        if not heavy or tasks == 1 or (done is None and not resized):
            return
        state = self._journal.state(f"{name}/shards")
        if not resized and not state.hot and imbalance(loads, tuple(table), tasks) <= BALANCE.limit(state, at):
            # What it sees is long, and it would hold: only how often that was is told, with the next look.
            self._even[name] += 1
            return
        seen = self._seen(name, tasks, done, at)
        self._even[name] = 0
        for action in self._journal.step(f"{name}/shards", seen, epoch):
            for made in action.tables:
                self._tables[name] = list(made.tasks)

    def _seen(self, name: str, tasks: int, done: FlowStats | None, at: float) -> ShardStatistics:
        own = OperatorStats() if done is None else done.operators[name]
        loads = self._loads[name].loads
        keys = ((shard, tuple(HotKey(*key) for key in found)) for shard, found in sorted(own.hot_keys.items()))
        return ShardStatistics(
            loads,
            tuple(self._tables[name]),
            tasks,
            tuple(own.shard_bytes.get(shard, 0) for shard in range(len(loads))),
            tuple(ShardKeys(*each) for each in keys),
            operator=name,
            at=at,
            even=self._even[name],
        )
