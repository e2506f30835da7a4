"""Describe a flow for the page: its operators, the edges between them, and what holds it back.

A full queue fills the queues above it in turn, so most operators with full queues are victims. The cause is an operator
whose queue is full while none below it has a full one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.flow.drawing import place
from penstock.operators.base import Keyed, Sink, Source
from penstock.plan.graph import Graph, Node

Json = dict[str, Any]


def describe_graph(graph: Graph) -> Json:
    """Return the graph as plain JSON; each operator stands after those that it reads."""
    return placed(
        [_describe_node(node) for node in graph.nodes.values()],
        [
            {"from": edge.source.node, "output": edge.source.index, "to": edge.target, "input": edge.port}
            for edge in graph.edges
        ],
    )


def placed(nodes: list[Json], edges: list[Json]) -> Json:
    """Return a graph with places to draw it at, in layers and heights: of the operators, and where edges pass."""
    number = {node["name"]: index for index, node in enumerate(nodes)}
    places = place(len(nodes), [(number[edge["from"]], number[edge["to"]]) for edge in edges])
    return {
        "nodes": [{**node, "place": where} for node, where in zip(nodes, places.boxes, strict=True)],
        "edges": [{**edge, "bends": bends} for edge, bends in zip(edges, places.bends, strict=True)],
    }


def _describe_node(node: Node) -> Json:
    row = node.types[0] if node.types else None
    keys = node.operator.keys if isinstance(node.operator, Keyed) else None
    return {
        "name": node.name,
        "kind": node.operator.kind,
        "what": _what(node),
        "keys": sorted({str(key) for key in keys}) if keys else [],
        "outputs": list(node.operator.outputs),
        "on_error": node.operator.on_error,
        "fields": list(row.schema.names) if row is not None and row.form == "record" else [],
    }


def _what(node: Node) -> str:
    """Name what an operator does, in the words of the class that does it."""
    operator = node.operator
    if isinstance(operator, Keyed):
        return type(operator.logic).__name__
    if isinstance(operator, Source):
        return type(operator.reader).__name__
    if isinstance(operator, Sink):
        return type(operator.writer).__name__
    return type(operator).__name__


class Reached:
    """Tell what is above and below each operator; found once for a graph, for a sample asks again and again."""

    def __init__(self, graph: Json | None = None) -> None:
        self._graph: Json | None = None
        self.look(graph or {"edges": []})

    def look(self, graph: Json) -> Reached:
        """Answer for this graph from now on."""
        if graph is not self._graph:
            self._graph = graph
            self._steps: dict[tuple[str, bool], list[str]] = {}
            self._found: dict[tuple[str, bool], frozenset[str]] = {}
            for edge in graph["edges"]:
                self._steps.setdefault((edge["from"], True), []).append(edge["to"])
                self._steps.setdefault((edge["to"], False), []).append(edge["from"])
        return self

    def above(self, name: str) -> frozenset[str]:
        """Return the operators whose rows reach an operator, itself left out."""
        return self._reached(name, False)

    def below(self, name: str) -> frozenset[str]:
        """Return the operators that an operator's rows reach, itself left out."""
        return self._reached(name, True)

    def _reached(self, name: str, down: bool) -> frozenset[str]:
        known = self._found.get((name, down))
        if known is not None:
            return known
        reached: set[str] = set()
        todo = [name]
        while todo:
            for other in self._steps.get((todo.pop(), down), ()):
                if other not in reached:
                    reached.add(other)
                    todo.append(other)
        self._found[name, down] = frozenset(reached)
        return self._found[name, down]


FULL = 0.75
"""The part of a queue from which on it counts as full."""
CROWDED = 0.9
"""The part of the batches that may be in flight from which on sources wait."""


def pressure_in_queues(
    reach: Reached,
    queues: Mapping[str, int],
    capacity: int,
    in_flight: float,
    busy: Mapping[str, float],
    queue_of: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """Judge by queues: `in_flight` is the part of the batches that may be inside, `busy` has seconds.

    Of operators that are run as one, and so share a queue (`queue_of`), the cause is the one that takes most time.
    """
    full = {name for name, waiting in queues.items() if capacity and waiting >= FULL * capacity}
    causes = [name for name in queues if name in full and not reach.below(name) & full]
    reasons = {}
    for name in causes:
        busiest = max(
            (each for each in busy if queue_of.get(each, each) == name), key=lambda each: busy[each], default=name
        )
        reasons[busiest] = f"{queues[name]} of {capacity} batches wait for it, and no queue below it is full"
    if not causes and in_flight >= CROWDED and any(busy.values()):
        name = max(busy, key=lambda each: busy[each])
        share = busy[name] / sum(busy.values())
        reasons = {name: f"as many batches are inside as may be, and {share:.0%} of the time is spent here"}
    return _told(reach, reasons)


def pressure_in_epochs(
    reach: Reached, backlog: int | None, rows: int, busy: Mapping[str, float], fixed: float = 0.0
) -> Json:
    """Judge by epochs: more waits than one of them takes, and the operator with most of the time is the cause.

    `fixed` is the part of an epoch that no operator has: where it is most of it, larger epochs help more.
    """
    if not backlog or backlog <= rows or not any(busy.values()):
        return _told(reach, {})
    name = max(busy, key=lambda each: busy[each])
    share = busy[name] / sum(busy.values())
    why = f"{backlog:,} rows wait, more than an epoch takes, and {share:.0%} of the operators' time is here"
    if fixed > 0.5:
        why += f"; but {fixed:.0%} of an epoch is Spark's fixed cost, so larger epochs would help more"
    return _told(reach, {name: why})


def _told(reach: Reached, reasons: Mapping[str, str]) -> Json:
    held: dict[str, str] = {}
    for name in reasons:
        for other in reach.above(name):
            held.setdefault(other, name)
    return {
        "causes": [{"operator": name, "why": why} for name, why in reasons.items()],
        "held": {name: cause for name, cause in sorted(held.items()) if name not in reasons},
    }
