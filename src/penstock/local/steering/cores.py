"""Steer how many replicas each operator has for a latency target: Elasticutor's allocation of cores.

For the model in which every input, and every replica, has a thread of its own: an operator with replicas is an
executor, a replica one of its cores, a batch what arrives. As many replicas are shared out as keep the processors busy:
threads that wait need none meanwhile. Where workers are shared, they are one executor, and `threads` finds how many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence

from penstock.elastic.base import Action
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation, ExecutorLoad
from penstock.local.steering.base import Period
from penstock.local.steering.threads import MOST_WORKERS
from penstock.pe.element import Element
from penstock.statistics import OperatorStats


class CoreSteering:
    """Set the number of replicas of each operator that has some, in the place of `ReplicaSteering`."""

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
