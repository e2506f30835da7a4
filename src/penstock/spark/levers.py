"""The levers of a run on Spark: each reads what one controller needs of an epoch, and holds what it decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.elastic.base import Action
from penstock.elastic.climb import GRAIN, WaitingConcurrency, WaitingStatistics
from penstock.elastic.epoch_rows import EpochRows, IntakeStatistics
from penstock.elastic.epoch_tasks import EpochStatistics, EpochTasks
from penstock.elastic.epochs import (
    EpochWait,
    ExecutorCount,
    ExecutorStatistics,
    OneTask,
    PaceStatistics,
    WorkStatistics,
)
from penstock.elastic.pilot import Lever, NextEpoch, Period
from penstock.elastic.shard_balance import HotKey, ShardKeys, ShardStatistics, calm_balance, imbalance
from penstock.operators.stateless import PerRow, most_in_flight
from penstock.plan.graph import KeyedNode
from penstock.spark.measured import ShardLoads, is_telling
from penstock.spark.session import Executors
from penstock.spark.stages import even_table
from penstock.statistics import FlowStats, OperatorStats

WAITED_ROWS = 32
"""An epoch with fewer rows per task says nothing of how fast they could be."""
WAIT_LOOKS = 24
"""So many epochs in a row must ask for a longer wait, once a run is settled."""
DOUBT = 3
"""How many times twice as much as else it must cost to stay with fewer tasks, once some were given back."""
FIRST_ROWS = 100_000
"""What the first epoch takes in, at most: some tenths of a second."""
LEAST_ROWS = 100
WARM_EPOCHS = 4
"""The first epochs wait for the JVM's compiler and for Python workers to start: their times say nothing."""
LEAST_WORK = 0.01
"""Seconds that an operator's shards must take in an epoch to be shared out by what they took."""
LEAST_GAIN = 0.002
"""Seconds of an epoch that the busiest task must exceed the mean by before shards move: less may be noise."""
BALANCE = calm_balance(LEAST_GAIN)


class WaitingTasksLever(Lever):
    """The rows in flight of an operator that waits."""

    def __init__(self, operator: str, own: PerRow) -> None:
        assert own.in_flight is not None
        self.name, self.operator, rows = f"{operator}/in_flight", operator, int(own.in_flight)
        most = most_in_flight(own.is_async)
        self.controller = WaitingConcurrency(high=most, initial=rows, largest_guess=rows, grain=GRAIN)

    @property
    def rows(self) -> int:
        return int(self.state.levels.level)

    def read(self, period: Period) -> WaitingStatistics | None:
        rows, wall, flight, cpu = period.done.operators[self.operator].waits
        if not is_telling(period.done) or wall <= 0 or rows < WAITED_ROWS * period.done.tasks:
            return None
        # A task's own rate, so that more tasks do not look like more rows in flight.
        return WaitingStatistics(rows / wall, max(0.0, flight - cpu) / rows, cpu / rows)


class EpochRowsLever(Lever):
    """The rows of an epoch, for a target.

    The user bounds what each source gives, but a target is for the whole epoch: what that may take in is shared by as
    many sources as give rows.
    """

    name = "epoch/rows"

    def __init__(self, sources: Sequence[str], most_rows: int, target: float) -> None:
        low, high = min(LEAST_ROWS, most_rows), most_rows * len(sources)
        self.controller = EpochRows(target, low, high, min(FIRST_ROWS, high))
        self.backlog = 0
        """The rows that the last epoch has left over."""
        self._sources, self._most_rows = sources, most_rows
        self._width = float(len(sources))
        """How many times the rows of the source with the most rows an epoch has."""

    @property
    def each(self) -> int:
        """How many rows the next epoch may take from each source."""
        return max(1, min(self._most_rows, round(int(self.state.size) / self._width)))

    def read(self, period: Period) -> IntakeStatistics | None:
        done, rows = period.done, period.done.rows_in
        if rows == 0:
            return None
        most = max(done.operators[name].rows_in for name in self._sources)
        # Where what waits is not counted, a source that gave all it might has some left.
        left = 2 * self.state.size if most >= self.each else 0
        self.backlog = (done.backlog or 0) if done.knows_backlog else left
        # Sources that join in count at once, those that pause by and by: they may be back with the next epoch.
        self._width = max(rows / most, 0.8 * self._width + 0.2 * rows / most)
        return IntakeStatistics(rows, done.seconds, self.backlog, done.at)


