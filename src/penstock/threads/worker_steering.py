"""Steer the workers, the batches that they take, and the rows that wait in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from typing import Any

from penstock.elastic.base import Action, Controller
from penstock.elastic.batch_size import BatchSize, BatchStatistics, BatchWork, WorkDone
from penstock.elastic.levels import SETTLED
from penstock.elastic.pilot import Period
from penstock.elastic.thread_level import ThreadLevel, ThreadState, ThreadStatistics
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool
from penstock.elastic.waiting import WaitingConcurrency, WaitingState, WaitingStatistics
from penstock.operators.stateless import Default, PerRow, most_in_flight
from penstock.plan.plan import Plan
from penstock.statistics import FlowStats
from penstock.threads.element import Element
from penstock.threads.waiting_station import WaitingStation

MOST_WORKERS = max(16, os.cpu_count() or 1)
"""Operators that wait gain from more workers than there are processors; others show by themselves that they do not."""

HELD_BACK = 0.01
"""The part of a period for which sources may be held back by a flow that still keeps up."""
WAITED = 0.05
"""The part of a period for which sources are waited for, at least, where they are the limit."""


class ThreadSteering:
    """Set the number of workers of the dynamic model, by throughput (Streams)."""

    name = "threads"

    def __init__(
        self,
        element: Element,
        *,
        most: int = MOST_WORKERS,
        target: float | None = None,
        cpu_usage: Callable[[], float] | None = None,
        controller: Controller[Any, ThreadStatistics] | None = None,
    ) -> None:
        """A `target` is how long a batch may take, in seconds; without a `controller` it is Penstock's own."""
        self._element = element
        self._cpu_usage = cpu_usage or machine_usage()
        # What waits in queues at one level may be worked off for a good part of the next period, and a machine's
        # speed drifts, which three samples in a row need not show.
        self.controller: Controller[Any, ThreadStatistics] = controller or ThreadLevel(
            high=most, initial=1, skipped=1, least_noise=0.05, target=target
        )

    def measure(self, period: Period) -> ThreadStatistics | None:
        """Tell the throughput of all operators, how busy the machine is, and who has not left that should have.

        Nothing of a period that began with batches of another size: that is no doing of the workers.
        """
        usage = self._cpu_usage()
        if period.seconds <= 0 or not period.unchanged("batches", 2):
            return None
        done = period.done
        cores = done.computed / period.seconds
        elsewhere = max(0.0, usage - cores / (os.cpu_count() or 1))
        return ThreadStatistics(
            done.rate,
            usage,
            self._element.leaving,
            keeps_up(period),
            cores,
            elsewhere,
            batches=done.batches_in / period.seconds,
            work=done.worked / done.batches_out if done.batches_out > 0 else 0.0,
        )

    def searching(self, state: Any) -> bool:
        """Tell whether levels are being compared; the published rules never say."""
        return isinstance(state, ThreadState) and state.searching

    def act(self, action: Action) -> None:
        if action.what == "thread_level" and isinstance(action.after, int):
            self._element.set_workers(action.after)


def keeps_up(period: Period) -> bool:
    """Tell whether the sources were the limit.

    They were waited for, nothing held them back, and what waits in the flow is no more than is worked on. A flow that
    is busy may have little waiting, too: whoever reads its sources drains full queues, or waits for the
    interpreter's lock.
    """
    # Sources have no input.
    held_back = sum(each.below_full for each in period.done.operators.values() if not each.queued)
    return (
        period.done.waited >= WAITED * period.seconds
        and held_back < HELD_BACK * period.seconds
        and period.now.in_flight <= 1 + len(period.now.workers)
    )


def machine_usage() -> Callable[[], float]:
    """Return a function that tells how busy the machine was since the last call, 0 to 1; 0 where that is not known."""
    last = _ticks()

    def usage() -> float:
        nonlocal last
        now, before = _ticks(), last
        last = now
        total = now[1] - before[1]
        return 1 - (now[0] - before[0]) / total if total > 0 else 0.0

    return usage


