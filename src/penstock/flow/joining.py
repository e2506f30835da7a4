"""Bring two keyed streams, or a stream and a table, together: check what was asked for, and choose what does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.tables import make_table
from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import applied, distance, remembering
from penstock.operators.base import Key, Logic
from penstock.operators.expressions import known_type
from penstock.operators.join import Combine, How, Interval, SideBySide
from penstock.operators.lookup import Beside, Brought, Latest, LatestAsOf, Lookup, LookupHow
from penstock.operators.window_folds import ApplyFold
from penstock.operators.windows import TimeWindows, Window, WindowSpec, as_spec, window_logic
from penstock.rows.records import Row, RowType
from penstock.rows.timing import Duration, TimeKind, seconds, unit_of

if TYPE_CHECKING:
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import Stream


Within = Duration | tuple[Duration, Duration]
On = Any
"""A field that both sides have, several of them, {left field: right field}, or a function of a row of either side."""


def key_both(left: Stream, right: Stream, on: On) -> tuple[KeyedStream, KeyedStream]:
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


def join_windows(window: WindowSpec | Duration, how: How, left: KeyedStream, name: str) -> TimeWindows:
    """Return the windows of a join; refuse what it cannot have."""
    if how in ("semi", "anti"):
        raise FlowError(f"operator {name!r}: how={how!r} needs within= or ttl=; a window has the other four")
    windows, unit = window_logic(as_spec(window), ApplyFold(_no_fold, None), left.key, name)
    if not isinstance(windows, TimeWindows):
        raise FlowError(f"operator {name!r}: a join needs a tumbling or sliding window, not {window!r}")
    if unit != unit_of(left.stream.time):
        raise FlowError(checks.unit_mismatch(name, "window", window, left.stream.time))
    return windows


def combining(
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
    one = known_type(left.stream.type, name, "a join without combine=")
    two = known_type(right.stream.type, name, "a join without combine=")
    shared = left.key.fields if left.key.fields == right.key.fields else ()
    side_by_side = SideBySide(tuple(one.names), tuple(two.names), shared)
    checks.distinct(side_by_side.names(), name, "the join")
    return side_by_side, None


def interval(within: Within, kind: TimeKind | None, name: str) -> Interval:
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


Fields = str | Iterable[str] | Mapping[str, str] | None
AsOf = bool | str | Mapping[str, str]


def lookup_in_table(
    stream: Stream,
    given: Any,
    on: On,
    as_of: AsOf,
    how: LookupHow,
    fields: Fields,
    prefix: str | None,
    refresh: str | float | None,
    schema: Any,
    name: str,
) -> Stream:
    pairs = _pairs(on, name, "on")
    row = known_type(stream.type, name, "a lookup")
    mine, others = tuple(left for left, _ in pairs), tuple(right for _, right in pairs)
    checks.fields_of_key(row, mine, name)
    table = make_table(given, others, schema, name)
    for each in others:
        _table_field(table.type, each, name, "on")
    checks.joined_keys(Key(mine), row, Key(others), table.type, name)
    times = None
    if as_of is True:
        raise FlowError(
            f"operator {name!r}: as_of=True is for streams; name the field of the row, and that of the table from "
            f'which on a row of it holds: as_of={{"at": "valid_from"}}, or as_of="at" where both have it'
        )
    if as_of is not False:
        (times,) = _pairs(as_of, name, "as_of", one=True)
        _check_times(row, table.type, times, name)
    period = None if refresh is None else seconds(refresh, "refresh", name)
    checks.seconds_given(period, name, "refresh")
    brought = _brought(row, table.type, others, fields, prefix, name)
    result = brought.result_type(row, table.type)
    lookup = Lookup(row, pairs, times, how, brought, result, refresh=period, table=table)
    if table.at_hand:
        lookup.over(table.read(name), name)  # a key with several rows is refused here
    return applied(stream, name, lookup, result)


def lookup_in_stream(
    left: KeyedStream,
    right: KeyedStream,
    as_of: AsOf,
    how: LookupHow,
    fields: Fields,
    prefix: str | None,
    ttl: Duration | None,
    name: str,
) -> Stream:
    stream, other = left.stream, right.stream
    checks.one_flow((stream, other), name)
    checks.joined_keys(left.key, stream.type, right.key, other.type, name)
    checks.same_time(stream, other, name)
    row = known_type(stream.type, name, "a lookup")
    table = known_type(other.type, name, "a lookup in a stream")
    shared = right.key.fields if left.key.fields else ()
    brought = _brought(row, table, shared, fields, prefix, name)
    combine = Beside(tuple(row.names), tuple(table.names), brought)
    logic: Logic = Latest(combine, how)
    if as_of is not False:
        for side, number in ((stream, 0), (other, 1)):
            checks.has_time(side, name, "as_of=")
            if as_of is not True:
                (times,) = _pairs(as_of, name, "as_of", one=True)
                checks.merge_time(stream.flow.graph(), side.port.node, times[number], name, f"as_of={as_of!r}")
        logic = LatestAsOf(combine, how)
    late = ("late",) if as_of is not False else ()
    return remembering(
        stream, name, logic, left.key, "fail", extra_ports=late, other=other, other_key=right.key, ttl=ttl
    )


def keyed_sides(stream: Stream, table: Stream | KeyedStream, on: On, name: str) -> tuple[KeyedStream, KeyedStream]:
    from penstock.flow.keyed import KeyedStream

    if isinstance(table, KeyedStream):
        if isinstance(on, Mapping):
            raise FlowError(
                f"operator {name!r}: the stream has its key by key_by() already; give on= the fields of the row alone"
            )
        fields = on if callable(on) else tuple(left for left, _ in _pairs(on, name, "on"))
        return stream.key_by(*((fields,) if callable(fields) else fields)), table
    return key_both(stream, table, on)


def _pairs(given: Any, name: str, option: str, *, one: bool = False) -> tuple[tuple[str, str], ...]:
    """Read fields that both sides have, or {field of the row: field of the table}."""
    if isinstance(given, str):
        pairs: tuple[Any, ...] = ((given, given),)
    elif isinstance(given, Mapping):
        pairs = tuple(given.items())
    elif isinstance(given, Iterable):
        pairs = tuple((each, each) for each in given)
    else:
        pairs = ()
    good = pairs and all(isinstance(each, str) for pair in pairs for each in pair)
    if not good or (one and len(pairs) != 1):
        many = "" if one else ", several"
        raise FlowError(
            f"operator {name!r}: {option}={given!r}; give a field that the row and the table have{many}, or "
            f"{{field of the row: field of the table}}"
        )
    return pairs


def _table_field(table: RowType, field: str, name: str, option: str) -> pa.Field:
    return checks.field(table, field, name, f"{option}= in its table")


def _check_times(row: RowType, table: RowType, times: tuple[str, str], name: str) -> None:
    mine = checks.field(row, times[0], name, "as_of")
    assert mine is not None
    a, b = mine.type, _table_field(table, times[1], name, "as_of").type
    numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (a, b))
    if pa.types.is_nested(a) or (a != b and not numbers):
        raise FlowError(
            f"operator {name!r}: as_of compares {times[0]!r} ({a}) with {times[1]!r} ({b}) of its table, which have no "
            f"common order; convert one of them"
        )


def _brought(
    row: RowType, table: RowType, shared: tuple[str, ...], fields: Fields, prefix: str | None, name: str
) -> Brought:
    """Return which fields of a table come along, and what they are called."""
    if fields is None:
        named = {each: each for each in table.names if each not in shared}
    elif isinstance(fields, Mapping):
        named = dict(fields)
    else:
        names: Iterable[Any] = fields if isinstance(fields, Iterable) and not isinstance(fields, str) else (fields,)
        named = {each: each for each in names}
    for each, new in named.items():
        _table_field(table, each, name, "fields")
        checks.is_name(new, name, "fields= takes new names that are texts")
    if prefix is not None:
        checks.is_name(prefix, name, "prefix= takes a text")
        named = {each: prefix + as_name for each, as_name in named.items()}
    elif not isinstance(fields, Mapping):
        named = {each: f"{each}_right" if each in row.names else each for each in named}
    checks.distinct((*row.names, *named.values()), name, "lookup()")
    return Brought(tuple(named), tuple(named.values()))
