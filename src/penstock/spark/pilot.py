"""Steer a run on Spark between its epochs: measure, let the controllers decide, act, and keep every decision.

Each controller owns one thing (docs/elasticity.md): the rows in flight of an operator that waits, the rows of an epoch,
the time between epochs, the executors, and then, once the rows of the next epoch are known, whether one task runs it,
the tasks of a level, the table of an operator. They decide in this order, so that each sees what the ones before have
decided. What the user set is nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.elastic.decisions import Decision
from penstock.elastic.journal import Journal
from penstock.spark.executors import Executors
from penstock.spark.frames import is_streaming, takes_all
from penstock.spark.stages import Stages
from penstock.spark.steering.executors import ExecutorSteering
from penstock.spark.steering.intake import Intake
from penstock.spark.steering.tables import Tables
from penstock.spark.steering.tasks import Tasks
from penstock.spark.steering.waits import WaitingOperators
from penstock.statistics import FlowStats


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
        self._journal = Journal()
        self._done: FlowStats | None = None
        journal, target = self._journal, wishes.latency
        self._tasks = Tasks(stages, journal, epoch, cores=cores, target=target)
        self._tasks.restore(tables)
        self._tables = Tables(stages, journal, epoch, tables)
        self._waits = WaitingOperators(stages.plan, journal, epoch)
        frames = [node.operator.reader.frame for node in stages.plan.sources if is_streaming(node)]  # type: ignore[attr-defined]
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
    def journal(self) -> Journal:
        """Return what was decided, and why."""
        return self._journal

    @property
    def decisions(self) -> list[Decision]:
        """Return what was decided, oldest first."""
        return self._journal.decisions

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
