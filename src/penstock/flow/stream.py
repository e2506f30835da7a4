"""A stream: what can be done with its rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, get_args

import pyarrow.compute as pc

from penstock.connectors.write import as_writer
from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import (
    applied,
    arguments_of,
    batch_calls,
    calls_of,
    check_count,
    computed,
    described,
    free_name,
    lifetime,
    remembering,
    slack_of,
)
from penstock.flow.checks import DeadLetter, missing_method
from penstock.flow.joining import AsOf, Fields, On, Within, key_both, keyed_sides, lookup_in_stream, lookup_in_table
from penstock.flow.keyed import Stateful
from penstock.operators.base import Key, Logic, OnError, Sink, Source, Union
from penstock.operators.by_time import Expiring, Sort
from penstock.operators.calls import CallOptions, WallTime
from penstock.operators.expressions import EXPRESSIONS, Expr, bound, bound_predicate, is_expression, known_type
from penstock.operators.join import How
from penstock.operators.lookup import LookupHow
from penstock.operators.scan import FlatScan, keep_first, state_maker
from penstock.operators.stateless import Filter, FilterExpression, FlatMap, Map, MapBatches, Split, refuse_async
from penstock.operators.windows import WindowSpec
from penstock.plan.graph import Node, Port
from penstock.rows.keys import make_ranges
from penstock.rows.records import RowType
from penstock.rows.row_types import OutT, Returned, RowT_co, Schema, Several, WithClient, row_type
from penstock.rows.timing import Duration, TimeKind

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.flow.keyed import KeyedStream

Result = TypeVar("Result")


class Stream(Stateful[RowT_co]):
    """Rows on their way from one operator to the next."""

    def __init__(self, flow: Flow, port: Port) -> None:
        self.flow, self.port, self.key = flow, port, None
        flow.streams.add(self)

    @property
    def _rows(self) -> Stream[RowT_co]:
        return self

    @property
    def node(self) -> Node:
        """The operator that the rows come from."""
        return self.flow.nodes[self.port.node]

    @property
    def type(self) -> RowType | None:
        """The declared type of the rows, None where it is not known."""
        return self.node.types[self.port.index]

    @property
    def time(self) -> TimeKind | None:
        """What the event time of the rows is; None where they have none, as rows that a source could not take."""
        unread = isinstance(self.node.operator, Source) and self.node.operator.outputs[self.port.index] == "errors"
        return None if unread else self.node.time

    @property
    def late(self) -> Stream[Any]:
        """The rows that came too late for their window, or against `order_by`; of a join those of both sides."""
        return self._other_port("late", 'windows, joins, sort, merge and sources with on_late="divert" have one')

    @property
    def errors(self) -> Stream[DeadLetter]:
        """The dead letters of an operator with `on_error="dead_letter"`."""
        return self._other_port("errors", 'operators with on_error="dead_letter" have one')

    def _other_port(self, port: str, hint: str) -> Stream:
        outputs = self.node.operator.outputs
        if port not in outputs:
            raise FlowError(f"operator {self.node.name!r} has no output {port!r}: {hint}")
        return Stream(self.flow, Port(self.node.name, outputs.index(port)))

    def __repr__(self) -> str:
        return described(self, "Stream")

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_method(self, name)

    def __rshift__(self, stage: Callable[[Stream[RowT_co]], Result]) -> Result:
        """Apply a stage (`ps.map(f)`, ...) or any composite, which is a plain function of a stream."""
        if not callable(stage):
            raise FlowError(
                f"operator {self.node.name!r}: cannot apply {stage!r} with >>; give a stage such as "
                f"ps.map(f), or a function from stream to stream"
            )
        return stage(self)

    def threaded(self) -> Stream[RowT_co]:
        """Give what reads this stream a thread of its own for it; `ps.Threads` only, others pass over it."""
        return Stream(self.flow, replace(self.port, threaded=True))

    def parallel(self, replicas: int) -> Stream[RowT_co]:
        """Begin with this number of replicas of the operator that reads the stream; `ps.Threads` only."""
        count = check_count(replicas, f"parallel() after operator {self.node.name!r}")
        return Stream(self.flow, replace(self.port, parallel=count))

    # Without memory -----------------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[[RowT_co], Awaitable[OutT] | Returned[OutT]]
        | WithClient[RowT_co, Awaitable[OutT] | Returned[OutT]],
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        waits: bool | None = None,
        in_flight: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Stream[OutT]:
        """Replace each row by `function(row)`.

        An `async def`, and a function declared to wait (`waits=True`, or `in_flight`), is called for many rows at once,
        for at most `in_flight`; outputs keep the order of the rows. `timeout=`, `retries=`, `backoff=`, `rate=` and
        `cache=` are for calls of a service; what `setup=` makes in each worker is the function's second argument.
        """
        name = free_name(self.flow, name, function, "map")
        returns = checks.returns(function, schema, name, takes=arguments_of(options))
        rows, how = calls_of(self.type, function, waits, in_flight, options, name)
        return applied(self, name, Map(function, returns, on_error=on_error, in_flight=rows, calls=how), returns)

    def filter(
        self,
        predicate: Callable[[RowT_co], Any] | WithClient[RowT_co, Any] | pc.Expression | Expr,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
        waits: bool | None = None,
        in_flight: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Stream[RowT_co]:
        """Keep the rows for which a function, or an expression, holds; a function may call as in `map`."""
        if isinstance(predicate, EXPRESSIONS):
            name = free_name(self.flow, name, None, "filter")
            if waits or in_flight is not None or options:
                given = ", ".join(f"{each}=" for each in options) or "waits= and in_flight="
                raise FlowError(f"operator {name!r}: an expression never waits; leave out {given}")
            known = known_type(self.type, name, "a filter expression")
            holds = bound_predicate(predicate, known, name, "a filter")
            return applied(self, name, FilterExpression(known, holds, on_error=on_error), known)
        name = free_name(self.flow, name, predicate, "filter")
        checks.is_callable(predicate, name, "a function of the row, or an expression (ps.expr, pyarrow.compute)")
        checks.called_with(predicate, name, arguments_of(options))
        rows, how = calls_of(self.type, predicate, waits, in_flight, options, name)
        return applied(self, name, Filter(predicate, on_error=on_error, in_flight=rows, calls=how), self.type)

    def flat_map(
        self,
        function: Callable[[RowT_co], Several[Returned[OutT]]] | WithClient[RowT_co, Several[Returned[OutT]]],
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        waits: bool | None = None,
        in_flight: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Stream[OutT]:
        """Replace each row by the rows that `function(row)` returns or yields; it may call as in `map`."""
        name = free_name(self.flow, name, function, "flat_map")
        returns = checks.returns(function, schema, name, takes=arguments_of(options), item=True)
        rows, how = calls_of(self.type, function, waits, in_flight, options, name, yields=True)
        return applied(self, name, FlatMap(function, returns, on_error=on_error, in_flight=rows, calls=how), returns)

    def select(
        self, /, *fields: str, name: str | None = None, on_error: OnError = "fail", **expressions: Any
    ) -> Stream:
        """Keep fields, "*" for all others, and compute some by expressions (`ps.expr(...)`, `pyarrow.compute`)."""
        name, on_error, expressions = checks.options_or_results(EXPRESSIONS, name, on_error, expressions)
        name = free_name(self.flow, name, None, "select")
        known = known_type(self.type, name, "select")
        for field in fields:
            if not isinstance(field, str):  # before they are compared: a column of Spark's is equal to nothing and all
                checks.field(known, field, name, "select")
        if "*" in fields:
            star = fields.index("*")
            others = [each for each in known.names if each not in fields and each not in expressions]
            fields = (*fields[:star], *others, *fields[star + 1 :])
        for field in fields:
            checks.field(known, field, name, "select")
        for field, expression in expressions.items():
            if not is_expression(expression):
                raise FlowError(
                    f"operator {name!r}: {field}={expression!r} is no expression; write "
                    f'ps.expr("a * 2") or pc.field("a") * 2, or use map() for a Python function'
                )
        computed_pairs = ((field, bound(each, known, name, "select")[0]) for field, each in expressions.items())
        pairs = (*((field, pc.field(field)) for field in fields), *computed_pairs)
        return computed(self, known, pairs, name, "select()", on_error)

    def drop(self, *fields: str, name: str | None = None) -> Stream:
        """Leave fields out."""
        name = free_name(self.flow, name, None, "drop")
        known = known_type(self.type, name, "drop")
        for field in fields:
            checks.field(known, field, name, "drop")
        pairs = tuple((each, pc.field(each)) for each in known.names if each not in fields)
        return computed(self, known, pairs, name, "drop()")

    def rename(self, fields: Mapping[str, str], *, name: str | None = None) -> Stream:
        """Give fields other names: `rename({"old": "new"})`. They stay in their places."""
        name = free_name(self.flow, name, None, "rename")
        known = known_type(self.type, name, "rename")
        for field in fields:
            checks.field(known, field, name, "rename")
        for new in fields.values():
            checks.is_name(new, name, "rename() takes new names that are texts")
        pairs = tuple((fields.get(each, each), pc.field(each)) for each in known.names)
        return computed(self, known, pairs, name, "rename()")

    def distinct(self, *fields: str, within: Duration | None = None, name: str | None = None) -> Stream[RowT_co]:
        """Keep the first row of those that are alike in the fields (in all, if none is named); drop the others.

        With `within` a row counts for so long, in event time, from the row that was kept; without it, forever.
        """
        name = free_name(self.flow, name, None, "distinct")
        if not fields:
            fields = tuple(known_type(self.type, name, "distinct").names)
        checks.fields_of_key(self.type, fields, name, "distinct")
        logic: Logic = FlatScan(keep_first, state_maker(None), self.type)
        if within is not None:
            checks.has_time(self, name, "within=")
            logic = Expiring(logic, lifetime(within, self.time, name, "within"), renews=False)
        return remembering(self, name, logic, Key(fields), "fail")

    def map_batches(
        self,
        function: Callable[[Any], Any] | Callable[[Any, Any], Any],
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        rows: int | None = None,
        wait: WallTime | None = None,
        setup: Callable[[], Any] | None = None,
        setup_per: Literal["process", "thread"] | None = None,
    ) -> Stream[OutT]:
        """Replace an Arrow batch by what the function returns: as many rows, or (rows, input indexes).

        It gets at most `rows` rows at once; where they would be fewer, they may `wait` for others for so long. What
        `setup` makes in each worker is its second argument.
        """
        name = free_name(self.flow, name, function, "map_batches")
        checks.is_callable(function, name, "a function of an Arrow batch")
        refuse_async(function, name, "the function of map_batches()")
        most, seconds, calls = batch_calls(rows, wait, setup, setup_per, name)
        checks.called_with(function, name, ("batch",) if setup is None else ("batch", "client"))
        known = known_type(self.type, name, "map_batches")
        returns = row_type(schema, name)
        if on_error != "fail":
            raise FlowError(
                f'operator {name!r}: map_batches knows on_error="fail" only, because a batch fails as a '
                f"whole; use map() where single rows may fail"
            )
        return applied(self, name, MapBatches(known, function, returns, most, seconds, calls), returns or known)

    def split(
        self, *predicates: Callable[[RowT_co], Any], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream[RowT_co], ...]:
        """Split into one stream per predicate, each row going to the first that holds, and one for the rest."""
        name = free_name(self.flow, name, None, "split")
        for predicate in predicates:
            checks.is_callable(predicate, name, "functions of the row")
            refuse_async(predicate, name, "a predicate of split()")
        ports = (*(f"out{index}" for index in range(len(predicates))), "rest")
        applied(self, name, Split(predicates, on_error=on_error, outputs=ports), *[self.type] * len(ports))
        return tuple(Stream(self.flow, Port(name, index)) for index in range(len(ports)))

    # Fan-in -------------------------------------------------------------------------------------------------

    def union(self, *others: Stream[OutT], name: str | None = None) -> Stream[RowT_co | OutT]:
        """Join streams into one; rows come in the order that a one-row-at-a-time run gives."""
        name = free_name(self.flow, name, None, "union")
        streams = (self, *others)
        checks.one_flow(streams, name)
        types = {stream.type for stream in streams}
        kinds = {stream.time for stream in streams}
        return self.flow.add(
            name,
            Union(),
            tuple(s.port for s in streams),
            (types.pop() if len(types) == 1 else None,),
            kinds.pop() if len(kinds) == 1 else None,
        )

    def merge(self, *others: Stream[OutT], by: str, name: str | None = None) -> Stream[RowT_co | OutT]:
        """Join streams in the order of their event time; rows wait until no earlier one can come."""
        name = free_name(self.flow, name, None, "merge")
        streams = (self, *others)
        checks.one_flow(streams, name)
        for stream in streams:
            checks.merge_time(self.flow.graph(), stream.port.node, by, name, f"merge(by={by!r})")
        return self.union(*others, name=f"{name}.union").sort(name=name)

    def sort(self, *, slack: Duration = 0, name: str | None = None) -> Stream[RowT_co]:
        """Release rows in event-time order, each once the watermark is `slack` past it."""
        name = free_name(self.flow, name, None, "sort")
        checks.has_time(self, name, "sort")
        logic = Sort(slack_of(slack, self.time, name))
        return remembering(self, name, logic, None, "fail", extra_ports=("late",))

    def join(
        self,
        other: Stream[OutT],
        *,
        on: On = None,
        window: WindowSpec | Duration | None = None,
        within: Within | None = None,
        ttl: Duration | None = None,
        combine: Callable[[RowT_co, OutT], Any] | None = None,
        how: How = "inner",
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Join rows of two streams that agree `on` a field, several, {left: right}, or a function; see KeyedStream."""
        left, right = key_both(self, other, on)
        options: Any = {"within": within, "ttl": ttl, "how": how, "schema": schema, "name": name, "on_error": on_error}
        return left.join(right, window, combine, **options)

    def lookup(
        self,
        table: Any,
        *,
        on: On,
        as_of: AsOf = False,
        how: LookupHow = "left",
        fields: Fields = None,
        prefix: str | None = None,
        refresh: str | float | None = None,
        ttl: Duration | None = None,
        schema: Any = None,
        name: str | None = None,
    ) -> Stream:
        """Add to each row the fields of the row that a table, or another stream, has for its key.

        A table is a dict, a list of rows, the path of Parquet files, a reader, a batch DataFrame, or a function that
        returns one of these; it is read once, or again every `refresh`. Of a stream the latest row counts. `on` is a
        field of both, several, or {field of the row: field of the table}. With `as_of` the row counts that is the
        latest by time, not after the row's. A row that finds nothing gets nulls, or is dropped with `how="inner"`.
        `fields` says which fields come along, `prefix` what their names begin with.
        """
        from penstock.flow.keyed import KeyedStream

        name = free_name(self.flow, name, None, "lookup")
        if how not in get_args(LookupHow):
            raise FlowError(f'operator {name!r}: how={how!r}; use "left" or "inner"')
        if isinstance(table, (Stream, KeyedStream)):
            for option, value in (("refresh", refresh), ("schema", schema)):
                if value is not None:
                    raise FlowError(f"operator {name!r}: {option}= is for tables; a stream brings its rows itself")
            left, right = keyed_sides(self, table, on, name)
            return lookup_in_stream(left, right, as_of, how, fields, prefix, ttl, name)
        if ttl is not None:
            raise FlowError(f"operator {name!r}: ttl= is for streams; a table is read again with refresh=")
        return lookup_in_table(self, table, on, as_of, how, fields, prefix, refresh, schema, name)

    # With memory --------------------------------------------------------------------------------------------

    def key_by(
        self, *keys: str | Callable[[RowT_co], Any], ranges: Iterable[Any] | None = None
    ) -> KeyedStream[RowT_co]:
        """Partition by fields, or by a function of the row, for what follows.

        Keys are spread by their hash, or in `ranges`: the bounds between them, ascending, each the least key of the
        range above it. Neighbouring keys are then together. What comes out is the same.
        """
        from penstock.flow.keyed import KeyedStream

        where = self.node.name
        if len(keys) == 1 and callable(keys[0]):
            return KeyedStream(self, Key(function=keys[0], ranges=make_ranges(ranges, None, (), where)))
        fields = tuple(key for key in keys if isinstance(key, str))
        if not keys or len(fields) < len(keys):
            raise FlowError(f"key_by after operator {where!r} needs field names or one function, got {keys!r}")
        checks.fields_of_key(self.type, fields, where)
        return KeyedStream(self, Key(fields, ranges=make_ranges(ranges, self.type, fields, where)))

    def sink(self, name: str, writer: Any = None) -> Flow:
        """Take rows out under a name; without a writer they are kept in memory. Returns the flow."""
        if writer is None and isinstance(name, str) and ("/" in name or name.endswith((".parquet", ".json", ".csv"))):
            raise FlowError(
                f"sink {name!r} would be kept in memory under that name; to write there: "
                f'sink("a name", ps.write.parquet({name!r})), or json, csv'
            )
        writer = checks.wrap(name, as_writer, writer)
        self.flow.add(name, Sink(writer), (self.port,), (), self.time)
        return self.flow
