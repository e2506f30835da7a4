"""Compose a flow: sources, streams of rows, operators, sinks. Nothing runs here.

A `Stream` is immutable: each method adds an operator to the flow and returns the stream that leaves it. What
can be checked without data is checked at once, so that an error points at the line that made it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow.compute as pc

from penstock import checks, hints
from penstock.errors import FlowError
from penstock.graph import Graph, Node, Port, marks_keep_up
from penstock.operators import aggregates, coroutine
from penstock.operators.base import Key, Keyed, Logic, OnError, Operator, Sink, Source, Union
from penstock.operators.join import Combine, How, Join, SideBySide
from penstock.operators.process import Process, ProcessLogic
from penstock.operators.scan import Aggregate, FlatScan, Reduce, Scan
from penstock.operators.sort import Sort
from penstock.operators.stateless import (
    Filter,
    FilterExpression,
    FlatMap,
    Map,
    MapBatches,
    Select,
    Split,
    evaluate,
    refuse_async,
    rows_in_flight,
)
from penstock.operators.windows import (
    AggregateFold,
    ApplyFold,
    Count,
    Fold,
    ReduceFold,
    TimeWindows,
    Tumbling,
    Window,
    WindowSpec,
    window_logic,
)
from penstock.read import as_reader, reader_type
from penstock.rows import Row, RowType, record_type, row_type
from penstock.timing import Duration, TimeKind, kind_of, ticks
from penstock.write import as_writer

Result = TypeVar("Result")
Predicate = Callable[[Row], Any]
ProcessLike = Process | type[Process]


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


class Stream:
    """Rows on their way from one operator to the next."""

    def __init__(self, flow: Flow, port: Port) -> None:
        self.flow = flow
        self.port = port

    @property
    def node(self) -> Node:
        """Return the operator that the rows come from."""
        return self.flow.nodes[self.port.node]

    @property
    def type(self) -> RowType | None:
        """Return the declared type of the rows, None where it is not known."""
        return self.node.types[self.port.index]

    @property
    def late(self) -> Stream:
        """Return the rows that came too late for their window, or against `order_by`."""
        return self._other_port("late", 'windows, sort, merge and sources with on_late="divert" have one')

    @property
    def late_left(self) -> Stream:
        """Return the left rows that came too late for their join window."""
        return self._other_port("late_left", "joins have one")

    @property
    def late_right(self) -> Stream:
        """Return the right rows that came too late for their join window."""
        return self._other_port("late_right", "joins have one")

    @property
    def errors(self) -> Stream:
        """Return the dead letters of an operator with `on_error="dead_letter"`."""
        return self._other_port("errors", 'operators with on_error="dead_letter" have one')

    def _other_port(self, port: str, hint: str) -> Stream:
        outputs = self.node.operator.outputs
        if port not in outputs:
            raise FlowError(f"operator {self.node.name!r} has no output {port!r}: {hint}")
        return Stream(self.flow, Port(self.node.name, outputs.index(port)))

    def __rshift__(self, stage: Callable[[Stream], Result]) -> Result:
        """Apply a stage (`ps.map(f)`, ...) or any composite, which is a plain function of a stream."""
        if not callable(stage):
            raise FlowError(
                f"operator {self.node.name!r}: cannot apply {stage!r} with >>; give a stage such as "
                f"ps.map(f), or a function from stream to stream"
            )
        return stage(self)

    def threaded(self) -> Stream:
        """Give what reads this stream a thread of its own for it; `engine="threads"` only, others pass over it."""
        return Stream(self.flow, replace(self.port, threaded=True))

    def parallel(self, replicas: int) -> Stream:
        """Begin with so many replicas of the operator that reads this stream; `engine="threads"` only."""
        count = hints.check_count(replicas, f"parallel() behind operator {self.node.name!r}")
        return Stream(self.flow, replace(self.port, parallel=count))

    # Without memory -----------------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[[Row], Any],
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
        waits: bool | None = None,
        in_flight: int | None = None,
    ) -> Stream:
        """Replace each row by `function(row)`.

        An `async def`, and a function declared to wait (`waits=True`, or `in_flight`), is called for many rows at once,
        for at most `in_flight`; outputs keep the order of the rows.
        """
        name = self.flow._free_name(name, function, "map")
        returns = checks.returns(function, schema, name)
        rows = rows_in_flight(function, waits, in_flight, name)
        return self._apply(name, Map(function, returns, on_error=on_error, in_flight=rows), returns)

    def filter(
        self,
        predicate: Any,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
        waits: bool | None = None,
        in_flight: int | None = None,
    ) -> Stream:
        """Keep the rows for which a function, or a `pyarrow.compute` expression, holds; one may wait as in `map`."""
        if isinstance(predicate, pc.Expression):
            name = self.flow._free_name(name, None, "filter")
            if waits or in_flight is not None:
                raise FlowError(f"operator {name!r}: an expression never waits; leave out waits= and in_flight=")
            known = checks.known_type(self.type, name, "a filter expression")
            checks.predicate(known, predicate, name)
            return self._apply(name, FilterExpression(known, predicate, on_error=on_error), known)
        name = self.flow._free_name(name, predicate, "filter")
        checks.is_callable(predicate, name, "a function of the row, or a pyarrow.compute expression")
        rows = rows_in_flight(predicate, waits, in_flight, name)
        return self._apply(name, Filter(predicate, on_error=on_error, in_flight=rows), self.type)

    def flat_map(
        self,
        function: Callable[[Row], Any],
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
        waits: bool | None = None,
        in_flight: int | None = None,
    ) -> Stream:
        """Replace each row by the rows that `function(row)` returns or yields; it may wait as in `map`."""
        name = self.flow._free_name(name, function, "flat_map")
        returns = checks.returns(function, schema, name, item=True)
        rows = rows_in_flight(function, waits, in_flight, name, yields=True)
        return self._apply(name, FlatMap(function, returns, on_error=on_error, in_flight=rows), returns)

    def select(self, *fields: str, name: str | None = None, on_error: OnError = "fail", **expressions: Any) -> Stream:
        """Keep fields, and compute others by `pyarrow.compute` expressions."""
        name = self.flow._free_name(name, None, "select")
        known = checks.known_type(self.type, name, "select")
        for field in fields:
            checks.field(known, field, name, "select")
        for field, expression in expressions.items():
            if not isinstance(expression, pc.Expression):
                raise FlowError(
                    f"operator {name!r}: {field}={expression!r} is no pyarrow.compute expression; write "
                    f'pc.field("a") * 2, or use map() for a Python function'
                )
            checks.expression(known, expression, name)
        pairs = (*((field, pc.field(field)) for field in fields), *expressions.items())
        if not pairs:
            raise FlowError(f"operator {name!r}: select() needs at least one field")
        checks.distinct([field for field, _ in pairs], name, "select()")
        result = record_type(evaluate(known.encode([]), pairs).schema)
        return self._apply(name, Select(known, pairs, result, on_error=on_error), result)

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Replace an Arrow batch by what the function returns: as many rows, or (rows, input indexes)."""
        name = self.flow._free_name(name, function, "map_batches")
        known = checks.known_type(self.type, name, "map_batches")
        returns = row_type(schema, name)
        if on_error != "fail":
            raise FlowError(
                f'operator {name!r}: map_batches knows on_error="fail" only, because a batch fails as a '
                f"whole; use map() where single rows may fail"
            )
        return self._apply(name, MapBatches(known, function, returns), returns or known)

    def split(self, *predicates: Predicate, name: str | None = None, on_error: OnError = "fail") -> tuple[Stream, ...]:
        """Split in one stream a predicate, each row going to the first that holds, and one for the rest."""
        name = self.flow._free_name(name, None, "split")
        for predicate in predicates:
            checks.is_callable(predicate, name, "functions of the row")
            refuse_async(predicate, name, "a predicate of split()")
        ports = (*(f"out{index}" for index in range(len(predicates))), "rest")
        self._apply(name, Split(predicates, on_error=on_error, outputs=ports), *[self.type] * len(ports))
        return tuple(Stream(self.flow, Port(name, index)) for index in range(len(ports)))

    # Fan-in -------------------------------------------------------------------------------------------------

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """Join streams into one; rows come in the order that a one-row-at-a-time run gives."""
        name = self.flow._free_name(name, None, "union")
        streams = (self, *others)
        checks.one_flow(streams, name)
        types = {stream.type for stream in streams}
        kinds = {stream.node.time for stream in streams}
        return self.flow._add(
            name,
            Union(),
            tuple(s.port for s in streams),
            (types.pop() if len(types) == 1 else None,),
            kinds.pop() if len(kinds) == 1 else None,
        )

    def merge(self, *others: Stream, by: str, name: str | None = None) -> Stream:
        """Join streams in the order of their event time; rows wait until no earlier one can come."""
        name = self.flow._free_name(name, None, "merge")
        streams = (self, *others)
        checks.one_flow(streams, name)
        for stream in streams:
            checks.merge_time(self.flow.graph(), stream.port.node, by, name)
        return self.union(*others, name=f"{name}.union").sort(name=name)

    def sort(self, *, slack: Duration = 0, name: str | None = None) -> Stream:
        """Release rows in event-time order, each once the watermark is `slack` past it."""
        name = self.flow._free_name(name, None, "sort")
        amount, unit = ticks(slack, name, "slack") if slack else (0, self.node.time)
        checks.has_time(self.node, name, "sort")
        if unit != self.node.time:
            raise FlowError(checks.unit_mismatch(name, "slack", slack, self.node.time))
        checks.not_negative(amount, name, "slack", slack)
        return self._stateful(name, Sort(amount), None, "fail", extra_ports=("late",))

    # With memory --------------------------------------------------------------------------------------------

    def key_by(self, *keys: Any) -> KeyedStream:
        """Partition by fields, or by a function of the row, for what follows."""
        if len(keys) == 1 and callable(keys[0]):
            return KeyedStream(self, Key(function=keys[0]))
        where = self.node.name
        if not keys or not all(isinstance(key, str) for key in keys):
            raise FlowError(f"key_by behind operator {where!r} needs field names or one function, got {keys!r}")
        checks.key_fields(self.type, keys, where)
        return KeyedStream(self, Key(tuple(keys)))

    def scan(
        self,
        function: Callable[[Any, Row], tuple[Any, Row]],
        initial: Any = None,
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Keep running state: `function(state, row) -> (state, output)`; `initial`: a value or a factory."""
        name = self.flow._free_name(name, function, "scan")
        returns = checks.returns(function, schema, name, pair=True)
        return self._stateful(name, Scan(function, _factory(initial), returns), self._key(), on_error)

    def flat_scan(
        self,
        function: Callable[[Any, Row], tuple[Any, Iterable[Row]]],
        initial: Any = None,
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Keep running state with any number of outputs a row: `function(state, row) -> (state, outputs)`."""
        name = self.flow._free_name(name, function, "flat_scan")
        returns = checks.returns(function, schema, name, pair=True, item=True)
        return self._stateful(name, FlatScan(function, _factory(initial), returns), self._key(), on_error)

    def reduce(
        self,
        function: Callable[[Any, Row], Any],
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Combine rows: `function(accumulated, row)`, from the first row on; emits the running value."""
        name = self.flow._free_name(name, function, "reduce")
        returns = checks.returns(function, schema, name)
        return self._stateful(name, Reduce(function, returns), self._key(), on_error)

    def aggregate(self, *, name: str | None = None, on_error: OnError = "fail", **results: aggregates.Agg) -> Stream:
        """Emit running aggregates after each row: `aggregate(n=ps.agg.count(), sum=ps.agg.sum("v"))`."""
        name = self.flow._free_name(name, None, "aggregate")
        bundle = aggregates.aggregation(results, name, self.type)
        key = self._key()
        checks.aggregate_fields(bundle, self.type, name, key.names if key else ())
        return self._stateful(name, Aggregate(bundle, key), key, on_error)

    def process(
        self,
        process: ProcessLike,
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Run a class of your own with state and timers; see `penstock.Process`."""
        process = process() if isinstance(process, type) else process
        name = self.flow._free_name(name, type(process), "process")
        if not isinstance(process, Process):
            raise FlowError(f"operator {name!r}: {process!r} is no Process; derive its class from penstock.Process")
        return self._stateful(name, ProcessLogic(process, row_type(schema, name)), self._key(), on_error)

    def window(self, spec: WindowSpec | Duration) -> WindowedStream:
        """Group rows in windows: ps.tumbling("10 min"), sliding, session, count_window; a size tumbles."""
        return WindowedStream(self, self._key(), spec)

    def sink(self, name: str, writer: Any = None) -> Flow:
        """Take rows out under a name; without a writer they are kept in memory. Returns the flow."""
        writer = checks.wrap(name, as_writer, writer)
        self.flow._add(name, Sink(writer), (self.port,), (), self.node.time)
        return self.flow

    # Building -----------------------------------------------------------------------------------------------

    def _key(self) -> Key | None:
        return None

    def _apply(self, name: str, operator: Operator, *types: RowType | None) -> Stream:
        operator, letters = checks.with_errors(operator, name)
        return self.flow._add(name, operator, (self.port,), (*types, *letters), self.node.time)

    def _stateful(
        self,
        name: str,
        logic: Logic,
        key: Key | None,
        on_error: OnError,
        *,
        extra_ports: tuple[str, ...] = (),
        other: Stream | None = None,
        other_key: Key | None = None,
    ) -> Stream:
        """Add a keyed operator, or a whole-stream one where there is no key."""
        inputs = [self] if other is None else [self, other]
        keys = None if key is None else tuple(k for k in (key, other_key) if k is not None)
        if logic.needs_time:
            for stream in inputs:
                checks.has_time(stream.node, name, "a time window")
        time = self.node.time
        result = logic.output_type([stream.type for stream in inputs], keys, time or "integer")
        keyed = Keyed(logic, keys, on_error=on_error, outputs=("out", *extra_ports))
        operator, letters = checks.with_errors(keyed, name)
        late = [inputs[min(i, len(inputs) - 1)].type for i in range(len(extra_ports))]
        return self.flow._add(name, operator, tuple(s.port for s in inputs), (result, *late, *letters), time)


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


class KeyedStream:
    """Rows partitioned by a key: each key has state of its own, and its rows come in order."""

    def __init__(self, stream: Stream, key: Key) -> None:
        self.stream, self.key = stream, key

    def _keyed(self) -> Stream:
        keyed = _Keyed(self.stream.flow, self.stream.port)
        keyed.key = self.key
        return keyed

    def __rshift__(self, stage: Callable[[KeyedStream], Result]) -> Result:
        return stage(self)

    def scan(self, function: Callable[[Any, Row], tuple[Any, Row]], initial: Any = None, **options: Any) -> Stream:
        """Keep running state for each key: `function(state, row) -> (state, output)`."""
        return self._keyed().scan(function, initial, **options)

    def flat_scan(
        self, function: Callable[[Any, Row], tuple[Any, Iterable[Row]]], initial: Any = None, **options: Any
    ) -> Stream:
        """Keep running state for each key: `function(state, row) -> (state, outputs)`."""
        return self._keyed().flat_scan(function, initial, **options)

    def reduce(self, function: Callable[[Any, Row], Any], **options: Any) -> Stream:
        """Combine the rows of each key: `function(accumulated, row)`; emits the running value."""
        return self._keyed().reduce(function, **options)

    def aggregate(self, **options: Any) -> Stream:
        """Emit running aggregates of each key after each row."""
        return self._keyed().aggregate(**options)

    def process(self, process: ProcessLike, **options: Any) -> Stream:
        """Run a class of your own with state and timers for each key."""
        return self._keyed().process(process, **options)

    def window(self, spec: WindowSpec | Duration) -> WindowedStream:
        """Group the rows of each key in windows."""
        return self._keyed().window(spec)

    def join(
        self,
        other: KeyedStream,
        window: WindowSpec | Duration,
        combine: Combine | None = None,
        *,
        how: How = "inner",
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Join two keyed streams inside a window by `combine(left, right)`, None for a missing side."""
        stream = self.stream
        name = stream.flow._free_name(name, combine, "join")
        checks.one_flow((stream, other.stream), name)
        if how not in ("inner", "left", "right", "outer"):
            raise FlowError(f'operator {name!r}: how={how!r}; use "inner", "left", "right" or "outer"')
        checks.same_key_types(self.key, stream.type, other.key, other.stream.type, name)
        logic, unit = window_logic(_spec(window), ApplyFold(_no_fold, None), self.key, name)
        if not isinstance(logic, TimeWindows):
            raise FlowError(f"operator {name!r}: a join needs a tumbling or sliding window, not {window!r}")
        checks.has_time(stream.node, name, "a join window")
        checks.has_time(other.stream.node, name, "a join window")
        checks.same_time(stream.node, other.stream.node, name)
        if unit != stream.node.time:
            raise FlowError(checks.unit_mismatch(name, "window", window, stream.node.time))
        if combine is None:
            left = checks.known_type(stream.type, name, "a join without combine=")
            right = checks.known_type(other.stream.type, name, "a join without combine=")
            shared = self.key.fields if self.key.fields == other.key.fields else ()
            combine = SideBySide(tuple(left.names), tuple(right.names), shared)
            checks.distinct(combine.names(), name, "the join")
            returns = None
        else:
            returns = checks.returns(combine, schema, name)
        return stream._stateful(
            name,
            Join(logic, combine, how, returns),
            self.key,
            on_error,
            extra_ports=("late_left", "late_right"),
            other=other.stream,
            other_key=other.key,
        )


class _Keyed(Stream):
    """A stream whose stateful operators are partitioned by a key."""

    key: Key

    def _key(self) -> Key | None:
        return self.key


class WindowedStream:
    """Rows grouped in windows; say what comes out of each."""

    def __init__(self, stream: Stream, key: Key | None, spec: WindowSpec | Duration) -> None:
        self.stream, self.key, self.spec = stream, key, _spec(spec)

    def __rshift__(self, stage: Callable[[WindowedStream], Result]) -> Result:
        return stage(self)

    def aggregate(self, *, name: str | None = None, on_error: OnError = "fail", **results: aggregates.Agg) -> Stream:
        """Emit (key, window_start, window_end, aggregates) once, at the close."""
        name = self.stream.flow._free_name(name, None, "window")
        bundle = aggregates.aggregation(results, name, self.stream.type)
        counting = isinstance(self.spec, Count)
        bounds = ("window",) if counting else ("window_start", "window_end")
        names = (*(self.key.names if self.key else ()), *bounds)
        checks.aggregate_fields(bundle, self.stream.type, name, names)
        return self._close(name, AggregateFold(bundle, self.key, bounds), on_error)

    def count(self, **options: Any) -> Stream:
        """Count the rows of each window, in the field `count`."""
        return self.aggregate(count=aggregates.count(), **options)

    def sum(self, field: str, **options: Any) -> Stream:
        """Add up a field, in the field `sum`."""
        return self.aggregate(sum=aggregates.sum(field), **options)

    def min(self, field: str, **options: Any) -> Stream:
        """Find the smallest value of a field, in the field `min`."""
        return self.aggregate(min=aggregates.min(field), **options)

    def max(self, field: str, **options: Any) -> Stream:
        """Find the largest value of a field, in the field `max`."""
        return self.aggregate(max=aggregates.max(field), **options)

    def mean(self, field: str, **options: Any) -> Stream:
        """Average a field, in the field `mean`."""
        return self.aggregate(mean=aggregates.mean(field), **options)

    def reduce(
        self,
        function: Callable[[Any, Row], Any],
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Combine the rows of each window: `function(accumulated, row)`, beginning with the first row."""
        name = self.stream.flow._free_name(name, function, "window")
        return self._close(name, ReduceFold(function, checks.returns(function, schema, name)), on_error)

    def apply(
        self,
        function: Callable[[Window, list[Row]], Row],
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Emit `function(window, rows)` for each window; window has key, start and end."""
        name = self.stream.flow._free_name(name, function, "window")
        return self._close(name, ApplyFold(function, checks.returns(function, schema, name)), on_error)

    def _close(self, name: str, fold: Fold, on_error: OnError) -> Stream:
        in_time = marks_keep_up(self.stream.flow.nodes, self.stream.port)
        logic, unit = window_logic(self.spec, fold, self.key, name, in_time)
        if unit is not None:
            checks.has_time(self.stream.node, name, "a time window")
            if unit != self.stream.node.time:
                raise FlowError(checks.unit_mismatch(name, "window", self.spec, self.stream.node.time))
        return self.stream._stateful(name, logic, self.key, on_error, extra_ports=("late",) if unit else ())


def operate(
    operator: coroutine.Operator | type[coroutine.Operator],
    *streams: Stream,
    schema: Any = None,
    name: str | None = None,
    max_pending: int | None = None,
) -> Any:
    """Run a co-routine operator over streams, one for each of its input ports; see `penstock.Operator`.

    Returns the stream that leaves it, or a tuple of streams where it has several output ports. `schema` is that of
    every output port; a list has one for each. `max_pending` is how many rows may wait in one input port.
    """
    if not streams or not all(isinstance(stream, Stream) for stream in streams):
        raise FlowError(f"operate({operator!r}) needs the streams that it reads, each without key_by, got {streams!r}")
    flow = streams[0].flow
    name = flow._free_name(name, operator if isinstance(operator, type) else type(operator), "operate")
    operator = coroutine.checked(operator, name, len(streams))
    checks.one_flow(streams, name)
    times = [stream.node.time for stream in streams]
    operator.check(name, times)
    most = operator.max_pending if max_pending is None else max_pending
    if most < 1:
        raise FlowError(f"operator {name!r}: max_pending={most}; a port must hold at least one row")
    count = operator.outputs
    if schema is None:
        types = tuple(operator.output_types([stream.type for stream in streams]))
    else:
        types = tuple(row_type(each, name) for each in (schema if isinstance(schema, list) else [schema] * count))
    if len(types) != count:
        raise FlowError(f"operator {name!r} has {count} output ports and is given {len(types)} schemas")
    logic = coroutine.CoroutineLogic(operator, types, len(streams), most)
    ports = ("out",) if count == 1 else tuple(f"out{index}" for index in range(count))
    flow._add(
        name,
        Keyed(logic, None, outputs=ports),
        tuple(stream.port for stream in streams),
        types,
        times[0] if len(set(times)) == 1 else None,
    )
    made = tuple(Stream(flow, Port(name, index)) for index in range(count))
    return made[0] if count == 1 else made


def _spec(spec: WindowSpec | Duration) -> WindowSpec:
    return spec if isinstance(spec, WindowSpec) else Tumbling(spec)


def _no_fold(_window: Window, _rows: list[Row]) -> Row:
    raise AssertionError("a join folds nothing")


class _Constant:
    """Return the same initial state for each key; a class, so that it can be shipped."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


def _factory(initial: Any) -> Callable[[], Any]:
    if callable(initial):
        factory: Callable[[], Any] = initial
        return factory
    # A value that can be changed would be shared by all keys. What is copied as itself cannot be changed.
    try:
        fixed = copy.deepcopy(initial) is initial
    except Exception:  # found again, and reported, when the first key begins
        fixed = False
    return _Constant(initial) if fixed else _Copy(initial)


class _Copy:
    """Return a fresh copy of a mutable initial state."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return copy.deepcopy(self.value)
