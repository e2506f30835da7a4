"""Steer how many rows of a function that waits are in flight, where the user did not say."""

from __future__ import annotations

from penstock.elastic.base import Action
from penstock.elastic.waiting import WaitingConcurrency, WaitingStatistics
from penstock.local.steering.base import Period
from penstock.operators.stateless import PerRow, Unasked, most_in_flight
from penstock.pe.element import Element
from penstock.pe.waiting_station import WaitingStation
from penstock.plan import Plan


class WaitSteering:
    """Set the rows in flight of one operator. It has a window of its own, so nobody else's business is touched."""

    def __init__(self, element: Element, operator: str) -> None:
        self.name, self._operator, self._element = f"rows in flight of {operator}", operator, element
        station = self._station()
        assert station is not None
        begins, most = int(station.in_flight), most_in_flight(station.is_async)
        self.controller = WaitingConcurrency(initial=begins, largest_guess=begins, high=most)

    def _station(self) -> WaitingStation | None:
        found = self._element.stations.get(self._operator)
        return found if isinstance(found, WaitingStation) else None

    def measure(self, period: Period) -> WaitingStatistics | None:
        """Tell what a row waited and computed, and how many there were; nothing where none came."""
        station = self._station()
        done = period.done.operators.get(self._operator)
        if station is None or done is None or self._operator not in period.before.operators:
            return None
        rows, seconds = done.rows_in, done.in_flight
        if rows <= 0 or period.seconds <= 0 or not period.unchanged("threads", 1):
            return None
        cpu = done.cpu / rows
        return WaitingStatistics(rows / period.seconds, max(0.0, seconds / rows - cpu), cpu)

    def act(self, action: Action) -> None:
        """Have more rows in flight, or fewer; those that are stay."""
        station = self._station()
        if action.what == "in_flight" and isinstance(action.after, int) and station is not None:
            station.set_in_flight(action.after)


def waiting_operators(plan: Plan) -> list[str]:
    """Return the operators that wait and may be steered."""
    return [
        name
        for name, node in plan.nodes.items()
        if isinstance(node.operator, PerRow) and isinstance(node.operator.in_flight, Unasked)
    ]
