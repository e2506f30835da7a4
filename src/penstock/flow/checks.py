"""Check a flow while it is built; each error names the operator and the fix."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock.errors import FlowError, did_you_mean
from penstock.operators.aggregate_values import TakenValues
from penstock.operators.aggregation import Aggregation
from penstock.operators.base import ERROR_POLICIES, Key, Keyed, OnError, Operator, Source
from penstock.operators.expressions import is_expression
from penstock.plan.graph import Graph, Node
from penstock.rows.records import RowType
from penstock.rows.row_types import return_annotation, row_type, type_from_annotation
from penstock.rows.timing import Arrival, TimeKind

if TYPE_CHECKING:
    from penstock.flow import Stream


_NAME = re.compile(r"[\w .:+-]{1,120}")
MOST_SHARDS = 1 << 16
"""A shard's number goes from task to task in two bytes."""


class DeadLetter(NamedTuple):
    """A row that an operator failed on, with what was raised and where."""

    operator: str
    error: str
    where: str
    row: str
    attempts: int = 1
    """How often the call was made; once, except for functions with `retries=`."""


DEAD_LETTER = typing.cast(RowType, type_from_annotation(DeadLetter))


def flow_name(name: str) -> None:
    """Refuse a flow name that cannot name a directory."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FlowError(f"a flow's name must be 1 to 120 letters, digits, spaces or . : + - _, not {name!r}")


def number_of_shards(name: str, count: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_SHARDS:
        raise FlowError(f"flow {name!r}: shards={count!r}; give a whole number from 1 to {MOST_SHARDS:,}")


def operator_name(nodes: Mapping[str, Node], name: str) -> None:
    if not isinstance(name, str) or not name:
        raise FlowError(f"an operator's name must be text, not {name!r}")
    if name in nodes:
        where = f", the first made at {nodes[name].where}" if nodes[name].where else ""
        raise FlowError(f"the flow has two operators named {name!r}{where}; give one of them another name=")


def wrap(name: str, convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert an argument, naming the operator if that fails."""
    try:
        return convert(value)
    except TypeError as error:
        raise FlowError(f"operator {name!r}: {error}") from None


def is_callable(function: Any, name: str, what: str) -> None:
    if not callable(function):
        raise FlowError(f"operator {name!r} takes {what}, not {function!r}")


def field(row: RowType | None, name: Any, operator: str, option: str) -> pa.Field | None:
    """Find a field, or say which there are; None where the type is not known."""
    if not isinstance(name, str):
        computed = f"; give what is computed a name: {option}(new={name!r})" if is_expression(name) else ""
        raise FlowError(f"operator {operator!r}: {option} takes names of fields, not {name!r}{computed}")
    if row is None:
        return None
    if name not in row.names:
        raise FlowError(
            f"operator {operator!r}: {option} names the field {name!r}, but the rows have "
            f"{', '.join(map(repr, row.names)) or 'no fields'}{did_you_mean(name, row.names)}"
        )
    return row.schema.field(name)


