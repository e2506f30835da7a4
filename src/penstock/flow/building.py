"""Put operators after a stream: what the methods of streams have in common, options and hints they take, names.

Names that Penstock gives, by the function or by what is declared, give way to names that users give.

Hints stand on the streams that an operator reads, `stream.threaded()` and `stream.parallel(3)`, and never change what
comes out. Engines that have no threads of their own to place (Spark, the sequential one) pass over them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.operators.aggregate_values import TakenValues
from penstock.operators.base import Key, Keyed, Logic, OnError, Operator, Sink, Source, Union
from penstock.operators.by_time import Expiring
from penstock.operators.calls import CallOptions, Calls, WallTime, make_calls, positive_seconds
from penstock.operators.expressions import is_expression, known_type
from penstock.operators.join import Lifetime
from penstock.operators.pattern import Absent, Place, Step
from penstock.operators.stateless import PerRow, Select, evaluate, is_async_function, refuse_async, rows_in_flight
from penstock.operators.window_folds import Ranking
from penstock.plan.graph import Naming, Node, Port
from penstock.rows.records import RowType, record_type
from penstock.rows.timing import Arrival, Duration, Ticks, TimeKind, kind_of, signed_ticks, unit_of

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.flow.stream import Stream

_NAMELESS = ("functools", "operator", "builtins", "itertools")
"""Objects of these modules that can be called, such as partials, are not what a user would name an operator by."""


class AutomaticName(str):
    """A name that the user did not give, and how it came about."""

    naming: Naming


def automatic_name(function: Any, kind: str, taken: Container[str]) -> AutomaticName:
    """Return a free name for an operator: that of its function, or of its kind where it has none or no function."""
    base = None if function is None else own_name(function)
    return numbered(Naming(base or kind, function is None or base is not None), taken)


def free_name(flow: Flow, given: str | None, function: Any, kind: str) -> str:
    """Return the name that the user gave, or one that is free in the flow."""
    return automatic_name(function, kind, flow.nodes) if given is None else given


def numbered(naming: Naming, taken: Container[str]) -> AutomaticName:
    """Return the name, or the first with a number that is free."""
    name, number = naming.base, 1
    while name in taken:
        number += 1
        name = f"{naming.base}_{number}"
    automatic = AutomaticName(name)
    automatic.naming = naming
    return automatic


def own_name(function: Any) -> str | None:
    """Return the name of a function or class, or of the class of an object that can be called; None for a lambda."""
    name = getattr(function, "__name__", None)
    if name is None and type(function).__module__ not in _NAMELESS:
        name = type(function).__name__
    return name if isinstance(name, str) and name.isidentifier() else None


def described(stream: Stream, kind: str, key: Key | None = None) -> str:
    """Return the text that stands for a stream, or for a keyed or windowed one of its rows."""
    node, output = stream.node, stream.node.operator.outputs[stream.port.index]
    of = "" if output == "out" else f".{output}"
    row = stream.type
    fields = "rows of any kind" if row is None else ", ".join(f"{field.name}: {field.type}" for field in row.schema)
    keyed = "" if key is None else f"; by {key}"
    time = "" if stream.time is None else f"; event time: {stream.time}"
    return f"<{kind} {node.name!r}{of} of flow {stream.flow.name!r}: {fields}{keyed}{time}>"


def applied(stream: Stream, name: str, operator: Operator, *types: RowType | None) -> Stream:
    operator, letters = checks.with_errors(operator, name)
    return stream.flow.add(name, operator, (stream.port,), (*types, *letters), stream.time)


def remembering(
    stream: Stream,
    name: str,
    logic: Logic,
    key: Key | None,
    on_error: OnError,
    *,
    extra_ports: tuple[str, ...] = (),
    other: Stream | None = None,
    other_key: Key | None = None,
    ttl: Duration | None = None,
    by: Arrival | None = None,
) -> Stream:
    """Add a keyed operator, or a whole-stream one where there is no key; its time is that of its rows, or `by`."""
    inputs = [stream] if other is None else [stream, other]
    time = checks.time_by(stream, by, name)
    for each in inputs if by is None and (ttl is not None or logic.needs_time) else ():
        checks.has_time(each, name, "a time window" if logic.needs_time else "ttl=")
    if ttl is not None:
        logic = Expiring(logic, lifetime(ttl, time, name))
    keys = None if key is None else tuple(k for k in (key, other_key) if k is not None)
    result = logic.output_type([each.type for each in inputs], time or "integer")
    keyed = Keyed(logic, keys, by is not None, on_error=on_error, outputs=("out", *extra_ports))
    operator, letters = checks.with_errors(keyed, name)
    types = {each.type for each in inputs}
    late = [types.pop() if len(types) == 1 else None] * len(extra_ports)
    return stream.flow.add(name, operator, tuple(s.port for s in inputs), (result, *late, *letters), time)


def refuse_no_streams(streams: tuple[Any, ...], what: str) -> None:
    """Refuse anything but streams, at least one, for an operator that reads several."""
    from penstock.flow.stream import Stream

    if not streams or not all(isinstance(stream, Stream) for stream in streams):
        raise FlowError(f"{what} needs the streams that it reads, each without key_by, got {streams!r}")


def with_ports(streams: tuple[Stream, ...], name: str, logic: Logic, types: tuple[RowType | None, ...]) -> Any:
    """Add an operator over several streams; return the stream that leaves it, a tuple of them where it has several."""
    from penstock.flow.stream import Stream

    flow, times = streams[0].flow, {stream.time for stream in streams}
    ports = ("out",) if len(types) == 1 else tuple(f"out{index}" for index in range(len(types)))
    inputs = tuple(stream.port for stream in streams)
    flow.add(name, Keyed(logic, None, outputs=ports), inputs, types, times.pop() if len(times) == 1 else None)
    leaving = tuple(Stream(flow, Port(name, index)) for index in range(len(types)))
    return leaving[0] if len(leaving) == 1 else leaving


def lifetime(span: Duration, kind: TimeKind | None, name: str, option: str = "ttl") -> Lifetime:
    """Return how long something is kept, or refuse a time of another unit than the rows'."""
    amount = distance(span, span, kind, name, option)
    if amount <= 0:
        raise FlowError(f"operator {name!r}: {option}={span!r} keeps nothing; give more than 0")
    return Lifetime(amount)


