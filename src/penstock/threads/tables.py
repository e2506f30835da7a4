"""The tables that a flow in this process looks rows up in: read again between two batches."""

from __future__ import annotations

from collections.abc import Callable

from penstock.connectors.tables import Refreshing, read_table
from penstock.plan.plan import Plan
from penstock.threads.element import Element
from penstock.threads.stateless_stations import LookupStation


class LocalTables:
    """Has tables read again when it is time."""

    def __init__(self, element: Element, plan: Plan, clock: Callable[[], float]) -> None:
        self._element, self._refreshing = element, Refreshing(plan, clock)
        self.change = self._refreshing.change

    def refresh(self) -> None:
        """Read what is due; from the thread that submits, so that the next batch is the first to see it."""
        for name, lookup in self._refreshing.due():
            station = self._element.stations[name]
            assert isinstance(station, LookupStation)
            station.refresh(read_table(lookup, name), self._element.submitted)
