"""Steer the replicas of operators: how many, which shards each has, and which worker runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from penstock.elastic.base import Action, Controller
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation, ExecutorLoad
from penstock.elastic.pilot import Period
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, own_rebinding
from penstock.elastic.replicas import OperatorStatistics, Replicas, ReplicaStatistics
from penstock.elastic.shard_balance import HotKey, ShardKeys, ShardStatistics, calm_balance, moves
from penstock.kernels.hot_keys import HotKeys
from penstock.statistics import FlowStats, OperatorStats
from penstock.threads.element import Element
from penstock.threads.models.bound import Bound
from penstock.threads.partitioned_station import PartitionedStation
from penstock.threads.replicas import MOST_REPLICAS
from penstock.threads.stations import Station
from penstock.threads.worker_steering import MOST_WORKERS

SETTLED_PERIODS = 4
"""Periods without a change of the workers before replicas are judged: what a replica gains is then its own doing."""


class ReplicaSteering:
    """Set the number of replicas of each operator that has some: as many as workers, while their number is searched."""

    name = "replicas"

    def __init__(
        self,
        element: Element,
        ask: Callable[[Callable[[], int]], object],
        *,
        most: int = MOST_REPLICAS,
        left_alone: Collection[str] = (),
    ) -> None:
        """Changes are made by whoever brings batches in: `ask` asks for one. Some operators may be `left_alone`."""
        self._element, self._ask, self._left_alone = element, ask, left_alone
        self.controller = Replicas(high=most)

    def measure(self, period: Period) -> ReplicaStatistics | None:
        """Tell how congested the queues were, before and behind each operator with replicas."""
        if period.seconds <= 0:
            return None
        settled = all(period.settled(each, SETTLED_PERIODS) for each in ("threads", "pool"))
        done = period.done.operators
        stations = dict(self._element.stations)  # as of one moment: a query may go, and its operators with it
        found = tuple(
            _operator(stations[name], each, done, period.seconds)
            for name, each in done.items()
            if each.replicas and name in period.before.operators and name in stations and name not in self._left_alone
        )
        return ReplicaStatistics(found, workers=None if settled else self._element.model.active) if found else None

    def act(self, action: Action) -> None:
        if action.what == "replicas" and isinstance(action.after, int):
            target, count = action.target, action.after
            self._ask(lambda: self._element.set_replicas(target, count))


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


class CoreSteering:
    """Set the number of replicas of each operator for a latency target: Elasticutor's allocation of cores.

    For the model in which every input, and every replica, has a thread of its own: an operator with replicas is an
    executor, a replica one of its cores, a batch what arrives. As many replicas are shared out as keep the processors
    busy: threads that wait need none meanwhile. Where workers are shared, they are one executor, and `threads` finds
    how many.
    """

    name = "cores"

    def __init__(
        self,
        element: Element,
        ask: Callable[[Callable[[], int]], object],
        target: float,
        *,
        processors: int | None = None,
        left_alone: Collection[str] = (),
    ) -> None:
        """Changes are made by whoever brings batches in: `ask` asks for one. `target` is in seconds.

        Operators that are `left_alone` have the replicas that they have.
        """
        self._element, self._ask, self._left_alone = element, ask, left_alone
        self._processors = processors or os.cpu_count() or 1
        self.controller = CoreAllocation(target=target)

    def measure(self, period: Period) -> AllocationStatistics | None:
        """Tell the batches that came to each operator and what one replica can do; None before there is a measure."""
        if period.seconds <= 0:
            return None
        done = [
            each
            for name, each in period.done.operators.items()
            if each.replicas and name in period.before.operators and name not in self._left_alone
        ]
        loads = tuple(load for each in done if (load := _load(each, period.seconds)) is not None)
        came = period.done.batches_in
        if not loads or len(loads) < len(done) or not came:
            return None
        return AllocationStatistics(came / period.seconds, loads, max(self._there_are(done), len(loads)))

    def _there_are(self, done: Sequence[OperatorStats]) -> int:
        """Return how many threads keep the processors busy, of which each computes for a part of its time."""
        worked = sum(each.wall for each in done)
        computed = sum(each.cpu for each in done)
        part = min(1.0, computed / worked) if worked > 0 else 1.0
        return max(self._processors, int(min(MOST_WORKERS, self._processors / part if part > 0 else MOST_WORKERS)))

    def act(self, action: Action) -> None:
        """Have as many replicas, as far as there are partitions; a target that cannot be met is only reported."""
        station = self._element.stations.get(action.target)
        if (
            action.what == "cores"
            and isinstance(action.after, int)
            and station is not None
            and station.squad is not None
        ):
            target, count = action.target, max(1, min(action.after, station.squad.most))
            self._ask(lambda: self._element.set_replicas(target, count))


def _load(done: OperatorStats, seconds: float) -> ExecutorLoad | None:
    """Return what came to an operator in a period; None where nothing did."""
    worked = sum(each.seconds for each in done.replicas)
    if done.batches <= 0 or worked <= 0:
        return None
    return ExecutorLoad(done.name, done.batches / seconds, done.batches / worked, len(done.replicas))


class ShardSteering:
    """Move partitions of one operator between its replicas. How many replicas there are is not its business."""

    def __init__(
        self, element: Element, ask: Callable[[Callable[[], int]], object], operator: str, named: bool = False
    ) -> None:
        """Changes are made by whoever brings batches in: `ask` asks for one. Hot keys may be `named`."""
        self._element, self._ask, self._operator, self._named = element, ask, operator, named
        self.name = f"shards of {operator}"
        self.controller = calm_balance()
        station = element.stations.get(operator)
        if isinstance(station, PartitionedStation):
            station.hot = HotKeys(named)

    def measure(self, period: Period) -> ShardStatistics | None:
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


class RebindingSteering:
    """Give operators, and replicas of operators, to other workers. It owns no numbers, only places."""

    name = "rebinding"

    def __init__(self, element: Element, controller: Controller[Any, BindingStatistics] | None = None) -> None:
        self._element = element
        self.controller: Controller[Any, BindingStatistics] = controller or own_rebinding()

    def measure(self, period: Period) -> BindingStatistics | None:
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
        return BindingStatistics(model.active, tuple(loads))

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
        if isinstance(model, Bound) and isinstance(action.after, int):
            model.rebind(action.target, action.after)


def _done(stats: FlowStats) -> Iterator[tuple[str, int, float]]:
    """Yield for each operator, and for each replica, its label, the batches it has done and the seconds they took."""
    for each in stats.operators.values():
        shared = sum(replica.seconds for replica in each.replicas)
        yield each.name, each.batches, max(0.0, each.wall - shared)
        for replica in each.replicas:
            yield replica.label, replica.batches, replica.seconds
