"""Steer a run on Spark between its epochs: measure, let the controllers decide, act, and keep every decision.

Each controller owns one thing (docs/elasticity.md): the rows in flight of an operator that waits, the rows of an epoch,
the time between epochs, the executors, and then, once the rows of the next epoch are known, whether one task runs it,
the tasks of a level, the table of an operator. They decide in this order, so that each sees what the ones before have
decided. What the user set is nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.elastic.decisions import Decision
from penstock.elastic.epoch_rows import EpochRows, IntakeStatistics
from penstock.elastic.epochs import (
    EpochWait,
    ExecutorCount,
    ExecutorStatistics,
    PaceStatistics,
)
from penstock.elastic.journal import Journal
from penstock.elastic.waiting import WaitingConcurrency, WaitingStatistics
from penstock.operators.stateless import PerRow, Unasked, most_in_flight
from penstock.plan.plan import Plan
from penstock.rows.keys import SHARDS
from penstock.spark.executors import Executors
from penstock.spark.frames import is_streaming, takes_all
from penstock.spark.measured import is_telling
from penstock.spark.sharing import Tables, Tasks
from penstock.spark.stages import Stages
from penstock.statistics import FlowStats

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
        self._width = float(len(sources))
        """How many times the rows of the source with the most rows an epoch has."""
        if sized is not None:
            low, high = min(LEAST_ROWS, most_rows), most_rows * len(sources)
            first = min(FIRST_ROWS, high)
            journal.begin("epoch/rows", EpochRows(sized, low, high, first), epoch)
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
            seen = PaceStatistics(done.seconds + done.between, backlog, done.at)
            self._journal.step("epoch/every", seen, done.epoch)
            self.every = self._journal.state("epoch/every").wait

    def _resize(self, done: FlowStats) -> int:
        """Choose the rows of the next epoch; return how many are left over."""
        rows, seconds = done.rows_in, done.seconds
        most = max(done.operators[name].rows_in for name in self._sources)
        # Where nobody counts what waits, a source that gave all it might has some left.
        left: int = 2 * self._journal.state("epoch/rows").size if most >= self.rows else 0
        backlog = (done.backlog or 0) if done.knows_backlog else left
        # Sources that join in count at once, those that pause by and by: they may be back with the next epoch.
        self._width = max(rows / most, 0.8 * self._width + 0.2 * rows / most)
        self._journal.step("epoch/rows", IntakeStatistics(rows, seconds, backlog, done.at), done.epoch)
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
        self._at = 0.0
        self._tables = Tables(stages, journal, epoch, tables)
        self._tasks = Tasks(stages, journal, epoch, cores=cores, target=target, shards=self._tables.shards)
        self._tasks.restore(tables)
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

    def choose(
        self,
        wishes: Wishes,
        rows: int | None,
        cores: int,
        epoch: int,
        *,
        at: float | None = None,
        mixed: bool = False,
    ) -> Choice:
        """Choose how to run an epoch of so many rows (None where that is not known), which were taken at that time.

        A `mixed` epoch has rows of a DataFrame and rows that tasks read themselves, which no one task can do.
        """
        done, self._done = self._done, None
        if at is None:
            at = self._at if done is None else done.at
        self._at = at
        in_flight = dict(self._waits.in_flight)
        # On a cluster the one task would have to fetch the state of all others.
        open_to_one = self._cluster is None and wishes.tasks is None and not mixed
        if open_to_one and self._tasks.one_task(done, rows, cores, epoch, at):
            return Choice(True, (1,) * (self._stages.last + 1), {}, in_flight)
        made: dict[str, list[int]] = {}
        if wishes.tasks is None:
            most = cores if self._cluster is None else self._cluster.most_tasks
            made = self._tasks.choose(done, rows, cores, most, epoch, at)
            levels = tuple(self._tasks.levels)
        else:
            levels = (cores, *(wishes.tasks for _ in range(self._stages.last)))
        tables = self._tables.choose(levels, wishes.tables, made, done, epoch, at)
        return Choice(False, levels, tables, in_flight)