def distance(duration: Duration, given: Any, kind: TimeKind | None, name: str, option: str) -> Ticks:
    """Return a span of event time, or refuse one of another unit than the rows have."""
    amount, unit = signed_ticks(duration, name, option)
    if amount and unit != unit_of(kind):  # 0 fits every unit
        raise FlowError(checks.unit_mismatch(name, option, given, kind))
    return amount


def slack_of(slack: Duration, kind: TimeKind | None, name: str) -> Ticks:
    """Return how far times may be behind the latest; a slack below nothing would make every row late."""
    amount = distance(slack, slack, kind, name, "slack")
    if amount < 0:
        raise FlowError(f"operator {name!r}: slack={slack!r} is negative; give 0 or more")
    return amount


def time_kind(row: RowType | None, field: str, name: str, whose: str = "operator") -> TimeKind:
    """Return what the times in a field are; refuse a field that has none."""
    declared = checks.field(row, field, name, "time")
    if declared is None:
        raise FlowError(f"{whose} {name!r}: time={field!r} needs to know the type of that field; give schema=")
    kind = kind_of(declared.type)
    if kind is None:
        raise FlowError(
            f"{whose} {name!r}: time={field!r} is of type {declared.type}; event time must be a timestamp, a date or "
            f"an integer, so convert it first"
        )
    return kind


def arguments_of(options: CallOptions) -> tuple[str, ...]:
    return ("row", "client") if {"setup", "setup_per"} & options.keys() else ("row",)


