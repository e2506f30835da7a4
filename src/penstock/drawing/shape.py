"""Say what there is to draw of a flow: boxes and arrows, in words."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.flow import Flow
from penstock.graph import Node
from penstock.operators.base import Keyed, Kind, Sink, Source, Union


@dataclass(frozen=True)
class Box:
    """One operator."""

    name: str
    kind: Kind
    what: str
    """What it does, in a few words."""
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Arrow:
    """A stream from one operator to another."""

    source: int
    target: int
    label: str
    """The output port, where the operator has several."""


@dataclass(frozen=True)
class Shape:
    """A flow as boxes, each behind those that it reads, and arrows between their numbers."""

    name: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def shape_of(flow: Flow) -> Shape:
    """Return what there is to draw; raises `FlowError` for a flow with a cycle."""
    graph = flow.graph()
    number = {name: i for i, name in enumerate(graph.nodes)}
    boxes = tuple(
        Box(name, node.operator.kind, _what(node), tuple(dict.fromkeys(port.node for port in node.inputs)))
        for name, node in graph.nodes.items()
    )
    arrows = []
    for edge in graph.edges:
        outputs = graph.nodes[edge.source.node].operator.outputs
        label = outputs[edge.source.index] if len(outputs) > 1 else ""
        arrows.append(Arrow(number[edge.source.node], number[edge.target], "" if label == "out" else label))
    return Shape(flow.name, boxes, tuple(arrows))


def _what(node: Node) -> str:
    operator = node.operator
    if isinstance(operator, Source):
        return _words(getattr(operator.reader, "format", None) or type(operator.reader).__name__)
    if isinstance(operator, Sink):
        return _words(getattr(operator.writer, "format", None) or type(operator.writer).__name__)
    if isinstance(operator, Union) and not node.inputs:
        return "not connected"
    if isinstance(operator, Keyed):
        logic = _words(type(operator.logic).__name__).removesuffix(" logic")
        return f"{logic} by {operator.keys[0]}" if operator.keys else logic
    return _words(type(operator).__name__)


def _words(name: str) -> str:
    """Write the name of a class as words."""
    return "".join(f" {c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))
