"""Work out, before the run, what a position looks like on each stream and where marks stand in it.

A position is a fixed number of int64 columns, compared from left to right. A source's rows have their
order_by values and one packed number (`Layout.places`); an operator that may emit several rows for one adds the
emission index; a fan-out whose branches meet again adds the index of the edge; an operator that emits when a mark
passes adds (fire time, position of the opening row, emission index). A mark travels just before the row that raised it,
and arrives at an operator after everything that the mark made the operators above emit: so its path has the
index of the edge that it took, and `LAST` elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.operators.base import Keyed, Source
from penstock.operators.stateless import Stateless
from penstock.plan.graph import Edge, Graph
from penstock.rows.timing import Ticks

LAST = (1 << 63) - 1
"""A component that is after every row's."""
FIRST = -(1 << 63)
"""A component that no row's is before."""
MAX_SOURCES = 32
_PLACE_BITS = 57
"""Bits of a packed place; above them the number of the source, below them one bit: row or mark."""
_TURN_BITS = 5
"""Bits of a source's number below the turn: as many as MAX_SOURCES needs."""

Ints = npt.NDArray[np.int64]
Sequence = Literal["own", "turns", "order"]
"""What makes one sequence of all sources: their own order, as rows arrive; turns, row by row; or `order_by`."""


@dataclass(frozen=True)
class MarkRoute:
    """Tell how the marks of one source arrive at an operator: how much later, and at which path."""

    source: str
    """The source, or the name of its clock (`clock_of`)."""
    delay: Ticks
    path: tuple[int, ...]
    """The components after the source's own."""


@dataclass(frozen=True)
class Shape:
    """The layout of positions at one operator."""

    width: int
    """Components of an input row's position, shorter inputs padded with zeros."""
    out_width: int
    marks: tuple[MarkRoute, ...]
    ports: tuple[tuple[MarkRoute, ...], ...] = ()
    """The same for each input port alone, where the operator wants to know which of them have ended."""
    clock: tuple[MarkRoute, ...] = ()
    """How the time of day arrives."""


@dataclass(frozen=True)
class Layout:
    """The layout of positions in a whole flow."""

    order: int
    """Components of a source row's position that are its order_by values."""
    own: int
    """Numbers that tell a row's place inside its source, at most; a single one is packed with the source's number."""
    sequence: Sequence
    """How the rows of all sources become one sequence."""
    shapes: dict[str, Shape]
    fanouts: frozenset[str]
    """Operators whose outgoing edges add a component, because the branches meet again."""

    @property
    def base(self) -> int:
        """The components of a source row's position: its order_by values, then its place among all sources."""
        return self.order + (1 if self.own == 1 else 1 + self.own)

    def places(self, number: int, own: list[Ints]) -> list[Ints]:
        """Return where rows of source `number` are among those of all sources, from their place in the source.

        It stands after the order_by values. The lowest bit is 1 for rows; a mark just before a row has 0. Where
        sources take turns the place is the row's number, and comes first; otherwise the number of the source does.
        """
        assert len(own) <= self.own, f"a place of {len(own)} numbers, where {self.own} are the most"
        turns = self.sequence == "turns"
        if self.own == 1 and turns:
            return [(own[0] << np.int64(_TURN_BITS + 1)) + (2 * number + 1)]
        if self.own == 1:
            return [(np.int64(number) << np.int64(_PLACE_BITS + 1)) + own[0] * 2 + 1]
        length = len(own[0])
        columns = [*own, *[np.zeros(length, np.int64)] * (self.own - len(own))]
        columns[-1] = columns[-1] * 2 + 1
        columns.insert(1 if turns else 0, np.full(length, number, np.int64))
        return columns

    def place(self, number: int, own: int) -> tuple[int, ...]:
        """Return the position of the mark just before the row at a place of source `number`, without order_by."""
        *above, last = (int(column[0]) for column in self.places(number, [np.array([own], np.int64)]))
        return (*above, last - 1)

    def before_all(self, number: int) -> tuple[int, ...]:
        """Return the position of a mark of source `number` that is before all rows."""
        return self._at_first(MAX_SOURCES + number)

    def clock_place(self, number: int) -> tuple[int, ...]:
        """Return the position of the time of day where source `number` begins: before all marks and rows."""
        return self._at_first(number)

    def _at_first(self, number: int) -> tuple[int, ...]:
        return (*[FIRST] * self.order, FIRST + number, *[0] * (self.base - self.order - 1))

    def behind_all(self, number: int) -> tuple[int, ...]:
        """Return the position of a mark of source `number` that is after all rows."""
        return (LAST - 2 * (2 * MAX_SOURCES - number),) * self.base


