"""Steer which worker has which operator, in the bound model (Rebinding)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.elastic.base import Action, Controller
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, own_rebinding
from penstock.local.steering.base import Period
from penstock.pe.element import Element
from penstock.pe.models.bound import Bound
from penstock.statistics import FlowStats


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
