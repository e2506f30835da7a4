"""Steer which operator gets how many cores for a latency target (Elasticutor): replicas, and workers for them."""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.elastic.base import Action
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation, ExecutorLoad
from penstock.local.steering.base import Period
from penstock.pe.element import Element


class CoreSteering:
    """Give each operator the replicas that the network of queues needs, and the element a worker for each of them.

    Operators that cannot have replicas count as executors of one core: they are part of the latency, too.
    """

    name = "cores"

    def __init__(
        self,
        element: Element,
        ask: Callable[[Callable[[], int]], object],
        target: float,
        *,
        cores: int | None = None,
    ) -> None:
        self._element, self._ask = element, ask
        self._cores = cores if cores is not None else os.cpu_count() or 1
        self._given: dict[str, int] = {}
        self.controller = CoreAllocation(target=target)

    def measure(self, period: Period) -> AllocationStatistics | None:
        """Tell how many batches reach each operator a second, and how many of them one core serves."""
        if period.seconds <= 0:
            return None
        loads = []
        for now in period.now.operators:
            _, before = period.operator(now.name)
            station = self._element.stations.get(now.name)
            if before is None or station is None or station.squad is None:
                continue
            batches, wall = now.batches - before.batches, now.wall - before.wall
            if batches > 0 and wall > 0:
                cores = max(1, len(now.replicas), self._given.get(now.name, 1))
                loads.append(ExecutorLoad(now.name, batches / period.seconds, batches / wall, cores))
        came = period.now.batches_in - period.before.batches_in
        if not loads or came <= 0:
            return None
        return AllocationStatistics(came / period.seconds, tuple(loads), max(self._cores, len(loads)))

    def act(self, action: Action) -> None:
        """Have as many replicas of an operator as it got cores, and as many workers as cores were given."""
        if action.what != "cores" or not isinstance(action.after, int):
            return
        target, count = action.target, action.after
        self._given[target] = count
        self._ask(lambda: self._element.set_replicas(target, count))
        self._element.set_workers(max(1, sum(self._given.values())))
