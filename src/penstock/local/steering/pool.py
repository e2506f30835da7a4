"""Steer the number of workers of the dynamic model by how busy they are (C-Stream); instead of by throughput."""

from __future__ import annotations

from penstock.elastic.base import Action
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool
from penstock.local.steering.base import Period
from penstock.local.steering.threads import MOST_WORKERS
from penstock.pe.element import Element
from penstock.pe.statistics import ElementStats

PERIOD = 10.0
"""Seconds over which workers are looked at, as in C-Stream; the pilot's own periods are shorter."""


class PoolSteering:
    """Set the number of workers of an element."""

    name = "pool"

    def __init__(self, element: Element, *, most: int = MOST_WORKERS, period: float | None = None) -> None:
        self._element, self._period = element, PERIOD if period is None else period
        self._since: ElementStats | None = None
        self.controller = UtilizationPool(high=most, initial=1)

    def measure(self, period: Period) -> PoolStatistics | None:
        """Tell which part of the period each worker was in operators; those placed by hand are not the pool's."""
        since = self._since = self._since or period.before
        seconds = period.now.at - since.at
        workers = [each for each in period.now.workers if not each.own]
        if seconds <= 0 or seconds < self._period or not workers:
            return None
        self._since = period.now
        before = {each.number: each.busy_seconds for each in since.workers}
        busy = [(each.busy_seconds - before.get(each.number, 0.0)) / seconds for each in workers]
        return PoolStatistics(tuple(min(1.0, max(0.0, each)) for each in busy))

    def act(self, action: Action) -> None:
        """Start or end a worker."""
        if action.what == "threads" and isinstance(action.after, int):
            self._element.set_workers(action.after)
