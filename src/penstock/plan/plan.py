"""Turn a flow into a plan, checked as a whole, with the layout of positions: what engines run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import pyarrow as pa

from penstock.errors import FlowError
from penstock.flow import Flow
from penstock.flow.building import check_hints
from penstock.plan.graph import Edge, Graph, KeyedNode, Node, Port, SinkNode, SourceNode
from penstock.plan.positions import MAX_SOURCES, Layout, layout
from penstock.rows.records import RowType


@dataclass(frozen=True)
class Plan:
    """A flow that can run."""

    name: str
    graph: Graph

    @property
    def nodes(self) -> dict[str, Node]:
        """The operators, each after those that it reads."""
        return self.graph.nodes

    @property
    def shards(self) -> int:
        """How many shards the keys of each keyed operator are cut into."""
        return next(iter(self.nodes.values())).shards

    @cached_property
    def layout(self) -> Layout:
        return layout(self.graph)

    @cached_property
    def sources(self) -> list[SourceNode]:
        """The sources in the order in which they were declared."""
        nodes = (self.nodes[name] for name in self.graph.declared)
        return [node for node in nodes if isinstance(node, SourceNode)]

    def source(self, name: str) -> SourceNode:
        return self._sources[name]

    def row_type(self, port: Port) -> RowType | None:
        """Return the type of the rows that leave by a port; None where it is not declared."""
        return self.nodes[port.node].types[port.index]

    @cached_property
    def _sources(self) -> dict[str, SourceNode]:
        return {node.name: node for node in self.sources}

    @cached_property
    def sinks(self) -> list[SinkNode]:
        return [node for node in self.nodes.values() if isinstance(node, SinkNode)]

    @cached_property
    def keyed(self) -> list[KeyedNode]:
        return [node for node in self.nodes.values() if isinstance(node, KeyedNode)]

    @cached_property
    def readers(self) -> Counter[Port]:
        return Counter(port for node in self.nodes.values() for port in node.inputs)

    @cached_property
    def timed(self) -> frozenset[str]:
        """The operators whose rows need their event time further down."""
        return frozenset(
            name for name in self.nodes if any(takes_marks(self.nodes[other]) for other in self.graph.below(name))
        )

    @cached_property
    def by_arrival(self) -> frozenset[str]:
        """The sources and operators that go by the time of day at which rows arrive."""
        nodes = (node for node in self.nodes.values() if isinstance(node, (SourceNode, KeyedNode)))
        return frozenset(node.name for node in nodes if node.operator.by_arrival)

    @cached_property
    def clocked(self) -> list[SourceNode]:
        """The sources where the time of day enters: something goes by it that their rows reach."""
        return [node for node in self.sources if self.graph.below(node.name) & self.by_arrival]

    def only(self, sinks: Collection[str]) -> Plan:
        """Return the plan with some of its sinks, and what is above them."""
        kept = set(sinks)
        for name, node in reversed(self.nodes.items()):
            if name in kept:
                kept.update(port.node for port in node.inputs)
        return Plan(self.name, Graph({name: self.nodes[name] for name in self.graph.declared if name in kept}))

    def check_restarts(self, why: str) -> None:
        """Refuse operators that cannot begin again with the state that was saved; `why` says who saves it."""
        for node in self.keyed:
            node.operator.logic.check_restarts(node.name, why)

    def is_cut(self, edge: Edge) -> bool:
        """Tell whether rows leave their process on an edge, and so take their declared type there."""
        return isinstance(self.nodes[edge.target], (KeyedNode, SinkNode))


def takes_marks(node: Node) -> TypeGuard[KeyedNode]:
    """Tell whether an operator does something when a mark passes."""
    return isinstance(node, KeyedNode) and node.operator.logic.emits == "timed"


def make_plan(flow: Flow) -> Plan:
    plan = Plan(flow.name, flow.graph())
    if not plan.sources:
        raise FlowError(f"flow {flow.name!r} has no source; begin with flow.source(name, reader)")
    if len(plan.sources) > MAX_SOURCES:
        raise FlowError(f"flow {flow.name!r} has {len(plan.sources)} sources; {MAX_SOURCES} is the most")
    _check_connected(plan)
    _check_reaches_sink(plan)
    _check_order_by(plan)
    check_hints(plan.nodes.values())
    return plan


def _check_connected(plan: Plan) -> None:
    for name, node in plan.nodes.items():
        if not node.inputs and not isinstance(node, SourceNode):
            raise FlowError(f"stream {name!r} is read but never defined; call connect(stream) on it")


def _check_reaches_sink(plan: Plan) -> None:
    if not plan.sinks:
        raise FlowError(f"flow {plan.name!r} has no sink; end a stream with .sink(name, writer)")
    sinks = {node.name for node in plan.sinks}
    for name in plan.nodes:
        if not plan.graph.below(name) & sinks:
            raise FlowError(
                f"the rows of operator {name!r} reach no sink; end the stream with .sink(name, writer), or "
                f"remove the operator"
            )


def _check_order_by(plan: Plan) -> None:
    """Refuse sources whose rows cannot be put in one order."""
    widths = {node.name: len(node.operator.order_by) for node in plan.sources}
    if len(set(widths.values())) > 1:
        without = min(widths, key=lambda name: widths[name])
        given = max(widths, key=lambda name: widths[name])
        raise FlowError(
            f"source {given!r} has an order_by of {widths[given]} fields and source {without!r} of "
            f"{widths[without]}; give all sources of a flow as many, or none, so that their rows have one "
            f"order"
        )
    first, *others = plan.sources
    for node in others:
        for name, other in zip(first.operator.order_by, node.operator.order_by, strict=True):
            kinds = [_order_kind(source, field) for source, field in ((first, name), (node, other))]
            if len(set(kinds)) > 1:
                raise FlowError(
                    f"order_by={name!r} of source {first.name!r} is of {kinds[0]} and order_by={other!r} of source "
                    f"{node.name!r} of {kinds[1]}, which have no order together; declare them alike with schema=, or "
                    f"convert one where it is written"
                )


def _order_kind(node: SourceNode, name: str) -> str:
    """Name the values that those of an order_by field can be compared with."""
    assert node.types[0] is not None  # or else order_by was refused
    kind = node.types[0].schema.field(name).type
    if pa.types.is_timestamp(kind):
        return "times without a zone" if kind.tz is None else "times with a zone"
    if pa.types.is_date(kind):
        return "dates"
    return "fractions" if pa.types.is_floating(kind) else "whole numbers"