def is_name(name: Any, operator: str, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise FlowError(f"operator {operator!r}: {what}, not {name!r}")


def fields_of_key(row: RowType | None, names: Sequence[str], operator: str, option: str = "key_by") -> None:
    """Check the fields of a key: they exist, they differ, and their values can be hashed alike everywhere."""
    distinct(names, operator, option)
    for name in names:
        declared = field(row, name, operator, option)
        if declared is not None and pa.types.is_nested(declared.type):
            raise FlowError(
                f"operator {operator!r}: {option} names the field {name!r} of type {declared.type}, which cannot "
                f"be a key; use numbers, strings, dates, or a function that returns a tuple of them"
            )


def distinct(names: Sequence[str], operator: str, what: str) -> None:
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise FlowError(f"operator {operator!r}: {what} gives two fields the name {twice[0]!r}; rename one")


def arrival_alone(source: str, by_arrival: bool, **options: Any) -> None:
    """Refuse options of event time where the time of a row is its arrival: it is never late."""
    for option, value in options.items():
        if by_arrival and value:
            raise FlowError(
                f"source {source!r}: {option}={value!r} is for times that rows bring along; with time=ps.arrival leave "
                f"it out"
            )


def seconds_given(value: Any, operator: str, option: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        raise FlowError(f"operator {operator!r}: {option}={value!r}; give a positive number of seconds, or None")


def orderable(row: RowType | None, name: str, operator: str) -> None:
    """Refuse an order_by whose values have no order as integers."""
    if row is None:
        raise FlowError(f"source {operator!r}: order_by={name!r} needs to know the type of that field; give schema=")
    kind = row.schema.field(name).type
    good = (
        (pa.types.is_integer(kind) and kind != pa.uint64())
        or pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_boolean(kind)
    )
    if not good:
        raise FlowError(
            f"source {operator!r}: order_by={name!r} is of type {kind}; it must be a number, a date or a "
            f"timestamp, so convert it in the source, or use sort() on an event time"
        )


def called_with(function: Any, operator: str, arguments: tuple[str, ...], what: str = "its function") -> None:
    """Refuse a function that cannot be called with these; some that are written in C do not tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        given = ", ".join(arguments)
        raise FlowError(
            f"operator {operator!r} calls {what} with ({given}), and {name}{signature} does not take that"
        ) from None


def returns(
    function: Any,
    schema: Any,
    operator: str,
    *,
    takes: tuple[str, ...] = ("row",),
    pair: bool = False,
    item: bool = False,
) -> RowType | None:
    """Find the type of the rows that a function returns: as declared, or from its annotation."""
    is_callable(function, operator, "a function")
    called_with(function, operator, takes)
    if schema is not None:
        return row_type(schema, operator)
    annotation = return_annotation(function)
    if pair:
        inside = typing.get_args(annotation)
        annotation = inside[1] if typing.get_origin(annotation) is tuple and len(inside) == 2 else None
    if item:
        annotation = next(iter(typing.get_args(annotation)), None)
    return None if annotation is None else type_from_annotation(annotation)


def combines_to(function: Any, schema: Any, operator: str, row: RowType | None) -> RowType | None:
    """Find the type of what a function combines rows to: that of the rows where nothing else is said."""
    declared = returns(function, schema, operator, takes=("accumulated", "row"))
    if declared is not None or row is None:
        return declared
    # Only a source may leave fields out.
    return dataclasses.replace(row, optional=frozenset()) if row.form == "record" else row


def options_or_results(
    kind: type | tuple[type, ...], name: Any, on_error: Any, results: dict[str, Any]
) -> tuple[str | None, OnError, dict[str, Any]]:
    """Separate the options of an operator from computed fields that have their names."""
    named: dict[str, Any] = {}
    if isinstance(name, kind):
        named["name"], name = name, None
    if isinstance(on_error, kind):
        named["on_error"], on_error = on_error, "fail"
    return name, on_error, {**named, **results} if named else results


def all_named(unnamed: Sequence[Any]) -> None:
    if unnamed:
        raise FlowError(
            "aggregate() needs a name for each result: aggregate(n=ps.agg.count(), spent=ps.agg.sum(field))"
        )


def aggregate_fields(bundle: Aggregation, row: RowType | None, operator: str, others: Sequence[str]) -> None:
    """Check the fields that aggregates read, and that their names are not those of the key or window."""
    distinct((*others, *bundle.names), operator, "aggregate()")
    for name, aggregate in zip(bundle.names, bundle.aggregates, strict=True):
        value = aggregate.value
        for each in value.fields if isinstance(value, TakenValues) else [value] if isinstance(value, str) else []:
            field(row, each, operator, f"{name}={aggregate.label}(...)")


def window_results(names: Sequence[str], bounds: Sequence[str], operator: str) -> None:
    """Refuse a result under the name of a field that tells the window."""
    for name in names:
        if name in bounds:
            raise FlowError(
                f"operator {operator!r}: aggregate({name}=...) has the name of a field that tells the window; give the "
                f"result another name, for example first_{name}="
            )


def has_time(stream: Stream, operator: str, what: str) -> None:
    if stream.time is None:
        raise FlowError(
            f"operator {operator!r}: {what} needs event time, and the rows of {stream.node.name!r} have none; "
            f"give time= to every source above it, with the same kind of field"
        )


def time_by(stream: Stream, by: Arrival | None, operator: str) -> TimeKind | None:
    """Return what the times of an operator are: those of its rows, or with `by` the time of day."""
    if by is None:
        return stream.time
    if not isinstance(by, Arrival):
        raise FlowError(
            f"operator {operator!r}: by={by!r}; leave it out for event time, which is the time= of the source, or give "
            f"ps.arrival, the time of day at which rows arrive"
        )
    return "timestamp"


def unit_mismatch(operator: str, option: str, value: Any, kind: TimeKind | None) -> str:
    if kind == "integer":
        return (
            f"operator {operator!r}: {option}={value!r} is a duration, but the time field is an integer of "
            f"unknown unit; give an integer in its unit, or make the field a timestamp"
        )
    if kind is not None:
        return (
            f"operator {operator!r}: {option}={value!r} is a bare number, but the time field is a timestamp; "
            f'write for example "10 min" or a timedelta'
        )
    return f"operator {operator!r}: {option}={value!r} needs event time; give time= to every source above it"


def one_flow(streams: Sequence[Stream], operator: str) -> None:
    names = {id(stream.flow): stream.flow.name for stream in streams}
    if len(names) > 1:
        raise FlowError(
            f"operator {operator!r} joins streams of different flows ({', '.join(names.values())}); make all "
            f"sources on one Flow"
        )


def same_time(left: Stream, right: Stream, operator: str) -> None:
    if left.time != right.time:
        raise FlowError(
            f"operator {operator!r} joins streams whose times differ: {left.node.name!r} has {left.time} and "
            f"{right.node.name!r} has {right.time} times; give time= the same kind of field in all sources"
        )


def merge_time(graph: Graph, node: str, by: str, operator: str, what: str) -> None:
    """Check that the sources above a stream have their event time in the field that an operator names as its time."""
    for name, other in graph.nodes.items():
        above = other.operator
        if isinstance(above, Source) and node in graph.below(name) and above.time != by:
            raise FlowError(
                f"operator {operator!r}: {what} needs time={by!r} on source {name!r}, which has time={above.time!r}"
            )
        if isinstance(above, Keyed) and above.by_arrival and node in graph.below(name):
            raise FlowError(
                f"operator {operator!r}: {what} needs event time, and the rows of {name!r} have the time of day, by "
                f"by=ps.arrival; use sort()"
            )


def joined_keys(left: Key, left_row: RowType | None, right: Key, right_row: RowType | None, operator: str) -> None:
    """Refuse a join whose keys can never be equal, or are not spread alike."""
    if left.ranges != right.ranges:
        raise FlowError(f"operator {operator!r} joins keys in different ranges; give both key_by() the same ranges=")
    if left.function or right.function or left_row is None or right_row is None:
        return
    if len(left.fields) != len(right.fields):
        raise FlowError(f"operator {operator!r} joins on ({left}) and ({right}): give both sides as many key fields")
    for mine, other in zip(left.fields, right.fields, strict=True):
        a, b = left_row.schema.field(mine).type, right_row.schema.field(other).type
        numeric = all(pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_boolean(k) for k in (a, b))
        if a != b and not numeric:
            raise FlowError(
                f"operator {operator!r} joins {mine!r} ({a}) with {other!r} ({b}), which are never equal; "
                f"convert one of them"
            )


def with_errors(operator: Any, name: str) -> tuple[Operator, tuple[RowType, ...]]:
    """Add the error port to an operator that sends dead letters."""
    if operator.on_error not in ERROR_POLICIES:
        raise FlowError(f'operator {name!r}: on_error={operator.on_error!r}; use "fail", "skip" or "dead_letter"')
    if operator.on_error != "dead_letter":
        return operator, ()
    return dataclasses.replace(operator, outputs=(*operator.outputs, "errors")), (DEAD_LETTER,)


OTHER_WORDS = {
    "key_by(...)": "groupBy groupby group_by keyBy partition_by",
    "filter(...)": "where",
    "map(...)": "transform",
    "flat_map(...)": "flatMap explode",
    'select("*", name=expression), which keeps all fields and adds one': "withColumn with_column with_columns assign",
    "rename(...)": "withColumnRenamed",
    "aggregate(...)": "agg",
    "scan(function, initial)": "fold stateful_map map_with_state mapGroupsWithState transformWithState accumulate",
    "window(ps.session(gap))": "session session_window session_windows",
    "window(ps.sliding(size, every))": "sliding hop hopping sliding_window",
    "window(size)": "tumbling tumbling_window tumbling_windows",
    "sort(slack=...)": "orderBy order_by sort_by",
    "distinct(fields)": "dropDuplicates drop_duplicates unique deduplicate dropDuplicatesWithinWatermark",
    "time= and slack= of flow.source(...)": "withWatermark with_watermark watermark assign_timestamps_and_watermarks",
    "sink(name, ps.write...)": "write writeStream write_stream to to_kafka output add_sink sink_to",
    "sink(name, ps.write.callback(function))": "foreach for_each inspect",
    "sink(name, ps.write.console())": "print show display",
    "sink(name, ps.write.frame(function))": "foreachBatch for_each_batch",
    "split(...), or two filters of one stream": "branch side_output",
}
"""What to write, by the words that other systems have for it."""


def missing_method(stream: object, name: str) -> AttributeError:
    from penstock.flow.keyed import KeyedStream, WindowedStream
    from penstock.flow.stream import Stream

    kind = type(stream).__name__
    fix = ""
    if not name.startswith("_"):
        if isinstance(stream, WindowedStream) and (hasattr(Stream, name) or hasattr(KeyedStream, name)):
            fix = (
                "; say first what comes out of each window: aggregate(...), count(), sum(...), reduce(...), apply(...)"
            )
        elif isinstance(stream, KeyedStream) and hasattr(Stream, name):
            fix = f"; {name}() needs no key: write it before key_by(...), or after what the key is for"
        elif isinstance(stream, Stream) and hasattr(KeyedStream, name):
            fix = f"; {name}() needs a key: write key_by(...) before it, on both streams"
        elif hasattr(WindowedStream, name):
            fix = f"; {name}() needs a window: write window(...) before it, or aggregate(...) for a running value"
        else:
            fix = _other_word(stream, name)
    return AttributeError(f"{kind} has no {name!r}{fix}", name=name, obj=stream)


def _other_word(stream: object, name: str) -> str:
    """Return what a name that no stream has was probably meant for."""
    for here, elsewhere in OTHER_WORDS.items():
        if name in elsewhere.split():
            return f"; write {here}"
    return did_you_mean(name, [each for each in dir(type(stream)) if not each.startswith("_")])


def refuse_without_key(other: Any, what: str, operator: str) -> None:
    from penstock.flow.keyed import KeyedStream

    if not isinstance(other, KeyedStream):
        raise FlowError(
            f"{what} after operator {operator!r}: the other stream has no key; write key_by(...) on it, too, with "
            f"fields of the same types"
        )
