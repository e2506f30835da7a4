"""Steer a run on Spark between its epochs: what each may take in, and how it is run.

Each lever (`levers`, docs/elasticity.md) has one thing: the rows in flight of an operator that waits, the rows of an
epoch, the time between epochs, the executors, and then, once the rows of the next epoch are known, whether one task
runs it, the tasks of a stage, the table of an operator. They have their turns in this order, so that each sees what
the ones before have decided. What the user set, no controller changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.elastic.decisions import Decision, Journal
from penstock.elastic.pilot import Lever, NextEpoch, Period, Pilot
from penstock.operators.stateless import Default, PerRow
from penstock.spark.frames import is_streaming, takes_all
from penstock.spark.levers import (
    EpochRowsLever,
    EpochWaitLever,
    ExecutorsLever,
    OneTaskLever,
    ShardsLever,
    StageTasksLever,
    WaitingTasksLever,
    ahead_of,
)
from penstock.spark.session import Executors
from penstock.spark.stages import Stages, even_table, shard_count
from penstock.statistics import FlowStats

START_SECONDS = 2.0
"""What a Python worker takes to start, about: an epoch that one task computes in less does not wait for it."""


@dataclass(frozen=True)
class UserLimits:
    """What the user set."""

    tasks: int | None = None
    tables: dict[str, list[int]] = field(default_factory=dict)
    most_rows: int = 1_000_000
    every: float = 0.0
    latency: float | None = None


@dataclass(frozen=True)
class EpochSetup:
    """How to run the next epoch."""

    solo: bool
    tasks: tuple[int, ...]
    """The number of tasks of each stage."""
    tables: dict[str, list[int]]
    """For each keyed operator, the task of each shard; empty where one task has them all."""
    in_flight: dict[str, int]


class EpochPilot:
    """Choose how each epoch of a run is run, from what the ones before have shown."""

    def __init__(
        self,
        stages: Stages,
        limits: UserLimits,
        *,
        cores: int,
        executors: Executors | None,
        tables: dict[str, list[int]],
        epoch: int,
    ) -> None:
        """Go on after an epoch, with the tables that were committed with it."""
        self._stages, self._cluster, self._most_rows, self._every = stages, executors, limits.most_rows, limits.every
        self._done, self._at = FlowStats(), 0.0
        self._began: float | None = None
        plan, target = stages.plan, limits.latency
        keyed = [node for node in plan.keyed if shard_count(node) > 1]
        self._tables = {n.name: ShardsLever(n, stages.stage_of[n.name], tables.get(n.name)) for n in keyed}
        self._one_task = OneTaskLever()
        self._tasks = {stage: self._stage_lever(stage, target, tables) for stage in self._steered()}
        self._waits = [
            WaitingTasksLever(node.name, node.operator)
            for node in plan.nodes.values()
            if isinstance(node.operator, PerRow) and isinstance(node.operator.in_flight, Default)
        ]
        frames = [node.operator.reader.frame for node in plan.sources if is_streaming(node)]
        sources = [node.name for node in plan.sources]
        # What a batch of a streaming DataFrame takes in is up to its reader. It can wait to be cut, unless rows are
        # left over, or other sources have epochs meanwhile that it would wait for too.
        can_wait = not frames or (len(frames) == len(sources) and all(map(takes_all, frames)))
        self._rows = self._wait = None
        if target is not None and not frames:
            self._rows = EpochRowsLever(sources, limits.most_rows, target)
        if target is not None and can_wait and limits.every == 0:
            self._wait = EpochWaitLever(self._rows, target)
        fleet = None if executors is None else ExecutorsLever(executors, target, plan.shards)
        after = (*self._waits, self._rows, self._wait, fleet)
        self._after: list[Lever] = [lever for lever in after if lever is not None]
        """Those that have their turn after an epoch; the others have it before the next."""
        self._pilot = Pilot([*self._tables.values(), self._one_task, *self._tasks.values(), *self._after], epoch=epoch)

    def _steered(self) -> list[int]:
        """Return the stages whose tasks are steered.

        The first reads with one task per core, and sinks are sliced by their rows: neither is worth measuring.
        """
        return sorted({table.stage for table in self._tables.values()})

    def _stage_lever(self, stage: int, target: float | None, tables: dict[str, list[int]]) -> StageTasksLever:
        entries = [node.name for node in self._stages.entries(stage)]
        return StageTasksLever(
            stage,
            entries,
            # The stages of an epoch take turns: each gets its part of what an epoch may take.
            None if target is None else target / 2 / (self._stages.last + 1),
            [self._tables[name] for name in entries if name in self._tables],
            shards=self._stages.plan.shards,
            tasks=max((max(tables[name]) + 1 for name in entries if name in tables), default=None),
        )

    @property
    def journal(self) -> Journal:
        return self._pilot.journal

    @property
    def decisions(self) -> list[Decision]:
        return self.journal.decisions

    @property
    def epoch_rows(self) -> int:
        """Return how many rows the next epoch may take from each source."""
        return self._most_rows if self._rows is None else self._rows.each

    @property
    def every(self) -> float:
        """Return the seconds from the beginning of the last epoch to that of the next, at least."""
        return self._every if self._wait is None else float(self._wait.state.wait)

    def observe(self, done: FlowStats) -> None:
        """See an epoch, and choose what the next may take in."""
        self._done, self._at = done, done.at
        for table in self._tables.values():
            table.observe(done)
        period = Period(FlowStats(), done, epoch=done.epoch)
        for lever in self._after:
            self._pilot.turn(lever, period)

    def choose(
        self,
        limits: UserLimits,
        rows: int | None,
        cores: int,
        epoch: int,
        *,
        at: float | None = None,
        mixed: bool = False,
        ready: int | None = None,
    ) -> EpochSetup:
        """Choose how to run an epoch of so many rows (None where that is not known), which were taken at that time.

        A `mixed` epoch has rows of a DataFrame and rows that tasks read themselves, which no one task can do. Where
        workers are just being started, `ready` says how many tasks find theirs: a short epoch does not wait for more.
        """
        if ready is not None and rows is not None and rows * self._one_task.state.row_seconds < START_SECONDS:
            cores = min(cores, ready)
        done, self._done = self._done, FlowStats()
        self._at = self._at if at is None else at
        in_flight = {lever.operator: lever.rows for lever in self._waits}
        most = cores if self._cluster is None else self._cluster.most_tasks
        self._began = self._at if self._began is None else self._began
        ahead = NextEpoch(rows, cores, self._at, most, began=self._began)
        period = Period(FlowStats(), done, epoch=epoch, ahead=ahead)
        # On a cluster the one task would have to fetch the state of all others.
        if self._cluster is None and limits.tasks is None and not mixed:
            self._pilot.turn(self._one_task, period)
            if self._one_task.state.one:
                return EpochSetup(True, (1,) * (self._stages.last + 1), {}, in_flight)
        tasks = [cores] * (self._stages.last + 1)
        if limits.tasks is not None:
            tasks[1:] = [limits.tasks] * self._stages.last
        else:
            for stage, lever in self._tasks.items():
                self._pilot.turn(lever, period)
                tasks[stage] = lever.count(cores)
        period = replace(period, ahead=replace(ahead, tasks=tuple(tasks)))
        return EpochSetup(False, tuple(tasks), self._choose_tables(limits, period), in_flight)

    def _choose_tables(self, limits: UserLimits, period: Period) -> dict[str, list[int]]:
        chosen, ahead = {}, ahead_of(period)
        for number, node in enumerate(self._stages.plan.keyed):
            tasks = ahead.tasks[self._stages.stage_of[node.name]]
            fixed, lever = limits.tables.get(node.name), self._tables.get(node.name)
            if lever is None:
                # Operators of one shard go to different tasks, so that they can run side by side.
                chosen[node.name] = fixed or even_table(1, tasks, number)
                continue
            if fixed is not None:
                lever.set(list(fixed), tasks)
            self._pilot.turn(lever, period)
            fits = lever.table is not None and max(lever.table) < tasks  # not where its controller has failed
            chosen[node.name] = list(lever.table or ()) if fits else even_table(node.shards, tasks)
        return chosen