class EpochWaitLever(Lever):
    """The time from one epoch to the next, for a target."""

    name = "epoch/every"

    def __init__(self, rows: EpochRowsLever | None, target: float) -> None:
        self._rows, self.controller = rows, EpochWait(target, looks=WAIT_LOOKS)

    def read(self, period: Period) -> PaceStatistics | None:
        done = period.done
        if done.rows_in == 0:
            return None
        # What is not sized takes all that there is.
        return PaceStatistics(done.seconds + done.between, 0 if self._rows is None else self._rows.backlog, done.at)


class ExecutorsLever(Lever):
    """The executors of the application.

    They belong to the user, and other jobs may run on them: only a latency target says how fast is fast enough, so that
    the rest can go. Without one, or where Spark decides by itself, this is advice. More than shards would have no work.
    """

    name, sets = "executors", "executors"

    def __init__(self, executors: Executors, target: float | None, shards: int) -> None:
        self._executors, self.set_number = executors, executors.change
        acts = target is not None and executors.can_change
        self.controller = ExecutorCount(target=target, high=shards, advise=not acts)

    def read(self, period: Period) -> ExecutorStatistics | None:
        executors, done = self._executors, period.done
        found = executors.found()
        # One that was asked for and has not come says nothing of what it will bring.
        if not is_telling(done) or not found or executors.changing:
            return None
        return ExecutorStatistics(len(found), executors.cores_each, done.job_seconds, done.task_seconds, executors.most)


def ahead_of(period: Period) -> NextEpoch:
    """Return what is known of the next epoch; levers that ask have their turn once its rows are taken."""
    assert period.ahead is not None
    return period.ahead


class OneTaskLever(Lever):
    """Whether one task runs all stages of an epoch."""

    name = "epoch/one_task"

    def __init__(self) -> None:
        self.controller = OneTask()
        self._rows: int | None = None
        """Of the last epoch."""

    def read(self, period: Period) -> WorkStatistics | None:
        done, ahead = period.done, ahead_of(period)
        if done.attempts:
            self._rows = done.rows_in
        expected = self._rows if ahead.rows is None else ahead.rows
        if expected is None:
            return None
        rows, computed = (done.rows_in, done.computed) if is_telling(done) else (0, 0.0)
        return WorkStatistics(rows, computed, expected, ahead.cores, ahead.at)


