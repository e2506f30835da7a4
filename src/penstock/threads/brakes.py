"""Hold single sources back: those that fill a port of a co-routine which waits for another source.

Where all input is there from the start, its sequence is fixed, and rows that are not consumed wait on disk. Where a
source goes on, rows come as they arrive: then a source that is ahead of another can wait, and only that one does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.operators.base import Source
from penstock.plan.plan import Plan
from penstock.threads.element import Element
from penstock.threads.stateful_station import PausingStation

ANY = 1 << 40
"""More batches than there ever are."""


@dataclass(frozen=True)
class Pressure:
    """A co-routine that waits: the sources above its full ports, and above those that it waits for."""

    full: frozenset[str]
    lacking: frozenset[str]


class Brakes:
    """Say which sources are to wait."""

    def __init__(self, element: Element, plan: Plan) -> None:
        self._element = element
        self.most_rows: int | None = None
        """Rows of a batch, at most; None: any number."""
        self.most_in_flight = ANY
        """Batches in flight, at most, with the next one: their rows must find room."""
        self.change(plan)

    def change(self, plan: Plan) -> None:
        """Look at another plan, of the same sources."""
        readers = [node.operator.reader for node in plan.sources if isinstance(node.operator, Source)]
        self._stations = [each for each in self._element.stations.values() if isinstance(each, PausingStation)]
        goes_on = plan.layout.sequence == "own" and any(reader.goes_on for reader in readers)
        self.active = goes_on and bool(self._stations)
        self._above = {
            each.name: [self._sources_above(plan, port.node) for port in each.node.inputs] for each in self._stations
        }

    def _sources_above(self, plan: Plan, node: str) -> frozenset[str]:
        return frozenset(each.name for each in plan.sources if each.name == node or node in plan.graph.below(each.name))

    def limit(self, batch_rows: int) -> None:
        """Find how much may be on its way at once: what is in flight must find room in ports that are just not full."""
        rooms = [each.room for each in self._stations if each.room is not None]
        room = min(rooms, default=None)
        self.most_rows = None if room is None else max(1, room)
        self.most_in_flight = ANY if room is None else max(1, room // max(1, min(batch_rows, room)))

    def held(self, sources: Collection[str]) -> frozenset[str]:
        """Return the sources that are to wait, of those that have not ended."""
        if not self.active:
            return frozenset()
        found, at_work = [], frozenset[str]()
        for station in self._stations:
            full, lacking = station.pressure()
            if not full:
                continue
            above = self._above[station.name]
            filling = frozenset().union(*(above[port] for port in full))
            if lacking is None:
                at_work |= filling  # until it waits again, which it does without any row that is not in flight yet
                continue
            wanted = frozenset().union(*(above[port] for port in lacking)) & frozenset(sources)
            found.append(Pressure(filling - wanted, wanted))
        return held_back(found, sources) | at_work & frozenset(sources)


def held_back(found: list[Pressure], sources: Collection[str]) -> frozenset[str]:
    """Hold back what fills a full port, as long as a source that is waited for there goes on."""
    held = {name for name in sources if any(name in each.full for each in found)}
    while True:
        # Two co-routines may each wait for the source that the other one holds back: then one of these goes on.
        freed = next(
            (name for name in sorted(held) if not any(name in each.full and each.lacking - held for each in found)),
            None,
        )
        if freed is None:
            return frozenset(held)
        held.remove(freed)
