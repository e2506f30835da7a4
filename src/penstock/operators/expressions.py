"""Expressions over the fields of a row: what they mean, tried on no rows where a flow is built, computed by Arrow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import FlowError, did_you_mean
from penstock.operators.exact_numbers import division
from penstock.operators.expression_text import TextPart, parse, refuse
from penstock.operators.stateless import evaluate
from penstock.rows.records import RowType, normalize_schema


@dataclass(frozen=True)
class Expr:
    """An expression that was written as text; the fields that it names are looked up where it is used."""

    text: str
    tree: TextPart

    def bound(self, row: RowType, operator: str) -> pc.Expression:
        """Return what Arrow computes for rows of a type; refuse what does not fit, by its place in the text."""
        return _Binding(self.text, row, operator).value(self.tree).expression

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"ps.expr({self.text!r})"


def expr(text: str) -> Expr:
    """Write an expression over the fields of a row as text, for `filter`, `select` and aggregates.

    It has fields (`price`, or in backticks), numbers, texts in either kind of quotes, true, false, null; + - * / // %;
    = != < <= > >=; and, or, not; is null, in (...), between ... and ..., like; and functions.
    """
    return Expr(text, parse(text))


class _Refusal(Exception):
    """Something that an operator or function cannot take."""


@dataclass(frozen=True)
class Value:
    """A part of an expression, as Arrow computes it."""

    expression: pc.Expression
    type: pa.DataType
    part: TextPart

    @property
    def is_whole(self) -> bool:
        return bool(pa.types.is_integer(self.type) or pa.types.is_boolean(self.type))

    @property
    def is_number(self) -> bool:
        return self.is_whole or bool(pa.types.is_floating(self.type))

    def constant(self, kind: type, what: str) -> Any:
        constant = self.part.value
        if self.part.kind != "constant" or not isinstance(constant, kind) or isinstance(constant, bool):
            raise _Refusal(f"takes {what}")
        return constant


Make = Callable[[Sequence[Value]], pc.Expression]


class _Binding:
    """Look up the fields of one type of rows."""

    def __init__(self, text: str, row: RowType, operator: str) -> None:
        self._text, self._row, self._operator, self._none = text, row, operator, row.encode([])

    def value(self, part: TextPart) -> Value:
        if part.kind == "constant":
            expression = pc.scalar(part.value)
        elif part.kind == "field":
            if part.value not in self._row.names:
                there = ", ".join(map(repr, self._row.names)) or "no fields"
                hint = did_you_mean(part.value, self._row.names)
                self._refuse(part, f"there is no field {part.value!r}: the rows have {there}{hint}")
            expression = pc.field(part.value)
        else:
            expression = self._call(part)
        try:
            return Value(expression, evaluate(self._none, (("value", expression),)).schema.field(0).type, part)
        except (pa.ArrowException, TypeError, ValueError) as error:
            self._refuse(part, self._misfit(part, error))

    def _misfit(self, part: TextPart, error: Exception) -> str:
        """Say what an operator or function does not take, by types where Arrow would name its own functions."""
        reason = str(error).splitlines()[0]
        if "no kernel" in reason:
            reason = " and ".join(str(self.value(each).type) for each in part.arguments)
        return f"{_name(part)} does not take what it is given: {reason}"

    def _call(self, part: TextPart) -> pc.Expression:
        known = CALLS.get(part.value)
        if known is None:
            names = [name[:-2] for name in CALLS if name.endswith("()")]
            hint = did_you_mean(part.value[:-2], names) or f"; there are {', '.join(sorted(names))}"
            self._refuse(part, f"there is no function {part.value}{hint}")
        low, high, make = known
        if not low <= len(part.arguments) <= (high or 1 << 30):
            count = str(low) if low == high else f"{low} or more" if high is None else f"{low} to {high}"
            self._refuse(part, f"{_name(part)} takes {count} values, not {len(part.arguments)}")
        values = _decimals([self.value(each) for each in part.arguments])
        try:
            return make(_alike(values) if part.value in _OF_ONE_TYPE else values)
        except _Refusal as error:
            self._refuse(part, f"{_name(part)} {error}")
        except (pa.ArrowException, TypeError, ValueError) as error:
            self._refuse(part, self._misfit(part, error))

    def _refuse(self, part: TextPart, problem: str) -> NoReturn:
        refuse(self._text, part.at, problem, self._operator)


def _name(part: TextPart) -> str:
    return repr(part.value) if part.kind == "call" else f"{part.kind} {part.value!r}"


def _shown(kind: pa.DataType) -> str:
    return f"something of the type {kind}"


def _decimals(values: list[Value]) -> list[Value]:
    """Make decimals of constants beside a decimal: Arrow computes decimals with decimals only."""
    if not any(pa.types.is_decimal(value.type) for value in values):
        return values
    return [_decimal(value) if value.part.kind == "constant" else value for value in values]


def _alike(values: Sequence[Value]) -> list[Value]:
    """Give nulls the type of the other values, and make floats of whole numbers beside floats."""
    kind = next((value.type for value in values if not pa.types.is_null(value.type)), pa.int64())
    values = [_cast(value, kind) for value in values]
    if not any(pa.types.is_floating(value.type) for value in values):
        return values
    return [_float(value) if pa.types.is_integer(value.type) else value for value in values]


def _float(value: Value) -> Value:
    """Make a float; of a whole number beyond 2**53 the nearest one, as Python does and Arrow by default refuses."""
    return Value(value.expression.cast(pa.float64(), safe=False), pa.float64(), value.part)


def _wide(values: Sequence[Value]) -> list[Value]:
    """Make int64 of smaller whole numbers: Arrow would compute in the smallest type, which is soon too small."""
    small = [pa.types.is_integer(value.type) and value.type.bit_width < 64 for value in values]
    return [
        Value(value.expression.cast(pa.int64()), pa.int64(), value.part) if is_small else value
        for value, is_small in zip(values, small, strict=True)
    ]


def _cast(value: Value, kind: pa.DataType) -> Value:
    """Give a null a type; leave others as they are."""
    return Value(value.expression.cast(kind), kind, value.part) if pa.types.is_null(value.type) else value


def _decimal(value: Value) -> Value:
    number = value.part.value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return value
    scalar = pa.scalar(Decimal(str(number)))
    return Value(pc.scalar(scalar), scalar.type, value.part)


def _call(name: str) -> Make:
    return lambda values: pc.Expression._call(name, [value.expression for value in values])


def _computed(name: str) -> Make:
    """Make a call that computes; of whole numbers in int64."""
    return lambda values: _call(name)(_wide(values))


def _compared(name: str) -> Make:
    """Make a comparison; refuse times with a zone beside times without, which Arrow finds with the first row."""

    def make(values: Sequence[Value]) -> pc.Expression:
        zones = {value.type.tz is None for value in values if pa.types.is_timestamp(value.type)}
        if len(zones) > 1:
            raise _Refusal(
                "compares times with a zone with times without one, which are not in one order; with a zone, "
                "write timestamp('2024-03-01T12:00:00Z')"
            )
        return _call(name)(values)

    return make


def _text_call(name: str, **fixed: Any) -> Make:
    return lambda values: getattr(pc, name)(_text(values[0]).expression, **fixed)


def _text(value: Value) -> Value:
    value = _cast(value, pa.string())
    if not pa.types.is_string(value.type):
        raise _Refusal(f"takes a text, not {_shown(value.type)}; text(...) makes one")
    return value


def _pattern(name: str) -> Make:
    return lambda values: getattr(pc, name)(_text(values[0]).expression, values[1].constant(str, "a text in quotes"))


def _regex(values: Sequence[Value]) -> pc.Expression:
    pc.match_substring_regex(pa.array([""]), values[1].constant(str, "a text in quotes"))  # a bad one is refused here
    return _pattern("match_substring_regex")(values)


def _truth(values: Sequence[Value]) -> Sequence[Value]:
    values = [_cast(value, pa.bool_()) for value in values]
    for value in values:
        if not pa.types.is_boolean(value.type):
            raise _Refusal(f"takes what is true or false, not {_shown(value.type)}")
    return values


def _logic(name: str) -> Make:
    return lambda values: _call(name)(_truth(values))


def _plus(values: Sequence[Value]) -> pc.Expression:
    if any(pa.types.is_string(value.type) for value in values):
        return _concat(values)
    return _computed("add_checked")(values)


def _concat(values: Sequence[Value]) -> pc.Expression:
    return pc.binary_join_element_wise(*(_text(value).expression for value in values), "")


def _divide(values: Sequence[Value]) -> pc.Expression:
    return pc.Expression._call("divide", [_float(value).expression for value in values])


def _division(operation: str) -> Make:
    def make(values: Sequence[Value]) -> pc.Expression:
        for value in values:
            if not value.is_number:
                raise _Refusal(f"takes numbers, not {_shown(value.type)}; float(...) makes one")
        left, right = values
        return division(operation, left.expression, right.expression, left.is_whole and right.is_whole)

    return make


def _in(values: Sequence[Value]) -> pc.Expression:
    equal = [_compared("equal")(_decimals([values[0], each])) for each in values[1:]]
    while len(equal) > 1:  # a tree of little depth
        pairs = [equal[n : n + 2] for n in range(0, len(equal), 2)]
        equal = [pair[0] if len(pair) == 1 else pc.Expression._call("or_kleene", pair) for pair in pairs]
    return equal[0]


def _between(values: Sequence[Value]) -> pc.Expression:
    value, low, high = values
    return pc.Expression._call(
        "and_kleene", [_compared("greater_equal")([value, low]), _compared("less_equal")([value, high])]
    )


def _round(values: Sequence[Value]) -> pc.Expression:
    digits = values[1].constant(int, "a whole number of digits") if len(values) > 1 else 0
    return pc.round(values[0].expression, ndigits=digits, round_mode="half_to_even")


def _substring(values: Sequence[Value]) -> pc.Expression:
    start = values[1].constant(int, "a whole number to begin with, 1 for the first letter")
    if start < 1:
        raise _Refusal("counts letters from 1")
    length = values[2].constant(int, "a whole number of letters") if len(values) > 2 else None
    if length is not None and length < 0:
        raise _Refusal("takes 0 letters or more")
    return pc.utf8_slice_codeunits(
        _text(values[0]).expression, start - 1, None if length is None else start - 1 + length
    )


def _replace(values: Sequence[Value]) -> pc.Expression:
    old, new = (value.constant(str, "texts in quotes") for value in values[1:])
    return pc.replace_substring(_text(values[0]).expression, old, new)


def _if(values: Sequence[Value]) -> pc.Expression:
    condition = _truth(values[:1])[0]
    # Null counts as false.
    yes, no = _alike(values[1:])
    return pc.if_else(pc.coalesce(condition.expression, pc.scalar(False)), yes.expression, no.expression)


def _int(values: Sequence[Value]) -> pc.Expression:
    value = values[0]
    whole = (
        pc.trunc(value.expression)
        if pa.types.is_floating(value.type) or pa.types.is_decimal(value.type)
        else value.expression
    )
    return whole.cast(pa.int64())


def _moment(values: Sequence[Value]) -> pc.Expression:
    text = values[0].constant(str, "a text in quotes")
    moment = dt.datetime.fromisoformat(text)
    kind = pa.timestamp("us") if moment.tzinfo is None else pa.timestamp("us", "UTC")
    return pc.scalar(pa.scalar(moment, kind))


def _date(values: Sequence[Value]) -> pc.Expression:
    return pc.scalar(pa.scalar(dt.date.fromisoformat(values[0].constant(str, "a text in quotes")), pa.date32()))


def _extreme(name: str) -> Make:
    return lambda values: getattr(pc, name)(*(value.expression for value in values))


_OF_ONE_TYPE = {*"+-*/%<>=", "//", "!=", "<=", ">=", "in", "between", "coalesce()", "greatest()", "least()", "power()"}
CALLS: dict[str, tuple[int, int | None, Make]] = {
    "+": (2, 2, _plus),
    "-": (2, 2, _computed("subtract_checked")),
    "*": (2, 2, _computed("multiply_checked")),
    "/": (2, 2, _divide),
    "//": (2, 2, _division("floor_divide")),
    "%": (2, 2, _division("modulo")),
    "negative": (1, 1, _computed("negate_checked")),
    "=": (2, 2, _compared("equal")),
    "!=": (2, 2, _compared("not_equal")),
    "<": (2, 2, _compared("less")),
    "<=": (2, 2, _compared("less_equal")),
    ">": (2, 2, _compared("greater")),
    ">=": (2, 2, _compared("greater_equal")),
    "and": (2, 2, _logic("and_kleene")),
    "or": (2, 2, _logic("or_kleene")),
    "not": (1, 1, _logic("invert")),
    "is null": (1, 1, lambda values: values[0].expression.is_null()),
    "in": (2, None, _in),
    "between": (3, 3, _between),
    "like": (2, 2, _pattern("match_like")),
    "abs()": (1, 1, _computed("abs_checked")),
    "ceil()": (1, 1, _call("ceil")),
    "coalesce()": (1, None, _call("coalesce")),
    "concat()": (1, None, _concat),
    "contains()": (2, 2, _pattern("match_substring")),
    "date()": (1, 1, _date),
    "day()": (1, 1, _call("day")),
    "day_of_week()": (1, 1, lambda values: pc.day_of_week(values[0].expression)),
    "ends_with()": (2, 2, _pattern("ends_with")),
    "exp()": (1, 1, _call("exp")),
    "float()": (1, 1, lambda values: _float(values[0]).expression),
    "floor()": (1, 1, _call("floor")),
    "greatest()": (1, None, _extreme("max_element_wise")),
    "hour()": (1, 1, _call("hour")),
    "if()": (3, 3, _if),
    "int()": (1, 1, _int),
    "is_nan()": (1, 1, _call("is_nan")),
    "least()": (1, None, _extreme("min_element_wise")),
    "length()": (1, 1, _text_call("utf8_length")),
    "ln()": (1, 1, _call("ln")),
    "log10()": (1, 1, _call("log10")),
    "lower()": (1, 1, _text_call("utf8_lower")),
    "matches()": (2, 2, _regex),
    "minute()": (1, 1, _call("minute")),
    "month()": (1, 1, _call("month")),
    "power()": (2, 2, _computed("power_checked")),
    "replace()": (3, 3, _replace),
    "reverse()": (1, 1, _text_call("utf8_reverse")),
    "round()": (1, 2, _round),
    "second()": (1, 1, _call("second")),
    "sign()": (1, 1, _call("sign")),
    "sqrt()": (1, 1, _call("sqrt")),
    "starts_with()": (2, 2, _pattern("starts_with")),
    "substring()": (2, 3, _substring),
    "text()": (1, 1, lambda values: values[0].expression.cast(pa.string())),
    "timestamp()": (1, 1, _moment),
    "trim()": (1, 1, _text_call("utf8_trim_whitespace")),
    "upper()": (1, 1, _text_call("utf8_upper")),
    "year()": (1, 1, _call("year")),
}
"""The operators and functions: how many values each takes at least and at most, and what it makes of them."""


EXPRESSIONS = (pc.Expression, Expr)
"""Arrow's, and those that are written as text."""


