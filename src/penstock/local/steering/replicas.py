"""Steer the replicas of operators: one more for the bottleneck, and what does not help is taken back (C-Stream)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from penstock.elastic.base import Action
from penstock.elastic.replicas import OperatorStatistics, Replicas, ReplicaStatistics
from penstock.local.steering.base import Period
from penstock.pe.element import Element
from penstock.pe.replicas import MOST_REPLICAS
from penstock.pe.stations import Station
from penstock.statistics import OperatorStats

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
        max(1, partitions),
        len(station.ports),
        len(station.node.operator.outputs),
    )


def _part(full: float, seconds: float) -> float:
    """Return which part of the period a queue was full."""
    return min(1.0, max(0.0, full) / seconds)
