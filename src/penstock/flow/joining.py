"""Join two keyed streams, or connect them: check what was asked for, and choose the logic that does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import remembering
from penstock.flow.lifetimes import distance, lifetime
from penstock.flow.naming import free_name
from penstock.operators.base import Logic, OnError
from penstock.operators.join import Combine, How, Join, SideBySide
from penstock.operators.process import ProcessLike, process_logic
from penstock.operators.timed_join import Interval, TimedJoin
from penstock.operators.window_folds import ApplyFold
from penstock.operators.windows import TimeWindows, Window, WindowSpec, as_spec, window_logic
from penstock.rows.records import Row, RowType
from penstock.rows.row_types import row_type
from penstock.rows.timing import Arrival, Duration, TimeKind, unit_of

if TYPE_CHECKING:
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import Stream

Within = Duration | tuple[Duration, Duration]
On = Any
"""A field that both sides have, several of them, {left field: right field}, or a function of a row of either side."""


def key_both(left: Stream, right: Stream, on: On) -> tuple[KeyedStream, KeyedStream]:
    """Partition both sides of a join."""
    if not hasattr(right, "key_by"):
        raise FlowError(
            f"a join after operator {left.node.name!r}: the other stream is {right!r}; give a stream without key_by() "
            f"and on=, or write key_by(...) on both"
        )
    if isinstance(on, str) or callable(on):
        return left.key_by(on), right.key_by(on)
    if isinstance(on, Mapping):
        return left.key_by(*on), right.key_by(*on.values())
    if isinstance(on, Iterable):
        fields = tuple(on)
        return left.key_by(*fields), right.key_by(*fields)
    raise FlowError(
        f"a join after operator {left.node.name!r}: on={on!r}; say what both sides agree on: a field, several, "
        f"{{left field: right field}}, or a function of the row"
    )


def join(
    left: KeyedStream,
    right: KeyedStream,
    window: WindowSpec | Duration | None,
    combine: Combine | None,
    within: Within | None,
    ttl: Duration | None,
    how: How,
    schema: Any,
    name: str | None,
    on_error: OnError,
) -> Stream:
    """Join two keyed streams."""
    stream, other = left.stream, right.stream
    name = free_name(stream.flow, name, combine, "join")
    checks.one_flow((stream, other), name)
    if how not in get_args(How):
        raise FlowError(f'operator {name!r}: how={how!r}; use "inner", "left", "right", "outer", "semi" or "anti"')
    checks.joined_keys(left.key, stream.type, right.key, other.type, name)
    given = [
        what for what, value in (("a join window", window), ("within=", within), ("ttl=", ttl)) if value is not None
    ]
    if len(given) != 1:
        raise FlowError(
            f"operator {name!r}: give a join one of these: a window, whose rows are joined; within=(low, high), how "
            f"far the time of a right row may be from that of a left one; ttl=, how long rows wait for others"
        )
    for side in (stream, other):
        checks.has_time(side, name, given[0])
    checks.same_time(stream, other, name)
    made, returns = _combining(left, right, combine, how, schema, name)
    sides = None if stream.type is None or other.type is None else (stream.type, other.type)
    logic: Logic
    if within is not None:
        logic = TimedJoin(_interval(within, stream.time, name), made, how, returns, sides)
    elif ttl is not None:
        logic = TimedJoin(lifetime(ttl, stream.time, name), made, how, returns, sides)
    else:
        assert window is not None
        windows = _windows(window, how, left, name)
        assert made is not None
        logic = Join(windows, made, how, returns)
    # With a time to live there is no late: a row meets what is kept, whenever it comes.
    late = () if ttl is not None else ("late",)
    return remembering(stream, name, logic, left.key, on_error, extra_ports=late, other=other, other_key=right.key)


def connect(
    left: KeyedStream,
    right: KeyedStream,
    process: ProcessLike,
    *,
    schema: Any,
    name: str | None,
    on_error: OnError,
    ttl: Duration | None,
    by: Arrival | None,
) -> Stream:
    """Give the rows of two keyed streams to one process."""
    stream, other = left.stream, right.stream
    process = process() if isinstance(process, type) else process
    name = free_name(stream.flow, name, type(process), "connect")
    checks.one_flow((stream, other), name)
    checks.joined_keys(left.key, stream.type, right.key, other.type, name)
    if by is None:
        checks.same_time(stream, other, name)
    logic = process_logic(process, row_type(schema, name), name, ("on_left", "on_right"))
    return remembering(stream, name, logic, left.key, on_error, other=other, other_key=right.key, ttl=ttl, by=by)


def _windows(window: WindowSpec | Duration, how: How, left: KeyedStream, name: str) -> TimeWindows:
    if how in ("semi", "anti"):
        raise FlowError(f"operator {name!r}: how={how!r} needs within= or ttl=; a window has the other four")
    windows, unit = window_logic(as_spec(window), ApplyFold(_no_fold, None), left.key, name)
    if not isinstance(windows, TimeWindows):
        raise FlowError(f"operator {name!r}: a join needs a tumbling or sliding window, not {window!r}")
    if unit != unit_of(left.stream.time):
        raise FlowError(checks.unit_mismatch(name, "window", window, left.stream.time))
    return windows


def _combining(
    left: KeyedStream, right: KeyedStream, combine: Combine | None, how: How, schema: Any, name: str
) -> tuple[Combine | None, RowType | None]:
    """Return what makes a row of two, None where left rows come out, and the type that the user declared."""
    if how in ("semi", "anti"):
        if combine is not None or schema is not None:
            raise FlowError(
                f"operator {name!r}: how={how!r} gives left rows as they are; leave out combine= and schema=, and "
                f"use map() after it"
            )
        return None, None
    if combine is not None:
        return combine, checks.returns(combine, schema, name, takes=("left", "right"))
    one = checks.known_type(left.stream.type, name, "a join without combine=")
    two = checks.known_type(right.stream.type, name, "a join without combine=")
    shared = left.key.fields if left.key.fields == right.key.fields else ()
    side_by_side = SideBySide(tuple(one.names), tuple(two.names), shared)
    checks.distinct(side_by_side.names(), name, "the join")
    return side_by_side, None


def _interval(within: Within, kind: TimeKind | None, name: str) -> Interval:
    """Read how far rows may be apart; one duration is so far in both directions."""
    if isinstance(within, tuple) and len(within) == 2:
        low, high = (distance(each, within, kind, name, "within") for each in within)
    elif isinstance(within, (tuple, list)):
        raise FlowError(f"operator {name!r}: within={within!r}; give (low, high), or one duration for both directions")
    else:
        high = distance(within, within, kind, name, "within")
        low = -high
    if low > high:
        raise FlowError(
            f"operator {name!r}: within={within!r} holds for no rows: give (low, high) with low <= high, the time of "
            f"the right row less that of the left one"
        )
    return Interval(low, high)


def _no_fold(_window: Window, _rows: list[Row]) -> Row:
    raise AssertionError("a join folds nothing")
