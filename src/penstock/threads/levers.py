"""The levers of the threads engine: workers and batches, rows in flight, replicas, shards and who runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any

from penstock.elastic.base import Action, Controller
from penstock.elastic.batch_size import BatchSize, BatchWork, WorkDone
from penstock.elastic.climb import GRAIN, WaitingConcurrency
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation, ExecutorLoad
from penstock.elastic.costs import Calm
from penstock.elastic.levers import SETTLED_PERIODS, BatchLever, InFlightLever, PoolLever, WorkersLever
from penstock.elastic.pilot import Lever, Period
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, new_places, own_rebinding
from penstock.elastic.replicas import OperatorStatistics, Replicas, ReplicaStatistics
from penstock.elastic.shard_balance import HotKey, ShardKeys, ShardStatistics, calm_balance, moves
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics
from penstock.elastic.utilization_pool import UtilizationPool
from penstock.kernels.shards import HotKeys
from penstock.operators.stateless import Default, PerRow, most_in_flight
from penstock.order.threads import gil_enabled
from penstock.plan.plan import Plan
from penstock.statistics import FlowStats, OperatorStats
from penstock.threads.element import Element
from penstock.threads.models.bound import Bound
from penstock.threads.partitioned_station import PartitionedStation
from penstock.threads.replicas import MOST_REPLICAS
from penstock.threads.stations import Station
from penstock.threads.waiting_stations import WaitingStation

PROCESSORS = os.cpu_count() or 1
MOST_WORKERS = max(16, PROCESSORS)
"""Operators that wait gain from more workers than there are processors; others show by themselves that they do not."""
POOL_SECONDS = 10.0
"""Seconds over which workers are looked at, as in C-Stream."""
SHORTEST_SECONDS = 0.01
"""What a batch should take, at least, where there is no target: rows that come seldom wait for no others anyway, and
when many come at once, the size must not have far to go."""
LONGEST_SECONDS = 0.25
"""What a batch may take, at most, when it is made larger to catch up: no batch has fixed costs that are worth more."""
BATCH_SETTLING = 10.0
"""Seconds in which the size of batches is found, once the workers are: the first batches had about the right one."""
FIRST_ROWS = 32
"""Rows of the first batches: so few that expensive ones are soon known to be expensive."""
FEWEST_ROWS = 16
"""What a batch costs beside its rows is then little for each, even where what rows take was measured far too high."""
MOST_ROWS = 16_384
"""So many batches may be in the flow at once that larger ones would take more memory than they save time."""
WORK_SECONDS = 0.04
"""The work that a batch should be, by the clock, and so with the time in which its workers wait for each other."""
MOST_COLUMN_ROWS = 32_768
COLUMN_SECONDS = 0.05
"""The same where rows are taken by columns: a key is looked up once in a batch. Larger ones leave the cache."""
MOST_SHARING = 2
"""Workers for which batches are larger, where they run at once: a part of a batch costs as much however small it is."""
PIECES = 32
"""Batches that are made of one while the flow keeps up: about a millisecond of work each, or a row."""
CALM_POLLS = 4
"""How often sources may have rows, one time after the other, before the flow counts as one that does not keep up: rows
that came together after a hiccup need not wait for each other either."""
FED_POLLS = CALM_POLLS + PIECES.bit_length() - 1
"""How often they have had rows when batches are whole."""
ROWS_AHEAD = 8
"""Batches of one row in flight for each worker, at most: some wait for their keys, and so few are soon worked off."""
FIRST_LOOK = 4
"""Batches before the first look; then it is twice as many each time."""


def workers_lever(
    element: Element,
    *,
    most: int = MOST_WORKERS,
    target: float | None = None,
    cpu_usage: Callable[[], float] | None = None,
    controller: Controller[Any, ThreadStatistics] | None = None,
) -> WorkersLever:
    """Return what finds the number of workers by throughput; a `target` is how long a batch may take, in seconds."""
    # What waits in queues at one level may be worked off for a good part of the next period, and a machine's speed
    # drifts, which three samples in a row need not show.
    own = ThreadLevel(high=most, initial=1, skipped=1, least_noise=0.05, target=target, calm=Calm())
    return WorkersLever(element, controller or own, cpu_usage or machine_usage(), PROCESSORS)


def pool_lever(element: Element, *, most: int = MOST_WORKERS, period: float | None = None) -> PoolLever:
    """Return what finds the number of workers by how busy they are."""
    return PoolLever(
        element, UtilizationPool(high=most, initial=1, calm=Calm()), POOL_SECONDS if period is None else period
    )


def batch_lever(
    set_rows: Callable[[int], None],
    get_rows: Callable[[], int],
    target: float | None,
    begin: Callable[[], None] = lambda: None,
) -> BatchLever:
    """Return what finds the size of batches; a `target` is in seconds."""
    longest = LONGEST_SECONDS if target is None else min(LONGEST_SECONDS, target / 2)
    shortest = SHORTEST_SECONDS if target is None else 0.0
    controller = BatchSize(
        FEWEST_ROWS,
        MOST_ROWS,
        get_rows(),
        target,
        longest=longest,
        shortest=shortest,
        calm=Calm(settling=BATCH_SETTLING),
    )
    return BatchLever(set_rows, get_rows, controller, begin)


def in_flight_lever(element: Element, operator: str) -> InFlightLever:
    """Return what finds the rows in flight of an operator that waits."""

    def station() -> WaitingStation | None:
        found = element.stations.get(operator)
        return found if isinstance(found, WaitingStation) else None

    def set_rows(rows: int) -> None:
        if (there := station()) is not None:
            there.set_in_flight(rows)

    own = station()
    assert own is not None
    rows, most = int(own.in_flight), most_in_flight(own.is_async)
    return InFlightLever(
        operator, set_rows, WaitingConcurrency(initial=rows, largest_guess=rows, high=most, grain=GRAIN)
    )


def pieces(fed: int) -> int:
    """Return how many batches to make of one, after so many polls in a row that brought rows.

    Half as many each time once the flow does not keep up: where it soon does again, few rows have waited for others.
    """
    return max(1, PIECES >> max(0, fed - CALM_POLLS))


def most_small(workers: int, rows: int) -> int:
    """Return how many batches of `rows` that are not full may be in flight: one for each worker.

    Where a row is a batch it gains nothing from waiting for others, and those of a key that has a worker must not keep
    the next one from a worker that has none.
    """
    return ROWS_AHEAD * workers if workers > 1 and rows == 1 else max(1, workers)


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


def waiting_operators(plan: Plan) -> list[str]:
    """Return the operators that wait and may be steered."""
    return [
        name
        for name, node in plan.nodes.items()
        if isinstance(node.operator, PerRow) and isinstance(node.operator.in_flight, Default)
    ]


class FirstBatches(Lever):
    """The size of batches until whole periods tell more, looked at after some batches, and then more and more seldom.

    Rows that wait are no work.
    """

    name, sets = "first batches", "batch_rows"

    def __init__(self, set_rows: Callable[[int], None], waiting: Container[str] = (), columns: bool = False) -> None:
        """With `columns` some operator keeps state and takes rows by columns: what it does for a key counts most."""
        most, work = (MOST_COLUMN_ROWS, COLUMN_SECONDS) if columns else (MOST_ROWS, WORK_SECONDS)
        self.controller = BatchWork(FEWEST_ROWS, most, FIRST_ROWS, work)
        self.set_number, self._waiting, self._next, self._last = set_rows, waiting, FIRST_LOOK, FlowStats()

    def is_due(self, batches: int) -> bool:
        """Tell whether it is time for another look."""
        return batches >= self._next

    @property
    def looked(self) -> int:
        """How many batches had come in at the last look: none of them has the size that was set then."""
        return self._last.batches_in

    def period(self, now: FlowStats) -> Period:
        """Return the time since the last look."""
        return Period(self._last, now)

    def read(self, period: Period) -> WorkDone:
        self._next, self._last = 2 * period.now.batches_in, period.now
        done = period.done.operators
        return WorkDone(
            max((each.rows_in for each in done.values()), default=0),
            sum(each.wall for name, each in done.items() if name not in self._waiting),
            1 if gil_enabled() else min(MOST_SHARING, max(1, len(period.now.workers))),
        )


Ask = Callable[[Callable[[], int]], object]
"""How to ask for a change that whoever brings batches in makes, between two of them."""


class _CountLever(Lever):
    """Set the number of replicas of each operator that has some, but for those that are `left_alone`."""

    def __init__(self, element: Element, ask: Ask, left_alone: Collection[str]) -> None:
        self._element, self._ask, self._left_alone = element, ask, left_alone

    def steered(self, period: Period) -> list[OperatorStats]:
        """Return what the operators did in a period, if they were there at its beginning."""
        there = {name: each for name, each in period.done.operators.items() if name in period.before.operators}
        return [each for name, each in there.items() if each.replicas and name not in self._left_alone]

    def act(self, action: Action) -> None:
        """Have as many replicas, as far as there are partitions; a target that cannot be met is only reported."""
        station = self._element.stations.get(action.target)
        if action.what == self.name and isinstance(action.after, int) and station and station.squad is not None:
            target, count = action.target, max(1, min(action.after, station.squad.most))
            self._ask(lambda: self._element.set_replicas(target, count))


class ReplicasLever(_CountLever):
    """As many replicas as workers, while their number is searched; then the bottleneck gets more."""

    name = "replicas"

    def __init__(
        self, element: Element, ask: Ask, *, most: int = MOST_REPLICAS, left_alone: Collection[str] = ()
    ) -> None:
        super().__init__(element, ask, left_alone)
        self.controller = Replicas(high=most, calm=Calm())

    def read(self, period: Period) -> ReplicaStatistics | None:
        """Tell how congested the queues were, before and after each operator with replicas."""
        if period.seconds <= 0:
            return None
        settled = all(period.settled(each, SETTLED_PERIODS) for each in ("threads", "pool"))
        done = period.done.operators
        stations = dict(self._element.stations)  # as of one moment: a query may go, and its operators with it
        steered = (each for each in self.steered(period) if each.name in stations)
        found = tuple(_operator(stations[each.name], each, done, period.seconds) for each in steered)
        if not found:
            return None
        return ReplicaStatistics(found, workers=None if settled else self._element.model.active, at=period.now.at)


def _operator(
    station: Station, done: OperatorStats, all_: Mapping[str, OperatorStats], seconds: float
) -> OperatorStatistics:
    """Tell how congested the queues before and after one operator were."""
    busy = [each.seconds for each in done.replicas]
    below = [
        _part(all_[link.target.station.name].full[link.target.index], seconds)
        for link in station.links
        if link.target.station.name in all_
    ]
    partitions = sum(len(each.partitions) for each in done.replicas)
    return OperatorStatistics(
        done.name,
        tuple(_part(each.full, seconds) for each in done.replicas),
        max(below, default=0.0),
        done.rows_in / seconds,
        min(1.0, sum(busy) / len(busy) / seconds),
        done.kind,
        shards=max(1, partitions),
        inputs=len(station.ports),
        outputs=len(station.node.operator.outputs),
    )


def _part(full: float, seconds: float) -> float:
    """Return which part of the period a queue was full."""
    return min(1.0, max(0.0, full) / seconds)


class CoresLever(_CountLever):
    """As many replicas as a latency target needs: Elasticutor's allocation of cores.

    For the model in which every input, and every replica, has a thread of its own: an operator with replicas is an
    executor, a replica one of its cores, a batch what arrives. As many replicas are shared out as keep the processors
    busy: threads that wait need none meanwhile. Where workers are shared, they are one executor, and `threads` finds
    how many.
    """

    name = "cores"

    def __init__(
        self,
        element: Element,
        ask: Ask,
        target: float,
        *,
        processors: int = PROCESSORS,
        left_alone: Collection[str] = (),
    ) -> None:
        """`target` is in seconds."""
        super().__init__(element, ask, left_alone)
        self._processors, self.controller = processors, CoreAllocation(target=target)

    def read(self, period: Period) -> AllocationStatistics | None:
        """Tell the batches that came to each operator and what one replica can do; None before there is a measure."""
        if period.seconds <= 0:
            return None
        done, came = self.steered(period), period.done.batches_in
        loads = tuple(load for each in done if (load := _load(each, period.seconds)) is not None)
        if not loads or len(loads) < len(done) or not came:
            return None
        return AllocationStatistics(came / period.seconds, loads, max(self._there_are(done), len(loads)))

    def _there_are(self, done: Sequence[OperatorStats]) -> int:
        """Return how many threads keep the processors busy, of which each computes for a part of its time."""
        worked = sum(each.wall for each in done)
        computed = sum(each.cpu for each in done)
        part = min(1.0, computed / worked) if worked > 0 else 1.0
        return max(self._processors, int(min(MOST_WORKERS, self._processors / part if part > 0 else MOST_WORKERS)))


def _load(done: OperatorStats, seconds: float) -> ExecutorLoad | None:
    """Return what came to an operator in a period; None where nothing did."""
    worked = sum(each.seconds for each in done.replicas)
    if done.batches <= 0 or worked <= 0:
        return None
    return ExecutorLoad(done.name, done.batches / seconds, done.batches / worked, len(done.replicas))


class PartitionsLever(Lever):
    """Move partitions of one operator between its replicas. How many replicas there are is not its business."""

    def __init__(self, element: Element, ask: Ask, operator: str, named: bool = False) -> None:
        """Hot keys may be `named`."""
        self._element, self._ask, self._operator, self._named = element, ask, operator, named
        self.name = f"shards of {operator}"
        self.controller = calm_balance()
        station = element.stations.get(operator)
        if isinstance(station, PartitionedStation):
            station.hot = HotKeys(named)

    def read(self, period: Period) -> ShardStatistics | None:
        """Tell the seconds that each partition took, and who has it; nothing while replicas come and go."""
        station = self._element.stations.get(self._operator)
        done = period.done.operators.get(self._operator)
        if not isinstance(station, PartitionedStation) or done is None:
            return None
        sampled, station.hot = station.hot or HotKeys(), HotKeys(self._named)
        loads = tuple(max(0.0, seconds) for _, seconds in done.shards.values())
        replicas, table = len(station.squad.hired), station.squad.table
        if replicas < 2 or not all(period.unchanged(each, 1) for each in ("replicas", "cores")) or not sum(loads):
            return None
        # Only the busiest can turn out to be hot.
        busiest = sorted(range(len(loads)), key=loads.__getitem__, reverse=True)[:replicas]
        keys = tuple(ShardKeys(each, tuple(HotKey(*pair) for pair in sampled.hottest(each))) for each in busiest)
        return ShardStatistics(loads, table, replicas, (), keys, operator=self._operator, at=period.now.at)

    def act(self, action: Action) -> None:
        """Send a label after each partition that moves; a hot one is only reported."""
        for table in action.tables:
            self._ask(lambda after=table.tasks: self._move(after))  # type: ignore[misc]

    def _move(self, after: tuple[int, ...]) -> int:
        station = self._element.stations.get(self._operator)
        if not isinstance(station, PartitionedStation):
            return 0
        moving = moves(station.squad.table, after)
        for partition, replica in moving:
            self._element.move_partition(self._operator, partition, replica)
        return len(moving)


class BindingLever(Lever):
    """Give operators, and replicas of operators, to other workers. It owns no numbers, only places."""

    name = "rebinding"

    def __init__(self, element: Element, controller: Controller[Any, BindingStatistics] | None = None) -> None:
        self._element = element
        self.controller: Controller[Any, BindingStatistics] = controller or own_rebinding()

    def read(self, period: Period) -> BindingStatistics | None:
        """Tell what came to each operator, what waits for it and what a batch costs it."""
        model = self._element.model
        if not isinstance(model, Bound):
            return None
        bindings = model.bindings()
        waiting = self._waiting(period.now)
        loads = []
        for (label, came, spent), (_, batches, seconds) in zip(_done(period.done), _done(period.now), strict=True):
            # An operator that did nothing in the period costs what it did before.
            cost = spent / came if came else seconds / batches if batches else 0.0
            if label in bindings:
                loads.append(OperatorLoad(label, bindings[label], waiting.get(label, 0), cost, came))
        return BindingStatistics(model.active, tuple(loads), period.now.at)

    def _waiting(self, now: FlowStats) -> dict[str, int]:
        """Return how many batches have left all operators above each operator, and not the operator."""
        batches = {name: each.batches for name, each in now.operators.items()}
        found = {}
        for name, station in list(self._element.stations.items()):
            above = [batches[port.node] for port in station.node.inputs if port.node in batches]
            if above and name in batches:
                found[name] = max(0, min(above) - batches[name])
        return found

    def act(self, action: Action) -> None:
        """Rebind an operator; its worker passes it on between two batches."""
        model = self._element.model
        # An operator may have gone with its query since it was measured: then there is nothing to do.
        if isinstance(model, Bound):
            for operator, worker in new_places(action):
                model.rebind(operator, worker)


def _done(stats: FlowStats) -> Iterator[tuple[str, int, float]]:
    """Yield for each operator, and for each replica, its label, the batches it has done and the seconds they took."""
    for each in stats.operators.values():
        shared = sum(replica.seconds for replica in each.replicas)
        yield each.name, each.batches, max(0.0, each.wall - shared)
        for replica in each.replicas:
            yield replica.label, replica.batches, replica.seconds
