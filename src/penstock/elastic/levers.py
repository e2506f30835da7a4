"""Levers that need no more of an engine than its statistics and a way to set a number: the simulator has them, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.elastic.base import Controller
from penstock.elastic.batch_size import BatchSize, BatchStatistics
from penstock.elastic.climb import WaitingConcurrency, WaitingStatistics
from penstock.elastic.pilot import Lever, Period
from penstock.elastic.thread_level import ThreadState, ThreadStatistics
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool
from penstock.statistics import FlowStats, WorkerStats

HELD_BACK = 0.01
"""The part of a period for which sources may be held back by a flow that still keeps up."""
WAITED = 0.05
"""The part of a period for which sources are waited for, at least, where they are the limit."""
CROWDED = 0.5
"""The part of the batches that may be in a flow from which on it does not keep up any more, if it did: at times several
wait, by chance, where workers are busy for most of the time."""
SETTLED_PERIODS = 4
"""Periods without a change of the workers before anything else is judged: what it gains is then its own doing."""
CALM_PERIODS = 150
"""The same once the size of batches is settled: what waits then is for the workers to do."""


class WorkerEngine(Protocol):
    """An engine whose number of workers can be set."""

    @property
    def leaving(self) -> int:
        """How many workers were told to go and are still in an operator."""

    def set_workers(self, count: int) -> None:
        """Change the number of workers."""


def pooled(stats: FlowStats) -> list[WorkerStats]:
    """Return the workers that take what there is: those of a port of their own, or at rest, do not."""
    return [each for each in stats.workers if not each.own and each.state != "suspended"]


class WorkersLever(Lever):
    """The number of workers, by throughput (Streams)."""

    name, sets = "threads", "thread_level"

    def __init__(
        self,
        engine: WorkerEngine,
        controller: Controller[Any, ThreadStatistics],
        cpu_usage: Callable[[], float],
        processors: int,
    ) -> None:
        """`cpu_usage` tells how busy the machine was since the last call, 0 to 1."""
        self._engine, self.controller, self._processors, self.cpu_usage = engine, controller, processors, cpu_usage
        self.set_number = engine.set_workers

    def read(self, period: Period) -> ThreadStatistics | None:
        """Tell the throughput of all operators, how busy the machine is, and who has not left that should have.

        Nothing of a period that began with batches of another size: that is no doing of the workers.
        """
        usage = self.cpu_usage()
        if period.seconds <= 0 or not period.unchanged("batches", 2):
            return None
        done = period.done
        cores = done.computed / period.seconds if done.computed else None
        return ThreadStatistics(
            done.rate,
            usage,
            self._engine.leaving,
            keeps_up(period, isinstance(self.state, ThreadState) and self.state.supply is not None),
            cores,
            0.0 if cores is None else max(0.0, usage - cores / self._processors),
            batches=done.batches_in / period.seconds,
            work=done.worked / done.batches_out if done.batches_out > 0 else 0.0,
            at=period.now.at,
            seconds=period.seconds,
        )

    @property
    def searching(self) -> bool:
        """Whether levels are being compared; the published rules never say."""
        return isinstance(self.state, ThreadState) and self.state.searching


def keeps_up(period: Period, did: bool = False) -> bool:
    """Tell whether the sources were the limit.

    They were waited for, nothing held them back, and what waits in the flow is no more than is worked on, or is not
    much where it `did` keep up until now. A flow that is busy may have little waiting, too: what reads its sources
    drains full queues, or waits for the interpreter's lock.
    """
    # Sources have no input.
    held_back = sum(each.below_full for each in period.done.operators.values() if not each.queued)
    room = max(1 + len(period.now.workers), CROWDED * period.now.most_in_flight if did else 0)
    return (
        period.done.waited >= WAITED * period.seconds
        and held_back < HELD_BACK * period.seconds
        and period.now.in_flight <= room
    )


class PoolLever(Lever):
    """The number of workers by how busy they are (C-Stream), instead of by throughput.

    A worker that waits for the interpreter's lock, or for a processor, is in an operator and does nothing: more workers
    would only wait as well. What an operator waits for by itself, for an answer or a disk, is its work, and more
    workers do more of it. Both look alike from outside, but what an operator waits for by itself does not grow with the
    number of workers: per row it is no more than the least that was seen, which is seen where one worker is alone. And
    no worker waits for the lock, or for a processor, longer than others compute.
    """

    name, sets = "pool", "threads"

    def __init__(self, engine: WorkerEngine, controller: UtilizationPool, period: float = 0.0) -> None:
        """Workers are looked at over so many seconds, at least; the pilot's own periods may be shorter."""
        self.set_number, self.controller, self._period = engine.set_workers, controller, period
        self._since: FlowStats | None = None
        self._own_wait: dict[str, float] = {}
        """The least that each operator was seen to wait for a row, in seconds."""

    def read(self, period: Period) -> PoolStatistics | None:
        """Tell which part of the period each worker was in operators; those placed by hand are not the pool's."""
        since = self._since = self._since or period.before
        seconds = period.now.at - since.at
        if seconds <= 0 or seconds < self._period or not pooled(period.now):
            return None
        self._since, done = period.now, period.now.since(since)
        busy = [each.busy_seconds / seconds for each in pooled(done)]
        part = self._working(done, since, len(busy))
        return PoolStatistics(tuple(min(1.0, max(0.0, each)) * part for each in busy), period.now.at, done.rate)

    def _working(self, done: FlowStats, since: FlowStats, workers: int) -> float:
        """Return the part of the time in operators that was not spent waiting for the lock, or for a processor."""
        computed = waited = own = 0.0
        for name, each in done.operators.items():
            if name not in since.operators or not each.queued or each.rows_in <= 0:
                continue
            wait = each.blocked["wait"]
            least = self._own_wait[name] = min(self._own_wait.get(name, wait / each.rows_in), wait / each.rows_in)
            computed, waited, own = computed + each.cpu, waited + wait, own + each.rows_in * least
        others = max(0.0, workers * done.computed - computed)
        own = min(waited, max(own, waited - others))
        return (computed + own) / (computed + waited) if computed + waited > 0 else 1.0


