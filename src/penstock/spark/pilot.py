"""Steer a run on Spark between its epochs: measure, let the controllers decide, act, and keep every decision.

Each controller owns one thing (docs/elasticity.md): the rows in flight of an operator that waits, the rows of an epoch,
the time between epochs, the executors, and then, once the rows of the next epoch are known, whether one task runs it,
the tasks of a level, the table of an operator. They decide in this order, so that each sees what the ones before have
decided. What the user set is nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.elastic.batch_size import BatchSize, BatchStatistics
from penstock.elastic.decisions import Decision, Journal
from penstock.elastic.epochs import (
    EpochStatistics,
    EpochTasks,
    EpochWait,
    ExecutorCount,
    ExecutorStatistics,
    OneTask,
    PaceStatistics,
    WorkStatistics,
)
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics, imbalance
from penstock.elastic.waiting import WaitingConcurrency, WaitingStatistics
from penstock.keys import SHARDS
from penstock.operators.stateless import PerRow, Unasked, most_in_flight
from penstock.plan import Plan
from penstock.spark.executors import Executors
from penstock.spark.frames import is_streaming, takes_all
from penstock.spark.measured import ShardLoads, is_telling
from penstock.spark.stages import Stages, even_table, shard_count
from penstock.statistics import FlowStats, OperatorStats

WAITED_ROWS = 32
"""An epoch with fewer rows a task says nothing of how fast they could be."""


class WaitingOperators:
    """The rows in flight of the operators that wait, where the user did not say."""

    def __init__(self, plan: Plan, journal: Journal, epoch: int) -> None:
        self._journal = journal
        self.in_flight: dict[str, int] = {}
        for node in plan.nodes.values():
            operator = node.operator
            if isinstance(operator, PerRow) and isinstance(operator.in_flight, Unasked):
                rows = int(operator.in_flight)
                most = most_in_flight(operator.is_async)
                controller = WaitingConcurrency(high=most, initial=rows, largest_guess=rows)
                journal.begin(_name(node.name), controller, epoch)
                self.in_flight[node.name] = rows

    def took(self, done: FlowStats) -> None:
        """See an epoch, and choose for the next."""
        if not is_telling(done):
            return
        for name in self.in_flight:
            rows, wall, flight, cpu = done.operators[name].waits
            if wall <= 0 or rows < WAITED_ROWS * done.tasks:
                continue
            # A task's own rate, so that more tasks do not look like more rows in flight.
            seen = WaitingStatistics(rows / wall, max(0.0, flight - cpu) / rows, cpu / rows)
            for action in self._journal.step(_name(name), seen, done.epoch):
                if action.what == "in_flight" and isinstance(action.after, int):
                    self.in_flight[name] = action.after


def _name(operator: str) -> str:
    return f"{operator}/in_flight"


FIRST_ROWS = 100_000
"""What the first epoch takes in, at most: some tenths of a second."""
LEAST_ROWS = 100


class Intake:
    """The rows of an epoch and the time from one to the next; fixed where there is no target.

    The user bounds what each source gives, but a target is for the whole epoch: what that may take in is shared by as
    many sources as give rows.
    """

    def __init__(
        self,
        sources: list[str],
        journal: Journal,
        epoch: int,
        *,
        most_rows: int,
        every: float,
        sized: float | None,
        paced: float | None,
    ) -> None:
        """Steer the rows against the target `sized`, and the time against `paced`; what has none is left alone."""
        self._sources, self._journal, self._most_rows, self.every = sources, journal, most_rows, every
        self._sized, self._paced = sized is not None, paced is not None and every == 0
        self._last: tuple[float, int] | None = None
        self._width = float(len(sources))
        """How many times the rows of the source with the most rows an epoch has."""
        if sized is not None:
            low, high = min(LEAST_ROWS, most_rows), most_rows * len(sources)
            first = min(FIRST_ROWS, high)
            journal.begin("epoch/rows", BatchSize(low=low, high=high, initial=first, target=sized), epoch)
        if paced is not None and self._paced:
            journal.begin("epoch/every", EpochWait(paced), epoch)

    @property
    def rows(self) -> int:
        """Return how many rows the next epoch may take from each source."""
        if not self._sized:
            return self._most_rows
        size: int = self._journal.state("epoch/rows").size
        return max(1, min(self._most_rows, round(size / self._width)))

    def took(self, done: FlowStats) -> None:
        """See an epoch, and choose for the next."""
        if done.rows_in == 0:
            return
        # What is not sized takes all that there is.
        backlog = self._resize(done) if self._sized else 0
        if self._paced:
            seen = PaceStatistics(done.seconds + done.between, backlog)
            for action in self._journal.step("epoch/every", seen, done.epoch):
                if isinstance(action.after, float):
                    self.every = action.after

    def _resize(self, done: FlowStats) -> int:
        """Choose the rows of the next epoch; return how many are left over."""
        rows, seconds = done.rows_in, done.seconds
        most = max(done.operators[name].rows_in for name in self._sources)
        # Where nobody counts what waits, a source that gave all it might has some left.
        left: int = 2 * self._journal.state("epoch/rows").size if most >= self.rows else 0
        known, at = (done.backlog or 0) if done.knows_backlog else None, done.at
        backlog = left if known is None else known
        # Sources that join in count at once, those that pause by and by: they may be back with the next epoch.
        self._width = max(rows / most, 0.8 * self._width + 0.2 * rows / most)
        before, self._last = self._last, (at, backlog)
        arrivals = 0.0
        # The first epoch says nothing of how fast rows come. Where nobody knows what waits, a source may give as
        # much as is asked for: that is no rate to keep up with.
        if known is not None and before is not None and at > before[0]:
            arrivals = max(0, rows + backlog - before[1]) / (at - before[0])
        self._journal.step("epoch/rows", BatchStatistics(rows, seconds, arrivals, backlog), done.epoch)
        return backlog


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


LEAST_GAIN = 0.01
"""Seconds of an epoch that the busiest task must exceed the mean by before shards move."""
BALANCE = ShardBalance(least_gain=LEAST_GAIN)


class Tables:
    """Which task holds each shard: the table of each keyed operator is changed where a task is too busy."""

    def __init__(self, stages: Stages, journal: Journal, epoch: int, tables: dict[str, list[int]]) -> None:
        self._stages, self._journal = stages, journal
        self._keyed = [node for node in stages.plan.keyed if shard_count(node) > 1]
        self._tables = {n.name: list(tables[n.name]) for n in self._keyed if len(tables.get(n.name, ())) == n.shards}
        self._tasks: dict[str, int] = {}
        """The number of tasks that each table is made for; not known of one that was read from a checkpoint."""
        self._loads = {node.name: ShardLoads(node.shards) for node in self._keyed}
        for node in self._keyed:
            journal.begin(f"{node.name}/shards", BALANCE, epoch)

    def took(self, done: FlowStats) -> None:
        """Take in the loads of an epoch."""
        for name, loads in self._loads.items():
            loads.add(done.operators[name].shards)

    def choose(
        self, levels: tuple[int, ...], fixed: dict[str, list[int]], done: FlowStats | None, epoch: int
    ) -> dict[str, list[int]]:
        """Return the table of each keyed operator, given the tasks of each level and the tables that the user set."""
        chosen = {}
        for number, node in enumerate(self._stages.plan.keyed):
            tasks = levels[self._stages.levels[node.name]]
            if node.name not in self._loads:
                # Operators of one shard go to different tasks, so that they can run side by side.
                chosen[node.name] = fixed.get(node.name) or even_table(1, tasks, number)
                continue
            if node.name in fixed:
                self._tables[node.name] = list(fixed[node.name])
            else:
                self._mend(node.name, tasks, done, epoch)
            self._tasks[node.name] = tasks
            chosen[node.name] = list(self._tables[node.name])
        return chosen

    def _mend(self, name: str, tasks: int, done: FlowStats | None, epoch: int) -> None:
        table = self._tables.get(name)
        loads = self._loads[name].loads
        resized = table is not None and self._tasks.get(name, max(table) + 1) != tasks
        heavy = sum(loads) > LEAST_GAIN
        if table is None or (resized and (not heavy or tasks == 1)):
            if table is None or max(table) >= tasks or name in self._tasks:
                self._tables[name] = even_table(len(loads), tasks)
            return
        if not heavy or tasks == 1 or (done is None and not resized):
            return
        known_hot = self._journal.state(f"{name}/shards").hot
        if not resized and not known_hot and imbalance(loads, tuple(table), tasks) <= BALANCE.threshold:
            return  # what it sees is long, and it would hold: nothing is learned from logging that every epoch
        own = OperatorStats() if done is None else done.operators[name]
        seen = ShardStatistics(
            loads,
            tuple(table),
            tasks,
            tuple(own.shard_bytes.get(shard, 0) for shard in range(len(loads))),
            tuple(
                ShardKeys(shard, tuple(HotKey(*key) for key in keys)) for shard, keys in sorted(own.hot_keys.items())
            ),
        )
        for action in self._journal.step(f"{name}/shards", seen, epoch):
            if action.what == "shard":
                assert isinstance(action.after, int)
                table[int(action.target)] = action.after


@dataclass(frozen=True)
class Wishes:
    """What the user set."""

    tasks: int | None = None
    tables: dict[str, list[int]] = field(default_factory=dict)
    most_rows: int = 1_000_000
    every: float = 0.0
    latency: float | None = None


@dataclass(frozen=True)
class Choice:
    """How to run the next epoch."""

    solo: bool
    levels: tuple[int, ...]
    """The number of tasks of each level."""
    tables: dict[str, list[int]]
    """For each keyed operator, the task of each shard; empty where one task has them all."""
    in_flight: dict[str, int]


class EpochPilot:
    """Choose how each epoch of a run is run, from what the ones before have shown."""

    def __init__(
        self,
        stages: Stages,
        wishes: Wishes,
        *,
        cores: int,
        executors: Executors | None,
        tables: dict[str, list[int]],
        epoch: int,
    ) -> None:
        self._stages, self._cluster = stages, executors
        self.journal = journal = Journal()
        self._done: FlowStats | None = None
        target = wishes.latency
        self._tasks = Tasks(stages, journal, epoch, cores=cores, target=target)
        self._tasks.restore(tables)
        self._tables = Tables(stages, journal, epoch, tables)
        self._waits = WaitingOperators(stages.plan, journal, epoch)
        frames = [node.operator.reader.frame for node in stages.plan.sources if is_streaming(node)]
        sources = [node.name for node in stages.plan.sources]
        # What a batch of a streaming DataFrame takes in is up to its reader. It can wait to be cut, unless rows are
        # left over, or other sources have epochs meanwhile that it would wait for too.
        can_wait = not frames or (len(frames) == len(sources) and target is not None and all(map(takes_all, frames)))
        self._intake = Intake(
            sources,
            journal,
            epoch,
            most_rows=wishes.most_rows,
            every=wishes.every,
            sized=None if frames else target,
            paced=target if can_wait else None,
        )
        self._executors = (
            None
            if executors is None
            else ExecutorSteering(executors, journal, epoch, target=target, shards=stages.plan.shards)
        )

    @property
    def decisions(self) -> list[Decision]:
        """Return what was decided, oldest first."""
        return self.journal.decisions

    @property
    def epoch_rows(self) -> int:
        """Return how many rows the next epoch may take from each source."""
        return self._intake.rows

    @property
    def every(self) -> float:
        """Return the seconds from the beginning of the last epoch to that of the next, at least."""
        return self._intake.every

    def took(self, done: FlowStats) -> None:
        self._done = done
        self._tables.took(done)
        self._waits.took(done)
        self._intake.took(done)
        if self._executors is not None:
            self._executors.took(done)

    def choose(self, wishes: Wishes, rows: int | None, cores: int, epoch: int, *, mixed: bool = False) -> Choice:
        """Choose how to run an epoch of so many rows (None where that is not known).

        A `mixed` epoch has rows of a DataFrame and rows that tasks read themselves, which no one task can do.
        """
        done, self._done = self._done, None
        in_flight = dict(self._waits.in_flight)
        # On a cluster the one task would have to fetch the state of all others.
        open_to_one = self._cluster is None and wishes.tasks is None and not mixed
        if open_to_one and self._tasks.one_task(done, rows, cores, epoch):
            return Choice(True, (1,) * (self._stages.last + 1), {}, in_flight)
        if wishes.tasks is None:
            most = cores if self._cluster is None else self._cluster.most_tasks
            self._tasks.choose(done, rows, cores, most, epoch)
            levels = tuple(self._tasks.levels)
        else:
            levels = (cores, *(wishes.tasks for _ in range(self._stages.last)))
        tables = self._tables.choose(levels, wishes.tables, done, epoch)
        return Choice(False, levels, tables, in_flight)
