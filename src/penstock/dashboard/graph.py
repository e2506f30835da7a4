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


def above(edges: list[Json], name: str) -> set[str]:
    """Return the operators whose rows reach an operator, itself left out."""
    return _reached(edges, name, "to", "from")


def below(edges: list[Json], name: str) -> set[str]:
    """Return the operators that an operator's rows reach, itself left out."""
    return _reached(edges, name, "from", "to")


def _reached(edges: list[Json], name: str, here: str, there: str) -> set[str]:
    steps: dict[str, list[str]] = {}
    for edge in edges:
        steps.setdefault(edge[here], []).append(edge[there])
    found: set[str] = set()
    todo = [name]
    while todo:
        for other in steps.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found
