"""A flow: what it is called, its operators, and where its streams begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal
from weakref import WeakSet

from penstock.connectors.interfaces import Reader
from penstock.connectors.read import Readable, as_reader
from penstock.errors import FlowError, users_line
from penstock.flow import checks
from penstock.flow.building import AutomaticName, numbered, slack_of, time_kind
from penstock.flow.stream import Stream
from penstock.operators.base import OnError, Operator, Sink, Source, Union
from penstock.plan.graph import Graph, Node, Port, kind_of_node
from penstock.rows.keys import SHARDS
from penstock.rows.records import RowType
from penstock.rows.row_types import OutT, Schema, row_type, source_type
from penstock.rows.timing import Arrival, Duration, TimeKind


class Flow:
    """A named flow. Begin with `source`, end with `sink`, then hand it to `penstock.run`.

    `shards` is how many shards the keys of each keyed operator are cut into: the most tasks that can share it on Spark,
    and what moves between them. It is kept in the flow's checkpoint, and stays.
    """

    def __init__(self, name: str, *, shards: int = SHARDS) -> None:
        checks.flow_name(name)
        checks.number_of_shards(name, shards)
        self.name, self.shards = name, shards
        self._nodes: dict[str, Node] = {}
        self.streams: WeakSet[Stream] = WeakSet()
        """The streams that users hold, which know operators by name."""
        self.started = False
        """Whether it runs, so that operators must be called as they are."""

    @property
    def nodes(self) -> MappingProxyType[str, Node]:
        """The operators by name, in the order in which they were declared."""
        return MappingProxyType(self._nodes)

    def changed(self, operators: Mapping[str, Operator]) -> Flow:
        """Return the flow with some operators replaced by others of their kind."""
        flow = Flow(self.name)
        for name, node in self._nodes.items():
            flow._nodes[name] = replace(node, operator=operators.get(name, node.operator))
        return flow

    def graph(self) -> Graph:
        """Return the graph as it stands now."""
        return Graph(self._nodes)

    def source(
        self,
        name: str,
        reader: Readable[OutT],
        *,
        order_by: str | Iterable[str] = (),
        time: str | Arrival | None = None,
        slack: Duration = 0,
        schema: Schema[OutT] | None = None,
        on_late: Literal["fail", "divert"] = "fail",
        on_error: OnError = "fail",
        idle_after: float | None = None,
    ) -> Stream[OutT]:
        """Bring rows in.

        `order_by` gives the order across sources and their parts; `time` names the field with the event time, or is
        `ps.arrival`, the time of day at which rows arrive; `slack` says how far times may be behind the latest seen.
        A row that `order_by` puts before one that its part of the source gave earlier fails the flow, or goes to
        `stream.late` with `on_late="divert"`. A part of the source that gives nothing for `idle_after` seconds, by the
        wall clock, holds no others back until it gives a row again. `on_error` is for rows that cannot be read (a
        malformed line, a value that does not fit the schema, a damaged file) or have no event time: they fail the flow,
        are skipped, or are dead letters on `stream.errors`.
        """
        opened: Reader = checks.wrap(name, as_reader, reader)
        corrupt = None
        on_error = opened.on_error if on_error == "fail" else on_error
        if on_error != "fail":
            opened, corrupt = opened.passing_over(), opened.corrupt
        declared = row_type(schema, name) if schema is not None else opened.row_type(name)
        declared = None if declared is None else source_type(declared, name, strict=opened.strict)
        fields = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        for field in fields:
            checks.field(declared, field, name, "order_by")
            checks.orderable(declared, field, name)
        by_arrival = isinstance(time, Arrival)
        checks.arrival_alone(name, by_arrival, slack=slack, idle_after=idle_after)
        field_name = None if isinstance(time, Arrival) else time
        kind: TimeKind | None = "timestamp" if by_arrival else None
        if field_name:
            kind = time_kind(declared, field_name, name, "source")
        amount = slack_of(slack, kind, name)
        if on_late not in ("fail", "divert"):
            raise FlowError(f'source {name!r}: on_late={on_late!r}; use "fail" or "divert"')
        checks.seconds_given(idle_after, name, "idle_after")
        outputs = ("out",) if on_late == "fail" else ("out", "late")
        source = Source(
            opened,
            fields,
            field_name,
            amount,
            idle_after,
            by_arrival,
            corrupt=corrupt,
            on_error=on_error,
            outputs=outputs,
        )
        operator, letters = checks.with_errors(source, name)
        return self.add(name, operator, (), (*[declared] * len(outputs), *letters), kind)

    def forward(self, name: str) -> Forward:
        """Return a stream that is read before it is defined; give it its rows with `connect`."""
        self.add(name, Union(), (), (None,), None)
        return Forward(self, Port(name))

    def add(
        self,
        name: str,
        operator: Operator,
        inputs: tuple[Port, ...],
        types: tuple[RowType | None, ...],
        time: TimeKind | None,
    ) -> Stream:
        """Put an operator in the flow: what the methods of streams do."""
        naming = name.naming if isinstance(name, AutomaticName) else None
        if naming is None and name in self._nodes and not self.started:
            inputs = self._give_way(name, inputs)
        checks.operator_name(self._nodes, name)
        name = str(name)
        self._nodes[name] = kind_of_node(operator)(
            name, operator, inputs, types, time, shards=self.shards, naming=naming, where=users_line()
        )
        return Stream(self, Port(name))

    def _give_way(self, name: str, inputs: tuple[Port, ...]) -> tuple[Port, ...]:
        """Give an operator with an automatic name another one, because the user wants it; return ports renamed."""
        naming = self._nodes[name].naming
        if naming is None:
            return inputs
        free = str(numbered(naming, self._nodes))

        def renamed(ports: tuple[Port, ...]) -> tuple[Port, ...]:
            return tuple(replace(port, node=free) if port.node == name else port for port in ports)

        self._nodes = {
            (free if key == name else key): replace(
                node, name=free if key == name else key, inputs=renamed(node.inputs)
            )
            for key, node in self._nodes.items()
        }
        for stream in list(self.streams):
            (stream.port,) = renamed((stream.port,))
        return renamed(inputs)

    def __repr__(self) -> str:
        kinds: dict[str, list[str]] = {"sources": [], "operators": [], "sinks": []}
        for name, node in self._nodes.items():
            kind = {Source: "sources", Sink: "sinks"}.get(type(node.operator), "operators")
            kinds[kind].append(name)
        inside = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)
        return f"<Flow {self.name!r}: {inside or 'empty; begin with flow.source(name, reader)'}>"

    def _repr_svg_(self) -> str | None:
        """Draw the flow, as notebooks ask for it; None where it cannot be drawn yet."""
        from penstock.flow.drawing import draw_svg

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
        changed = replace(node, inputs=(stream.port,), types=(stream.type,), time=stream.time, naming=None)
        self.flow._nodes[node.name] = changed