def calls_of(
    row: RowType | None,
    function: Any,
    waits: bool | None,
    in_flight: int | None,
    options: CallOptions,
    name: str,
    *,
    yields: bool = False,
) -> tuple[int | None, Calls | None]:
    """Return how many rows of a function to wait for at once, and how its calls are made; refuse what is wrong."""
    calls = make_calls(options, waits, name)
    if calls is not None:
        for field in () if calls.cache is None else calls.cache.fields:
            checks.field(row, field, name, "the cache")
        waits = True if calls.waits else waits
        if calls.setup is not None:
            checks.called_with(calls.setup, name, (), "its setup=")
        if is_async_function(calls.setup) and not is_async_function(function):
            raise FlowError(
                f"operator {name!r}: its setup= is an async def, and its function is not; make both async def, or "
                f"neither"
            )
    return rows_in_flight(function, waits, in_flight, name, yields=yields), calls


def batch_calls(
    rows: int | None, wait: WallTime | None, setup: Any, setup_per: Any, name: str
) -> tuple[int | None, float | None, Calls | None]:
    """Return how many rows a call over batches gets, how long they may wait for others, and its set-up."""
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
        raise FlowError(f"operator {name!r}: rows={rows!r}; give a whole number of rows, 1 or more")
    if wait is not None and rows is None:
        raise FlowError(f"operator {name!r}: wait={wait!r} without rows=; say how many rows to wait for")
    if is_async_function(setup):
        raise FlowError(f"operator {name!r}: its setup= is an async def, and its function is not; make it a plain one")
    given: Any = {"setup": setup, "setup_per": setup_per}
    seconds = None if wait is None else positive_seconds(wait, name, "wait")
    calls = make_calls(given, None, name)
    if setup is not None:
        checks.called_with(setup, name, (), "its setup=")
    return rows, seconds, calls


def computed(
    stream: Stream, known: RowType, pairs: tuple[tuple[str, Any], ...], name: str, what: str, on_error: OnError = "fail"
) -> Stream:
    if not pairs:
        raise FlowError(f"operator {name!r}: {what} must leave at least one field")
    checks.distinct([field for field, _ in pairs], name, what)
    result = record_type(evaluate(known.encode([]), pairs).schema)
    return applied(stream, name, Select(known, pairs, result, on_error=on_error), result)


def ranking(stream: Stream, count: int, by: Any, largest: bool, name: str, others: tuple[str, ...]) -> Ranking:
    """Check what rows are ranked by, and that what is added to them has names of its own."""
    known = known_type(stream.type, name, "top")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise FlowError(f"operator {name!r}: top({count!r}); give a whole number of rows, 1 or more")
    for other in others:
        if other in known.names:
            raise FlowError(
                f"operator {name!r}: top() adds a field {other!r} to rows that have one; rename theirs before, for "
                f'example by rename({{"{other}": "{other}_before"}})'
            )
    if isinstance(by, str):
        checks.field(known, by, name, "top(by=...)")
    elif not callable(by) and not is_expression(by):
        raise FlowError(f"operator {name!r}: top(by={by!r}); give a field, an expression or a function of the row")
    taken = TakenValues((by,)).bound(known, name, "top")
    kind = taken.kind()
    if kind is not None and pa.types.is_nested(kind):
        raise FlowError(f"operator {name!r}: top(by=...) is of the type {kind}, which has no order; give a part of it")
    return Ranking(count, taken, known, largest)


def kind_of_times(stream: Stream, time: str | None, name: str) -> TimeKind:
    """Return what the times are that a pattern compares."""
    if time is None:
        checks.has_time(stream, name, "a pattern without time=")
        assert stream.time is not None
        return stream.time
    return time_kind(known_type(stream.type, name, "time="), time, name)