def clock_of(source: str) -> str:
    """Name the marks that are the time of day where a source begins; no source is named so."""
    return f"\0{source}"


def timed_width(width: int) -> int:
    """Return what emitting at marks adds: fire time, (epoch, opening position), emission index."""
    return 1 + 1 + width + 1


def layout(graph: Graph) -> Layout:
    sources = [node.operator for node in graph.nodes.values() if isinstance(node.operator, Source)]
    order = max((len(source.order_by) for source in sources), default=0)
    own = max((source.reader.own_width for source in sources), default=1)
    sequence: Sequence = "order" if order else "own"
    if not order and len(sources) > 1 and not any(source.reader.goes_on for source in sources):
        sequence = "turns"
    shapes: dict[str, Shape] = {}
    base = Layout(order, own, sequence, shapes, frozenset()).base
    fanouts = frozenset(name for name in graph.nodes if _meets_again(graph, name))
    incoming: dict[str, list[Edge]] = {name: [] for name in graph.nodes}
    for edge in graph.edges:
        incoming[edge.target].append(edge)
    for name, node in graph.nodes.items():
        operator = node.operator
        if isinstance(operator, Source):
            marks, day = ((MarkRoute(each, 0, ()),) for each in (name, clock_of(name)))
            shapes[name] = Shape(base, base, day if operator.by_arrival else marks, clock=day)
            continue
        widths = [shapes[e.source.node].out_width + (e.source.node in fanouts) for e in incoming[name]]
        width = max(widths, default=base)
        out = width
        if isinstance(operator, Stateless):
            out += operator.expands
        elif isinstance(operator, Keyed) and operator.logic.emits == "many":
            out += 1
        elif isinstance(operator, Keyed) and operator.logic.emits == "timed":
            out += timed_width(width)
        edges, routes = incoming[name], partial(_routes, graph, shapes, fanouts, length=width - base)
        ports = [
            routes([edge for edge in edges if edge.port == port])
            for port in range(len(node.inputs) if isinstance(operator, Keyed) and operator.logic.waits else 0)
        ]
        clock = routes(edges, clock=True)
        by_arrival = isinstance(operator, Keyed) and operator.by_arrival
        shapes[name] = Shape(width, out, clock if by_arrival else routes(edges), tuple(ports), clock)
    return Layout(order, own, sequence, shapes, fanouts)


def _routes(
    graph: Graph,
    shapes: dict[str, Shape],
    fanouts: frozenset[str],
    edges: list[Edge],
    *,
    length: int,
    clock: bool = False,
) -> tuple[MarkRoute, ...]:
    """Merge the routes of all input ports: of equal marks the one that arrives last counts."""
    arriving: dict[tuple[str, Ticks], tuple[int, ...]] = {}
    for edge in edges:
        above = shapes[edge.source.node]
        operator = graph.nodes[edge.source.node].operator
        delay = operator.logic.mark_delay if isinstance(operator, Keyed) and not clock else 0
        for route in above.clock if clock else above.marks:
            path = (*route.path, *[LAST] * (above.out_width - above.width))
            if edge.source.node in fanouts:
                path = (*path, edge.index)
            path = (*path, *[LAST] * (length - len(path)))
            arrives = (route.source, route.delay + delay)
            arriving[arrives] = max(arriving.get(arrives, ()), path)
    return tuple(MarkRoute(source, delay, path) for (source, delay), path in arriving.items())


def _meets_again(graph: Graph, name: str) -> bool:
    """Tell whether two edges that leave an operator lead to a common one."""
    seen: set[str] = set()
    for edge in graph.outgoing[name]:
        reach = graph.below(edge.target)
        if seen & reach:
            return True
        seen |= reach
    return False
