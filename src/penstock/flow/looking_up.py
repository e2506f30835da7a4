"""Look rows up in a table or a stream: check what was asked for, and choose the operator that does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from penstock.connectors.tables import make_table
from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import applied, remembering
from penstock.flow.joining import On, key_both
from penstock.flow.naming import free_name
from penstock.operators.base import Key, Logic
from penstock.operators.latest import Beside, Latest, LatestAsOf
from penstock.operators.lookup import Brought, Lookup, LookupHow
from penstock.rows.records import RowType
from penstock.rows.timing import Duration, seconds

if TYPE_CHECKING:
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import Stream

Fields = str | Iterable[str] | Mapping[str, str] | None
AsOf = bool | str | Mapping[str, str]


def lookup(
    stream: Stream,
    table: Any,
    on: On,
    as_of: AsOf,
    how: LookupHow,
    fields: Fields,
    prefix: str | None,
    refresh: str | float | None,
    ttl: Duration | None,
    schema: Any,
    name: str | None,
) -> Stream:
    """Look rows up in a table, or in the latest rows of a stream."""
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import Stream

    name = free_name(stream.flow, name, None, "lookup")
    if how not in get_args(LookupHow):
        raise FlowError(f'operator {name!r}: how={how!r}; use "left" or "inner"')
    if isinstance(table, (Stream, KeyedStream)):
        for option, value in (("refresh", refresh), ("schema", schema)):
            if value is not None:
                raise FlowError(f"operator {name!r}: {option}= is for tables; a stream brings its rows itself")
        left, right = _keyed_sides(stream, table, on, name)
        return _in_stream(left, right, as_of, how, fields, prefix, ttl, name)
    if ttl is not None:
        raise FlowError(f"operator {name!r}: ttl= is for streams; a table is read again with refresh=")
    return _in_table(stream, table, _pairs(on, name, "on"), as_of, how, fields, prefix, refresh, schema, name)


def _in_table(
    stream: Stream,
    given: Any,
    on: tuple[tuple[str, str], ...],
    as_of: AsOf,
    how: LookupHow,
    fields: Fields,
    prefix: str | None,
    refresh: str | float | None,
    schema: Any,
    name: str,
) -> Stream:
    row = checks.known_type(stream.type, name, "a lookup")
    mine, others = tuple(left for left, _ in on), tuple(right for _, right in on)
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
    lookup = Lookup(row, on, times, how, brought, result, refresh=period, table=table)
    if table.at_hand:
        lookup.over(table.read(name), name)  # a key with several rows is refused here
    return applied(stream, name, lookup, result)


def _in_stream(
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
    row = checks.known_type(stream.type, name, "a lookup")
    table = checks.known_type(other.type, name, "a lookup in a stream")
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


def _keyed_sides(stream: Stream, table: Stream | KeyedStream, on: On, name: str) -> tuple[KeyedStream, KeyedStream]:
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
    """Refuse times that cannot be compared."""
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
    if prefix is not None:
        named = {each: prefix + as_name for each, as_name in named.items()}
    elif not isinstance(fields, Mapping):
        named = {each: f"{each}_right" if each in row.names else each for each in named}
    checks.distinct((*row.names, *named.values()), name, "lookup()")
    return Brought(tuple(named), tuple(named.values()))
