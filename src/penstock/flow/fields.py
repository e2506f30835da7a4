"""Operators that are told fields instead of functions: which to keep, under what names, and which rows are alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import applied, remembering
from penstock.flow.lifetimes import lifetime
from penstock.flow.naming import free_name
from penstock.operators.aggregate_values import TakenValues
from penstock.operators.base import Key, Logic, OnError
from penstock.operators.expiring import Expiring
from penstock.operators.expressions import bound, is_expression
from penstock.operators.initial import state_maker
from penstock.operators.ranking import LEFT, RANK, Ranking, RunningTop
from penstock.operators.scan import FlatScan, keep_first
from penstock.operators.stateless import Select, evaluate
from penstock.rows.records import RowType, record_type
from penstock.rows.timing import Duration

if TYPE_CHECKING:
    from penstock.flow.stream import Stream


def select(
    stream: Stream, fields: tuple[str, ...], expressions: Mapping[str, Any], name: str | None, on_error: OnError
) -> Stream:
    """Keep fields and compute others."""
    name = free_name(stream.flow, name, None, "select")
    known = checks.known_type(stream.type, name, "select")
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
    computed = ((field, bound(each, known, name, "select")[0]) for field, each in expressions.items())
    pairs = (*((field, pc.field(field)) for field in fields), *computed)
    return _computed(stream, known, pairs, name, "select()", on_error)


def drop(stream: Stream, fields: tuple[str, ...], name: str | None) -> Stream:
    """Leave fields out."""
    name = free_name(stream.flow, name, None, "drop")
    known = checks.known_type(stream.type, name, "drop")
    for field in fields:
        checks.field(known, field, name, "drop")
    pairs = tuple((each, pc.field(each)) for each in known.names if each not in fields)
    return _computed(stream, known, pairs, name, "drop()")


def rename(stream: Stream, fields: Mapping[str, str], name: str | None) -> Stream:
    """Give fields other names."""
    name = free_name(stream.flow, name, None, "rename")
    known = checks.known_type(stream.type, name, "rename")
    for field in fields:
        checks.field(known, field, name, "rename")
    for new in fields.values():
        checks.is_name(new, name, "rename() takes new names that are texts")
    pairs = tuple((fields.get(each, each), pc.field(each)) for each in known.names)
    return _computed(stream, known, pairs, name, "rename()")


def _computed(
    stream: Stream,
    known: RowType,
    pairs: tuple[tuple[str, Any], ...],
    name: str,
    what: str,
    on_error: OnError = "fail",
) -> Stream:
    if not pairs:
        raise FlowError(f"operator {name!r}: {what} must leave at least one field")
    checks.distinct([field for field, _ in pairs], name, what)
    result = record_type(evaluate(known.encode([]), pairs).schema)
    return applied(stream, name, Select(known, pairs, result, on_error=on_error), result)


def distinct(stream: Stream, fields: tuple[str, ...], within: Duration | None, name: str | None) -> Stream:
    """Keep the first of rows that are alike."""
    name = free_name(stream.flow, name, None, "distinct")
    if not fields:
        fields = tuple(checks.known_type(stream.type, name, "distinct").names)
    checks.fields_of_key(stream.type, fields, name, "distinct")
    logic: Logic = FlatScan(keep_first, state_maker(None), stream.type)
    if within is not None:
        checks.has_time(stream, name, "within=")
        logic = Expiring(logic, lifetime(within, stream.time, name, "within"), renews=False)
    return remembering(stream, name, logic, Key(fields), "fail")


def ranking(stream: Stream, count: int, by: Any, largest: bool, name: str, others: tuple[str, ...]) -> Ranking:
    """Check what rows are ranked by, and that what is added to them has names of its own."""
    known = checks.known_type(stream.type, name, "top")
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


def top(
    stream: Stream, count: int, by: Any, largest: bool, name: str | None, on_error: OnError, ttl: Duration | None
) -> Stream:
    """Tell of the first rows as they change."""
    name = free_name(stream.flow, name, None, "top")
    running = RunningTop(ranking(stream, count, by, largest, name, (RANK, LEFT)))
    logic = FlatScan(running, state_maker(()), running.returns)
    return remembering(stream, name, logic, stream.key, on_error, ttl=ttl)