def _ticks() -> tuple[int, int]:
    """Return the idle ticks of all processors, and all ticks."""
    if not os.path.exists("/proc/stat"):
        return 0, 0
    with open("/proc/stat") as file:
        fields = [int(value) for value in file.readline().split()[1:]]
    return fields[3] + fields[4], sum(fields[:8])


PERIOD = 10.0
"""Seconds over which workers are looked at, as in C-Stream; the pilot's own periods are shorter."""


class PoolSteering:
    """Set the number of workers of the dynamic model by how busy they are (C-Stream), instead of by throughput.

    A worker that waits for the interpreter's lock, or for a processor, is in an operator and does nothing: more workers
    would only wait as well. What an operator waits for by itself, for an answer or a disk, is its work, and more
    workers do more of it. Both look alike from outside, but what an operator waits for by itself does not grow with the
    number of workers: per row it is no more than the least that was seen, which is seen where one worker is alone. And
    nobody waits for the lock, or for a processor, longer than others compute.
    """

    name = "pool"

    def __init__(self, element: Element, *, most: int = MOST_WORKERS, period: float | None = None) -> None:
        self._element, self._period = element, PERIOD if period is None else period
        self._since: FlowStats | None = None
        self._own_wait: dict[str, float] = {}
        """The least that each operator was seen to wait for a row, in seconds."""
        self.controller = UtilizationPool(high=most, initial=1)

    def measure(self, period: Period) -> PoolStatistics | None:
        """Tell which part of the period each worker was in operators; those placed by hand are not the pool's."""
        since = self._since = self._since or period.before
        seconds = period.now.at - since.at
        if seconds <= 0 or seconds < self._period or all(each.own for each in period.now.workers):
            return None
        self._since, done = period.now, period.now.since(since)
        busy = [each.busy_seconds / seconds for each in done.workers if not each.own]
        part = self._working(done, since, len(busy))
        return PoolStatistics(tuple(min(1.0, max(0.0, each)) * part for each in busy))

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

    def act(self, action: Action) -> None:
        if action.what == "threads" and isinstance(action.after, int):
            self._element.set_workers(action.after)


SETTLED_PERIODS = 4
SHORTEST_SECONDS = 0.01
"""What a batch should take, at least, where there is no target: rows that come seldom wait for no others anyway, and
when many come at once, the size must not have far to go."""
LONGEST_SECONDS = 0.25
"""What a batch may take, at most, when it is made larger to catch up: no batch has fixed costs that are worth more."""