class StageTasksLever(Lever):
    """The tasks of a stage with keyed operators."""

    def __init__(
        self,
        stage: int,
        entries: Sequence[str],
        target: float | None,
        tables: Sequence[ShardsLever],
        *,
        shards: int,
        tasks: int | None,
    ) -> None:
        """The stage begins with the operators `entries`; their `tables` change with the tasks, which may be known."""
        self.name, self._stage, self._entries, self._tables = f"stage {stage}/tasks", stage, entries, tables
        self.tasks = tasks
        """None while nothing is known: then it has one task per core."""
        self.controller = EpochTasks(target=target, high=shards, doubt=DOUBT)
        self._shards, self._epochs = shards, 0

    def count(self, cores: int) -> int:
        return min(cores, self._shards) if self.tasks is None else self.tasks

    def read(self, period: Period) -> EpochStatistics | None:
        done, ahead = period.done, ahead_of(period)
        # What nothing is measured of is only bounded: tasks may come from a checkpoint that a larger machine has left.
        tasks, rows, seconds, expected = self.tasks or 0, 0, 0.0, ahead.rows or 0
        if is_telling(done) and not done.solo:
            self._epochs += 1
            entered = sum(done.operators[name].rows_in for name in self._entries)
            spent = done.stage_seconds.get(self._stage, 0.0)
            if self._epochs > WARM_EPOCHS and entered and spent > 0:
                tasks, rows, seconds = done.stage_tasks[self._stage], entered, spent
                expected = round((done.rows_in if ahead.rows is None else ahead.rows) * entered / done.rows_in)
        if not seconds and (ahead.most is None or tasks <= ahead.most):
            return None
        return EpochStatistics(
            tasks, rows, seconds, expected, ahead.cores, most=ahead.most, at=ahead.at, began=ahead.began
        )

    def detailed(self, seen: EpochStatistics) -> EpochStatistics:
        heavy = (table for table in self._tables if table.table and table.is_heavy)
        return replace(seen, operators=tuple(table.statistics(1, FlowStats(), 0.0) for table in heavy))

    def act(self, action: Action) -> None:
        if action.what == "tasks" and isinstance(action.after, int):
            self.tasks = action.after
            by_operator = {table.operator: table for table in self._tables}
            for made in action.tables:
                by_operator[made.operator].set(list(made.tasks), action.after)


class ShardsLever(Lever):
    """Which task has each shard of a keyed operator."""

    def __init__(self, node: KeyedNode, stage: int, table: list[int] | None) -> None:
        """A `table` that was committed is for a number of tasks that is not known."""
        self.name, self.operator, self.stage = f"{node.name}/shards", node.name, stage
        self.controller = BALANCE
        self.table = list(table) if table is not None and len(table) == node.shards else None
        self._made_for: int | None = None
        self._given = False
        """Whether it has just been set from elsewhere."""
        self._loads = ShardLoads(node.shards)
        self._even = 0
        """How many epochs in a row the table was even enough."""

    @property
    def is_heavy(self) -> bool:
        """Whether the operator has work that is worth sharing out by what its shards took."""
        return sum(self._loads.loads) > LEAST_WORK

    def observe(self, done: FlowStats) -> None:
        self._loads.add(done.operators[self.operator].shards)

    def set(self, table: list[int], tasks: int) -> None:
        """Have this table for the next epoch, with so many tasks."""
        self.table, self._made_for, self._given = table, tasks, True

    def read(self, period: Period) -> ShardStatistics | None:
        done, ahead, loads = period.done, ahead_of(period), self._loads.loads
        tasks, table, before = ahead.tasks[self.stage], self.table, self._made_for
        given, self._given, self._made_for = self._given, False, tasks
        if given:
            return None
        resized = table is not None and (before or max(table) + 1) != tasks
        if table is None or (resized and (not self.is_heavy or tasks == 1)):
            if table is None or max(table) >= tasks or before is not None:
                self.table = even_table(len(loads), tasks)
            return None
        if not self.is_heavy or tasks == 1 or not (done.attempts or resized):
            return None
        limit = BALANCE.limit(self.state, ahead.at)
        if not resized and not self.state.hot and imbalance(loads, tuple(table), tasks) <= limit:
            # What it sees is long, and it would hold: only how often that was is told, with the next look.
            self._even += 1
            return None
        seen, self._even = self.statistics(tasks, done, ahead.at), 0
        return seen

    def act(self, action: Action) -> None:
        for made in action.tables:
            self.table = list(made.tasks)

    def statistics(self, tasks: int, done: FlowStats, at: float) -> ShardStatistics:
        own = done.operators.get(self.operator, OperatorStats())
        loads = self._loads.loads
        keys = ((shard, tuple(HotKey(*key) for key in found)) for shard, found in sorted(own.hot_keys.items()))
        return ShardStatistics(
            loads,
            tuple(self.table or ()),
            tasks,
            tuple(own.shard_bytes.get(shard, 0) for shard in range(len(loads))),
            tuple(ShardKeys(*each) for each in keys),
            operator=self.operator,
            at=at,
            even=self._even,
        )
