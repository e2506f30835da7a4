"""Describe a flow's graph for the page: operators with kind and fields, and the edges between them."""

from __future__ import annotations

from typing import Any

from penstock.graph import Graph, Node
from penstock.operators.base import Keyed, Sink, Source

Json = dict[str, Any]


def describe_graph(graph: Graph) -> Json:
    """Return the graph as plain JSON; each operator stands behind those that it reads."""
    return {
        "nodes": [_describe_node(node) for node in graph.nodes.values()],
        "edges": [
            {"from": edge.source.node, "output": edge.source.index, "to": edge.target, "input": edge.port}
            for edge in graph.edges
        ],
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


class Reach:
    """Tell what is above and below each operator; found once for a graph, for a sample asks again and again."""

    def __init__(self, graph: Json | None = None) -> None:
        self._graph: Json | None = None
        self.look(graph or {"edges": []})

    def look(self, graph: Json) -> Reach:
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
        found: set[str] = set()
        todo = [name]
        while todo:
            for other in self._steps.get((todo.pop(), down), ()):
                if other not in found:
                    found.add(other)
                    todo.append(other)
        self._found[name, down] = frozenset(found)
        return self._found[name, down]