class BatchSteering:
    """Set the size of batches, once the number of workers has settled; for a latency target at once."""

    name = "batches"

    def __init__(
        self,
        set_rows: Callable[[int], None],
        get_rows: Callable[[], int],
        initial: int,
        target: float | None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """With its first step the size is this controller's alone: `begin` tells who had it until then."""
        self._set_rows, self._get_rows, self._begin = set_rows, get_rows, begin
        longest = LONGEST_SECONDS if target is None else min(LONGEST_SECONDS, target / 2)
        self.controller = BatchSize(
            low=FEWEST_ROWS,
            high=MOST_ROWS,
            initial=initial,
            target=target,
            longest=longest,
            shortest=SHORTEST_SECONDS if target is None else 0.0,
        )

    def measure(self, period: Period) -> BatchStatistics | None:
        """Tell what a batch took, what came in and what waits; a source that gives less than a batch is no load."""
        done = period.done
        batches, came, rows = done.batches_out, done.batches_in, done.rows_in
        workers = max(1, len(period.now.workers))
        if min(batches, came, rows) <= 0 or period.seconds <= 0:
            return None
        wait = self.controller.target is None
        if wait and not all(period.settled(each, SETTLED_PERIODS) for each in ("threads", "pool")):
            return None
        self._begin()
        size = rows / came
        waiting = period.now.in_flight * size
        return BatchStatistics(size, done.worked / workers / batches, rows / done.seconds, waiting, self._get_rows())

    def act(self, action: Action) -> None:
        if action.what == "batch_rows" and isinstance(action.after, int):
            self._set_rows(action.after)


class WaitSteering:
    """Set the rows in flight of one operator. It has a window of its own, so nobody else's business is touched."""

    def __init__(self, element: Element, operator: str) -> None:
        self.name, self._operator, self._element = f"rows in flight of {operator}", operator, element
        station = self._station()
        assert station is not None
        begins, most = int(station.in_flight), most_in_flight(station.is_async)
        self.controller = WaitingConcurrency(initial=begins, largest_guess=begins, high=most)

    def _station(self) -> WaitingStation | None:
        found = self._element.stations.get(self._operator)
        return found if isinstance(found, WaitingStation) else None

    def measure(self, period: Period) -> WaitingStatistics | None:
        """Tell what a row waited and computed, and how many there were; nothing where none came."""
        station = self._station()
        done = period.done.operators.get(self._operator)
        if station is None or done is None or self._operator not in period.before.operators:
            return None
        # Row by row: batches are done in lumps, and what is counted then would be mostly noise.
        rows, seconds = done.begun, done.in_flight
        if rows <= 0 or period.seconds <= 0 or not period.unchanged("threads", 1):
            return None
        cpu = done.cpu / rows
        return WaitingStatistics(rows / period.seconds, max(0.0, seconds / rows - cpu), cpu)

    def searching(self, state: WaitingState) -> bool:
        """Tell whether numbers of rows are compared, so that looks should come soon."""
        return state.levels.phase != SETTLED

    def act(self, action: Action) -> None:
        """Have more rows in flight, or fewer; those that are stay."""
        station = self._station()
        if action.what == "in_flight" and isinstance(action.after, int) and station is not None:
            station.set_in_flight(action.after)


def waiting_operators(plan: Plan) -> list[str]:
    """Return the operators that wait and may be steered."""
    return [
        name
        for name, node in plan.nodes.items()
        if isinstance(node.operator, PerRow) and isinstance(node.operator.in_flight, Default)
    ]


FIRST_ROWS = 32
"""Rows of the first batches: so few that expensive ones are soon known to be expensive."""
FEWEST_ROWS = 16
"""What a batch costs beside its rows is then little for each, even where what rows take was measured far too high."""
MOST_ROWS = 16_384
"""So many batches may be in the flow at once that larger ones would take more memory than they save time."""
WORK_SECONDS = 0.04
"""The work that a batch should be, by the clock, and so with the time in which its workers wait for each other."""
MOST_COLUMN_ROWS = 65_536
COLUMN_SECONDS = 0.2
"""The same where rows are taken by columns: a key is looked up, and its state written, once in a batch."""
PIECES = 32
"""Batches that are made of one while the flow keeps up: about a millisecond of work each, or a row."""
CALM_POLLS = 4
"""How often sources may have rows, one time after the other, before the flow counts as one that does not keep up: rows
that came together after a hiccup need not wait for each other either."""
FIRST_LOOK = 4
"""Batches before the first look; then it is twice as many each time."""


class Sizing:
    """Say when to look at the size of batches, and what a controller is to see; rows that wait are no work.

    Looks come soon after the start and then more and more seldom. They are logged like all other decisions.
    """

    name = "first batches"

    def __init__(self, waiting: Container[str] = (), columns: bool = False) -> None:
        """With `columns` some operator keeps state and takes rows by columns: what it does for a key counts most."""
        most, work = (MOST_COLUMN_ROWS, COLUMN_SECONDS) if columns else (MOST_ROWS, WORK_SECONDS)
        self.controller = BatchWork(FEWEST_ROWS, most, FIRST_ROWS, work)
        self._waiting, self._next, self._last = waiting, FIRST_LOOK, FlowStats()

    def is_due(self, batches: int) -> bool:
        """Tell whether it is time for another look."""
        return batches >= self._next

    def looked(self, seen: FlowStats) -> None:
        """Note what was seen at a look that was taken."""
        self._next, self._last = 2 * seen.batches_in, seen

    def measure(self, seen: FlowStats) -> WorkDone:
        """Tell what was done since the last look."""
        done = seen.since(self._last).operators
        return WorkDone(
            max((each.rows_in for each in done.values()), default=0),
            sum(each.wall for name, each in done.items() if name not in self._waiting),
        )
