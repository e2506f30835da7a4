"""Operators that are told fields instead of functions: which to keep, under what names, and which rows are alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from penstock import checks
from penstock.errors import FlowError
from penstock.flow.joining import lifetime
from penstock.operators.base import Key, Logic, OnError
from penstock.operators.expiring import Expiring
from penstock.operators.expressions import bound, is_expression
from penstock.operators.initial import state_maker
from penstock.operators.scan import FlatScan, keep_first
from penstock.operators.stateless import Select, evaluate
from penstock.rows import RowType, record_type
from penstock.timing import Duration

if TYPE_CHECKING:
    from penstock.flow.stream import Stream


def select(
    stream: Stream, fields: tuple[str, ...], expressions: Mapping[str, Any], name: str | None, on_error: OnError
) -> Stream:
    """Keep fields and compute others."""
    name = stream.flow._free_name(name, None, "select")
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
    name = stream.flow._free_name(name, None, "drop")
    known = checks.known_type(stream.type, name, "drop")
    for field in fields:
        checks.field(known, field, name, "drop")
    pairs = tuple((each, pc.field(each)) for each in known.names if each not in fields)
    return _computed(stream, known, pairs, name, "drop()")


def rename(stream: Stream, fields: Mapping[str, str], name: str | None) -> Stream:
    """Give fields other names."""
    name = stream.flow._free_name(name, None, "rename")
    known = checks.known_type(stream.type, name, "rename")
    for field in fields:
        checks.field(known, field, name, "rename")
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
    return stream._apply(name, Select(known, pairs, result, on_error=on_error), result)


def distinct(stream: Stream, fields: tuple[str, ...], within: Duration | None, name: str | None) -> Stream:
    """Keep the first of rows that are alike."""
    name = stream.flow._free_name(name, None, "distinct")
    if fields:
        for field in fields:
            checks.field(stream.type, field, name, "distinct")
    else:
        fields = tuple(checks.known_type(stream.type, name, "distinct").names)
    logic: Logic = FlatScan(keep_first, state_maker(None), stream.type)
    if within is not None:
        checks.has_time(stream, name, "within=")
        logic = Expiring(logic, lifetime(within, stream.time, name, "within"), renews=False)
    return stream._stateful(name, logic, Key(fields), "fail")
