"""Steer the number of workers of the dynamic model by how busy they are (C-Stream); instead of by throughput.

A worker that waits for the interpreter's lock, or for a processor, is in an operator and does nothing: more workers
would only wait as well. What an operator waits for by itself, for an answer or a disk, is its work, and more workers
do more of it. Both look alike from outside, but what an operator waits for by itself does not grow with the number of
workers: per row it is no more than the least that was seen, which is seen where one worker is alone. And nobody waits
for the lock, or for a processor, longer than others compute.
"""

from __future__ import annotations

from penstock.elastic.base import Action
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool
from penstock.local.steering.base import Period
from penstock.local.steering.threads import MOST_WORKERS
from penstock.pe.element import Element
from penstock.statistics import FlowStats

PERIOD = 10.0
"""Seconds over which workers are looked at, as in C-Stream; the pilot's own periods are shorter."""


class PoolSteering:
    """Set the number of workers of an element."""

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
