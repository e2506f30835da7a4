"""Steer the replicas of operators: one more for the bottleneck, and what does not help is taken back (C-Stream)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from penstock.elastic.base import Action
from penstock.elastic.replicas import OperatorStatistics, Replicas, ReplicaStatistics
from penstock.local.steering.base import Period
from penstock.pe.element import Element
from penstock.pe.replicas import MOST_REPLICAS
from penstock.pe.stations import Station
from penstock.pe.statistics import OperatorStats

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
        before = {each.name: each for each in period.before.operators}
        full = {each.name: _full(each, before.get(each.name), period.seconds) for each in period.now.operators}
        found = tuple(
            self._operator(each, before[each.name], full, period.seconds)
            for each in period.now.operators
            if each.replicas
            and each.name in before
            and each.name in self._element.stations
            and each.name not in self._left_alone
        )
        return ReplicaStatistics(found, workers=None if settled else self._element.model.active) if found else None

    def _operator(
        self, now: OperatorStats, before: OperatorStats, full: dict[str, tuple[float, ...]], seconds: float
    ) -> OperatorStatistics:
        station: Station = self._element.stations[now.name]
        known: dict[str, Any] = {each.label: each for each in before.replicas}
        blocked = [
            _part(each.full, known[each.label].full if each.label in known else 0.0, seconds) for each in now.replicas
        ]
        busy = [each.seconds - (known[each.label].seconds if each.label in known else 0.0) for each in now.replicas]
        below = [
            full[link.target.station.name][link.target.index]
            for link in station.links
            if link.target.station.name in full
        ]
        partitions = sum(len(each.partitions) for each in now.replicas)
        return OperatorStatistics(
            now.name,
            tuple(blocked),
            max(below, default=0.0),
            (now.rows_in - before.rows_in) / seconds,
            min(1.0, sum(busy) / len(busy) / seconds),
            now.kind,
            max(1, partitions),
            len(station.ports),
            len(station.node.operator.outputs),
        )

    def act(self, action: Action) -> None:
        """Have one replica more or less, from one of the next batches on."""
        if action.what == "replicas" and isinstance(action.after, int):
            target, count = action.target, action.after
            self._ask(lambda: self._element.set_replicas(target, count))


def _full(now: OperatorStats, before: OperatorStats | None, seconds: float) -> tuple[float, ...]:
    """Return which part of the period the queue of each port was full."""
    earlier = before.full if before is not None else (0.0,) * len(now.full)
    return tuple(_part(after, first, seconds) for after, first in zip(now.full, earlier, strict=True))


def _part(after: float, before: float, seconds: float) -> float:
    return min(1.0, max(0.0, after - before) / seconds)
