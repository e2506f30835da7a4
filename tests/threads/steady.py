"""A made-up machine that runs a flow in threads, steered by the pilot and the levers of the engine, in made-up time.

A batch takes a fixed time and a time for each of its rows, of which a part may be waiting. All of it is noisy from
period to period, and now and then a period is several times as slow, as where another program takes the machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from penstock.elastic.batch_size import BatchWork, WorkDone
from penstock.elastic.decisions import HOLD, START, Decision
from penstock.elastic.pilot import Lever
from penstock.statistics import FlowStats, OperatorStats, WorkerStats
from penstock.threads.levers import FEWEST_ROWS, FIRST_ROWS, MOST_ROWS, WORK_SECONDS, batch_lever, workers_lever
from penstock.threads.pilot import PilotThread

NOT_CHANGES = (START, HOLD, "hot_shard", "latency_target")
"""What is logged and changes nothing."""
MOST_IN_FLIGHT = 64
POLL_SECONDS = 0.005
"""Rows that come in this time go together, while the flow keeps up."""


@dataclass(frozen=True)
class Work:
    """What a batch is, in seconds of one worker."""

    fixed: float = 0.0003
    per_row: float = 1e-5
    waits: float = 0.0
    """The part of it that is waiting, and takes no core."""
    released: float = 1.0
    """The part of what is left that can be computed beside others: the rest holds the interpreter's lock."""


def noisy(chance: random.Random, noise: float, hiccups: float) -> float:
    """Return how many times as long as usual work takes."""
    return max(0.3, chance.gauss(1, noise)) * (5 if chance.random() < hiccups else 1)


@dataclass
class SteadyThreads:
    """Run periods of a flow with one operator; `rate` is what the sources give, None for as much as is taken."""

    rate: Callable[[float], float] | None = None
    work: Work = field(default_factory=Work)
    noise: float = 0.2
    """The standard deviation of what a period's work takes, as a part of it."""
    hiccups: float = 0.002
    """The part of the periods in which everything takes five times as long."""
    cores: int = 4
    target: float | None = None
    seed: int = 0
    others: Callable[[float], float] = lambda at: 0.0
    """The part of the cores that other programs keep busy."""

    leaving = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.workers, self.waiting = 1, 0.0
        # Before the first period ends, the engine has looked at what rows take.
        first = WorkDone(10_000, self.seconds(10_000))
        self.rows, _ = BatchWork(FEWEST_ROWS, MOST_ROWS, FIRST_ROWS, WORK_SECONDS).step(FIRST_ROWS, first)
        self.usage = 0.0
        self.stats = FlowStats(
            operators={"in": OperatorStats(name="in", kind="source"), "work": OperatorStats(name="work", queued=(0,))},
            workers=(WorkerStats(0, "idle", None, 0.0, 0.0),),
            most_in_flight=MOST_IN_FLIGHT,
        )
        found: list[Lever] = [
            workers_lever(self, target=self.target, cpu_usage=lambda: self.usage),  # type: ignore[arg-type]
            batch_lever(self.set_rows, lambda: self.rows, self.target),
        ]
        self.pilot = PilotThread(lambda: self.stats, found)
        self.log: list[Decision] = []
        self._known = 0

    def set_workers(self, count: int) -> None:
        self.workers = count

    def set_rows(self, rows: int) -> None:
        self.rows = rows

    def run(self, until: float) -> SteadyThreads:
        """Run periods until that time."""
        while self.stats.at < until:
            self._period(self.pilot.wait)
        return self

    def changes(self, since: float = 0.0) -> list[tuple[float, Decision]]:
        """Return what was changed after a time, with the time."""
        return [(at, line) for line in self.log if line.what not in NOT_CHANGES and (at := line.time or 0.0) >= since]

    def seconds(self, rows: float) -> float:
        return self.work.fixed + self.work.per_row * rows

    def _period(self, seconds: float) -> None:
        """Let a period pass: what comes is worked on as far as that can be, and the pilot decides."""
        work, before = self.work, self.stats
        computes = 1 - work.waits
        locked = computes * (1 - work.released)
        # The workers' seconds of work that a second has: each of them needs a core, or the lock, for a part of it.
        cores = self.cores * (1 - self.others(before.at))
        at_once = min(self.workers, cores / computes if computes else 1e9, 1 / locked if locked else 1e9)
        speed = at_once / noisy(self.chance, self.noise, self.hiccups)
        rate = None if self.rate is None else self.rate(before.at)
        size, busy = float(self.rows), 1.0
        if rate is None:
            batches, full = speed / self.seconds(size) * seconds, 0.9 * seconds
        else:
            spare = speed - rate * work.per_row
            size = min(size, max(1.0, rate * POLL_SECONDS, rate * work.fixed / spare)) if spare > 0 else size
            most = speed / self.seconds(size) * seconds
            there = (self.waiting + rate * seconds) / size
            batches, full = min(most, there), 0.9 * seconds if there > most else 0.0
            self.waiting = (there - batches) * size
            busy = batches / most
        queue = MOST_IN_FLIGHT if full else min(MOST_IN_FLIGHT, self._queue(busy))
        spent = busy * seconds * at_once
        done = round(before.batches_out + batches)
        computed = spent * computes
        self.usage = min(1.0, computed / seconds / self.cores + self.others(before.at))
        operators = before.operators
        source, station = operators["in"], operators["work"]
        rows = station.rows_in + batches * size
        self.stats = replace(
            before,
            at=before.at + seconds,
            seconds=before.at + seconds,
            rows_in=round(rows),
            batches_in=done + queue,
            batches_out=done,
            operators={
                "in": replace(source, below_full=source.below_full + full),
                "work": replace(station, rows_in=rows, wall=station.wall + spent, cpu=station.cpu + computed),
            },
            waited=before.waited + (1 - busy) * seconds,
            computed=before.computed + computed,
            workers=tuple(WorkerStats(each, "busy", "work", 0.0, 0.0) for each in range(self.workers)),
        )
        self.pilot.step(self.stats)
        lines, self._known = self.pilot.journal.decisions_since(self._known)
        self.log += lines

    def _queue(self, busy: float) -> int:
        """Return how many batches are inside, by chance: few where workers are idle, many where they hardly are."""
        inside = sum(self.chance.random() < busy for _ in range(self.workers))
        # Of a queue that all workers empty, one more waits as often as all of them are busy.
        while inside < MOST_IN_FLIGHT and self.chance.random() < busy**self.workers:
            inside += 1
        return inside