def places_of(steps: tuple[Step | Absent, ...], name: str) -> tuple[Place, ...]:
    """Put the steps of a pattern in their places; refuse those that make none."""
    places: list[Place] = []
    for each in steps:
        if not isinstance(each, (Step, Absent)):
            raise FlowError(
                f'operator {name!r}: {each!r} is no step; give ps.step("name", predicate) or ps.absent("name", '
                f"predicate), one after the other"
            )
        checks.is_callable(each.predicate, name, f"a predicate for {each.name!r}, which is a function of the row")
        refuse_async(each.predicate, name, f"the predicate of {each.name!r}")
        if isinstance(each, Step):
            places.append(Place(each.name, each.predicate, *_times(each, name)))
        elif not places:
            raise FlowError(
                f"operator {name!r}: {each.name!r} is absent before the first step, and since when is not known; "
                f"begin with ps.step(...)"
            )
        else:
            last = places.pop()
            places.append(Place(last.name, last.predicate, last.low, last.high, (*last.barred, each.predicate)))
    if not places:
        raise FlowError(f'operator {name!r}: a pattern needs a step; give ps.step("name", predicate)')
    names = [each.name for each in steps]
    wrong = [each for each in names if not isinstance(each, str) or not each]
    if wrong:
        raise FlowError(f"operator {name!r}: a step's name must be text, not {wrong[0]!r}")
    twice = [each for index, each in enumerate(names) if each in names[:index]]
    if twice:
        raise FlowError(f"operator {name!r}: two steps are named {twice[0]!r}; rename one")
    return tuple(places)


def _times(step: Step, name: str) -> tuple[int, int | None]:
    """Read how many rows a step takes: at least, and at most."""
    times = (1, None) if step.times == "+" else step.times
    low, high = times if isinstance(times, tuple) and len(times) == 2 else (times, times)
    good = all(isinstance(each, int) and not isinstance(each, bool) for each in (low, low if high is None else high))
    if not good or low < 1 or (high is not None and high < low):  # type: ignore[operator]
        raise FlowError(
            f"operator {name!r}: times={step.times!r} of the step {step.name!r}; give a whole number of rows, 1 or "
            f'more, (least, most) with None for any number, or "+" for one or more'
        )
    return low, high  # type: ignore[return-value]


def replicas_hint(node: Node) -> int | None:
    """Return how many replicas the streams that an operator reads ask for; None where they ask for none."""
    asked = {port.parallel for port in node.inputs if port.parallel is not None}
    if len(asked) > 1:
        counts = " and ".join(map(str, sorted(asked)))
        raise FlowError(
            f"operator {node.name!r}: the streams that it reads ask for {counts} replicas; "
            f"give both the same parallel(...), or only one of them"
        )
    return asked.pop() if asked else None


def is_placed(node: Node) -> bool:
    """Tell whether hints say how an operator is to run."""
    return any(port.threaded or port.parallel is not None for port in node.inputs)


def refuse_replicas(node: Node) -> None:
    reason = _why_none(node)
    if reason is not None:
        raise FlowError(f"operator {node.name!r} cannot have replicas: {reason}")


def check_hints(nodes: Iterable[Node]) -> None:
    for node in nodes:
        if replicas_hint(node) is not None:
            refuse_replicas(node)


def check_count(count: object, where: str) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise FlowError(f"{where}: {count!r} replicas; give a whole number of at least 1")
    return count


def _why_none(node: Node) -> str | None:
    operator = node.operator
    if isinstance(operator, Source):
        return "it is a source; read its parts as several sources and union them"
    if isinstance(operator, Sink):
        return "a sink writes one batch after the other; put what takes long in a map() before it"
    if isinstance(operator, Union):
        return "it only joins streams; give them to what follows"
    if isinstance(operator, Keyed) and operator.kind != "partitioned":
        return "it keeps one state for the whole stream; use key_by(...) before it, so that each key has its own"
    if isinstance(operator, PerRow) and operator.in_flight is not None:
        return f"its function waits, for up to {operator.in_flight} rows at once; set in_flight= instead"
    return None
