"""A flow: what it is called, its operators, and where its streams begin."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from penstock import checks
from penstock.errors import FlowError
from penstock.flow.stream import Stream
from penstock.graph import Graph, Node, Port
from penstock.operators.base import Operator, Source, Union
from penstock.read import as_reader, reader_type
from penstock.rows import RowType, row_type
from penstock.timing import Duration, TimeKind, kind_of, ticks


class Flow:
    """A named flow. Begin with `source`, end with `sink`, then hand it to `penstock.run`."""

    def __init__(self, name: str) -> None:
        checks.flow_name(name)
        self.name = name
        self._nodes: dict[str, Node] = {}

    @property
    def nodes(self) -> MappingProxyType[str, Node]:
        """Return the operators by name, in the order in which they were declared."""
        return MappingProxyType(self._nodes)

    def graph(self) -> Graph:
        """Return the graph as it stands now."""
        return Graph(self._nodes)

    def source(
        self,
        name: str,
        reader: Any,
        *,
        order_by: str | Iterable[str] = (),
        time: str | None = None,
        slack: Duration = 0,
        schema: Any = None,
        on_late: str = "fail",
    ) -> Stream:
        """Bring rows in.

        `order_by` gives the order across the source's partitions; `time` names the field with the event time,
        and `slack` how far it may be behind the latest seen. A row that `order_by` puts before an epoch that
        is done fails the flow, or goes to `stream.late` with `on_late="divert"`.
        """
        reader = checks.wrap(name, as_reader, reader)
        declared = row_type(schema, name) if schema is not None else reader_type(reader, name)
        fields = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        for field in fields:
            checks.field(declared, field, name, "order_by")
            checks.orderable(declared, field, name)
        kind = self._time_kind(declared, time, name) if time else None
        amount, unit = ticks(slack, name, "slack") if slack else (0, kind)
        if slack and kind != unit:
            raise FlowError(checks.unit_mismatch(name, "slack", slack, kind))
        checks.not_negative(amount, name, "slack", slack)
        if on_late not in ("fail", "divert"):
            raise FlowError(f'source {name!r}: on_late={on_late!r}; use "fail" or "divert"')
        if on_late == "fail":
            return self._add(name, Source(reader, fields, time, amount), (), (declared,), kind)
        operator = Source(reader, fields, time, amount, on_error="skip", outputs=("out", "late"))
        return self._add(name, operator, (), (declared, declared), kind)

    def forward(self, name: str) -> Forward:
        """Return a stream that is read before it is defined; give it its rows with `connect`."""
        self._add(name, Union(), (), (None,), None)
        return Forward(self, Port(name))

    def _time_kind(self, declared: RowType | None, time: str, name: str) -> TimeKind:
        field = checks.field(declared, time, name, "time")
        if field is None:
            raise FlowError(f"source {name!r}: time={time!r} needs to know the type of that field; give schema=")
        kind = kind_of(field.type)
        if kind is None:
            raise FlowError(
                f"source {name!r}: time={time!r} is of type {field.type}; event time must be a timestamp, a "
                f"date or an integer, so convert it first"
            )
        return kind

    def _add(
        self,
        name: str,
        operator: Operator,
        inputs: tuple[Port, ...],
        types: tuple[RowType | None, ...],
        time: TimeKind | None,
    ) -> Stream:
        checks.operator_name(self._nodes, name)
        self._nodes[name] = Node(name, operator, inputs, types, time)
        return Stream(self, Port(name))

    def _free_name(self, given: str | None, function: Any, kind: str) -> str:
        if given is not None:
            return given
        named = getattr(function, "__name__", type(function).__name__ if function is not None else kind)
        base = named if named.isidentifier() and function is not None else kind
        name, number = base, 1
        while name in self._nodes:
            number += 1
            name = f"{base}_{number}"
        return name

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self._nodes)} operators)"

    def _repr_svg_(self) -> str | None:
        """Draw the flow, as notebooks ask for it; None where it cannot be drawn yet."""
        from penstock.drawing import draw_svg

        try:
            return draw_svg(self)
        except FlowError:
            return None


class Forward(Stream):
    """A stream that is read before it is defined."""

    def connect(self, stream: Stream) -> None:
        """Give the stream its rows."""
        node = self.node
        if node.inputs:
            raise FlowError(f"stream {node.name!r} is connected already, to {node.inputs[0].node!r}")
        checks.one_flow((self, stream), node.name)
        changed = Node(node.name, node.operator, (stream.port,), (stream.type,), stream.node.time)
        self.flow._nodes[node.name] = changed
