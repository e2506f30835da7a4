"""Work out, before the run, what a position looks like on each stream and where marks stand in it.

A position is a fixed number of int64 columns, compared from left to right. A source's rows have their
order_by values and one packed number; an operator that may emit several rows for one adds the emission index;
a fan-out whose branches meet again adds the index of the edge; an operator that emits when a mark passes adds
(fire time, position of the opening row, emission index). A mark travels just before the row that raised it,
and arrives at an operator behind everything that the mark made the operators above emit: so its path has the
index of the edge that it took, and `LAST` elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph import Edge, Graph
from penstock.operators.base import Keyed, Source
from penstock.operators.stateless import Stateless
from penstock.timing import Ticks

LAST = (1 << 63) - 1
"""A component that is behind every row's."""


@dataclass(frozen=True)
class MarkRoute:
    """Tell how the marks of one source arrive at an operator: how much later, and at which path."""

    source: str
    delay: Ticks
    path: tuple[int, ...]
    """The components behind the source's own."""


@dataclass(frozen=True)
class Shape:
    """The layout of positions at one operator."""

    width: int
    """Components of an input row's position, shorter inputs padded with zeros."""
    out_width: int
    marks: tuple[MarkRoute, ...]
    ports: tuple[tuple[MarkRoute, ...], ...] = ()
    """The same for each input port alone, where the operator wants to know which of them have ended."""


@dataclass(frozen=True)
class Layout:
    """The layout of positions in a whole flow."""

    base: int
    """Components of a source row's position."""
    shapes: dict[str, Shape]
    fanouts: frozenset[str]
    """Operators whose outgoing edges add a component, because the branches meet again."""

    def edge_width(self, edge: Edge) -> int:
        """Return the number of components of the rows on an edge."""
        return self.shapes[edge.source.node].out_width + (edge.source.node in self.fanouts)


def timed_width(width: int) -> int:
    """Return what emitting at marks adds: fire time, (epoch, opening position), emission index."""
    return 1 + 1 + width + 1


def base_width(graph: Graph) -> int:
    """Return the components of a source row's position: its order_by values, then its own place.

    One packed number (source, place, row or mark) will do unless a Spark DataFrame needs more for its place.
    """
    sources = [node.operator for node in graph.nodes.values() if isinstance(node.operator, Source)]
    ordered = max((len(source.order_by) for source in sources), default=0)
    wide = max((own_width(source) for source in sources), default=1)
    return ordered + (1 if wide == 1 else 1 + wide)


def own_width(source: Source) -> int:
    """Return how many numbers tell a row's place inside its source."""
    return int(getattr(source.reader, "own_width", 1))


def layout(graph: Graph) -> Layout:
    """Lay out the positions of a flow."""
    base = 1 + max(
        (len(node.operator.order_by) for node in graph.nodes.values() if isinstance(node.operator, Source)),
        default=0,
    )
    fanouts = frozenset(name for name in graph.nodes if _meets_again(graph, name))
    shapes: dict[str, Shape] = {}
    incoming: dict[str, list[Edge]] = {name: [] for name in graph.nodes}
    for edge in graph.edges:
        incoming[edge.target].append(edge)
    for name, node in graph.nodes.items():
        operator = node.operator
        if isinstance(operator, Source):
            shapes[name] = Shape(base, base, (MarkRoute(name, 0, ()),))
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
        edges, behind = incoming[name], width - base
        ports = [
            _routes(graph, shapes, fanouts, [edge for edge in edges if edge.port == port], behind=behind)
            for port in range(len(node.inputs) if isinstance(operator, Keyed) and operator.logic.waits else 0)
        ]
        shapes[name] = Shape(width, out, _routes(graph, shapes, fanouts, edges, behind=behind), tuple(ports))
    return Layout(base, shapes, fanouts)


def _routes(
    graph: Graph, shapes: dict[str, Shape], fanouts: frozenset[str], edges: list[Edge], *, behind: int
) -> tuple[MarkRoute, ...]:
    """Merge the routes of all input ports: of equal marks the one that arrives last counts."""
    found: dict[tuple[str, Ticks], tuple[int, ...]] = {}
    for edge in edges:
        above = shapes[edge.source.node]
        operator = graph.nodes[edge.source.node].operator
        delay = operator.logic.mark_delay if isinstance(operator, Keyed) else 0
        for route in above.marks:
            path = (*route.path, *[LAST] * (above.out_width - above.width))
            if edge.source.node in fanouts:
                path = (*path, edge.index)
            path = (*path, *[LAST] * (behind - len(path)))
            arrives = (route.source, route.delay + delay)
            found[arrives] = max(found.get(arrives, ()), path)
    return tuple(MarkRoute(source, delay, path) for (source, delay), path in found.items())


def _meets_again(graph: Graph, name: str) -> bool:
    """Tell whether two edges that leave an operator lead to a common one."""
    seen: set[str] = set()
    for edge in graph.outgoing[name]:
        reach = graph.below(edge.target)
        if seen & reach:
            return True
        seen |= reach
    return False
