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
from penstock.pe.statistics import ElementStats

PERIOD = 10.0
"""Seconds over which workers are looked at, as in C-Stream; the pilot's own periods are shorter."""


class PoolSteering:
    """Set the number of workers of an element."""

    name = "pool"

    def __init__(self, element: Element, *, most: int = MOST_WORKERS, period: float | None = None) -> None:
        self._element, self._period = element, PERIOD if period is None else period
        self._since: ElementStats | None = None
        self._own_wait: dict[str, float] = {}
        """The least that each operator was seen to wait for a row, in seconds."""
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
        part = self._working(since, period.now, len(workers))
        return PoolStatistics(tuple(min(1.0, max(0.0, each)) * part for each in busy))

    def _working(self, since: ElementStats, now: ElementStats, workers: int) -> float:
        """Return the part of the time in operators that was not spent waiting for the lock, or for a processor."""
        before = {each.name: each for each in since.operators}
        computed = waited = own = 0.0
        for each in now.operators:
            earlier = before.get(each.name)
            if earlier is None or not each.queued or each.rows_in <= earlier.rows_in:
                continue
            rows, cpu = each.rows_in - earlier.rows_in, each.cpu - earlier.cpu
            wait = max(0.0, each.wall - earlier.wall - cpu)
            least = self._own_wait[each.name] = min(self._own_wait.get(each.name, wait / rows), wait / rows)
            computed, waited, own = computed + cpu, waited + wait, own + rows * least
        others = max(0.0, workers * (now.computed - since.computed) - computed)
        own = min(waited, max(own, waited - others))
        return (computed + own) / (computed + waited) if computed + waited > 0 else 1.0

    def act(self, action: Action) -> None:
        """Start or end a worker."""
        if action.what == "threads" and isinstance(action.after, int):
            self._element.set_workers(action.after)