def is_expression(value: Any) -> bool:
    return isinstance(value, EXPRESSIONS)


def value_column(rows: pa.RecordBatch | None, expression: pc.Expression) -> pa.Array:
    """Compute an expression, in a type that rows have."""
    assert rows is not None
    batch = evaluate(rows, (("value", expression),))
    kind = normalize_schema(batch.schema).field(0).type
    column = batch.column(0)
    return column if column.type == kind else column.cast(kind)


def known_type(row: RowType | None, operator: str, what: str) -> RowType:
    """Refuse an operator that needs columns on a stream whose type is not known."""
    if row is None:
        raise FlowError(
            f"operator {operator!r}: {what} needs to know the rows' type; annotate what the function before "
            f"it returns (a dataclass, NamedTuple or TypedDict), or give schema="
        )
    return row


def bound(value: Any, row: RowType | None, operator: str, what: str) -> tuple[pc.Expression, pa.DataType]:
    """Return an expression as Arrow computes it for rows of a type, and the type of its values; refuse a bad one."""
    row = known_type(row, operator, what)
    expression = value.bound(row, operator) if isinstance(value, Expr) else value
    try:
        return expression, evaluate(row.encode([]), (("value", expression),)).schema.field(0).type
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise FlowError(
            f"operator {operator!r}: the expression {value} does not fit rows with the fields "
            f"{', '.join(row.names)}: {reason}"
        ) from None


def bound_predicate(value: Any, row: RowType | None, operator: str, what: str) -> pc.Expression:
    """Return an expression as Arrow computes it; refuse one that is neither true nor false."""
    expression, kind = bound(value, row, operator, what)
    if not pa.types.is_boolean(kind):
        raise FlowError(
            f"operator {operator!r}: the expression {value} is of type {kind}; {what} needs one that is "
            f"true or false, for example a comparison"
        )
    return expression