class BatchLever(Lever):
    """The size of batches, once the number of workers has settled; for a latency target at once."""

    name, sets = "batches", "batch_rows"
    controller: BatchSize

    def __init__(
        self,
        set_rows: Callable[[int], None],
        get_rows: Callable[[], int],
        controller: BatchSize,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """With its first step the size is this controller's alone: `begin` tells who had it until then."""
        self.set_number, self._get_rows, self.controller, self._begin = set_rows, get_rows, controller, begin

    def read(self, period: Period) -> BatchStatistics | None:
        """Tell what a batch took, what came in and what waits; a source that gives less than a batch is no load."""
        done = period.done
        batches, came, rows = done.batches_out, done.batches_in, done.rows_in
        if min(batches, came, rows) <= 0 or period.seconds <= 0:
            return None
        wait = self.controller.target is None
        quiet, calm = SETTLED_PERIODS if wait else 0, self.controller.calm
        if calm is not None and self.state is not None and not calm.young(self.state.calm, period.now.at):
            quiet = CALM_PERIODS
        if quiet and not all(period.settled(each, quiet) for each in ("threads", "pool")):
            return None
        self._begin()
        size, workers = rows / came, sum(each.state != "suspended" for each in period.now.workers)
        waiting = period.now.in_flight * size
        work = done.worked / max(1, workers) / batches
        return BatchStatistics(size, work, rows / done.seconds, waiting, self._get_rows(), period.now.at)


class InFlightLever(Lever):
    """The rows in flight of one operator. It has a window of its own, so no other operator is affected."""

    sets = "in_flight"

    def __init__(self, operator: str, set_rows: Callable[[int], None], controller: WaitingConcurrency) -> None:
        self.name, self._operator = f"rows in flight of {operator}", operator
        self.set_number, self.controller = set_rows, controller

    def read(self, period: Period) -> WaitingStatistics | None:
        """Tell what a row waited and computed, and how many there were; nothing where none came."""
        done = period.done.operators.get(self._operator)
        if done is None or self._operator not in period.before.operators:
            return None
        # Row by row: batches are done in lumps, and what is counted then would be mostly noise.
        rows, seconds = done.begun, done.in_flight
        if rows <= 0 or period.seconds <= 0 or not period.unchanged("threads", 1):
            return None
        cpu = done.cpu / rows
        return WaitingStatistics(rows / period.seconds, max(0.0, seconds / rows - cpu), cpu)

    @property
    def searching(self) -> bool:
        """Whether numbers of rows are compared, so that looks should come soon."""
        return not self.state.levels.settled
