"""Built-in aggregates: each folds row after row, in order, so that results equal a plain loop's."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.annotated import makers
from penstock.operators import exact_numbers
from penstock.operators.aggregate_values import ABSENT, TakenValues, field_reader, taken
from penstock.operators.exact_numbers import Interpolation
from penstock.rows.keys import NAN
from penstock.rows.records import Row, RowType, arrow_type

Value = Any
"""What an aggregate takes: the name of a field, a function of the row, or an expression."""
Where = Any
"""Of which rows: an expression that is true or false, or a function of the row; None for all."""


@dataclass(frozen=True)
class Agg:
    """Describe one aggregate: where its values come from, how they fold, and what comes out."""

    label: str
    value: str | Callable[[Row], Any] | TakenValues | None
    start: Callable[[], Any]
    step: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    type_of: Callable[[pa.DataType | None], pa.DataType | None]
    _: KW_ONLY
    in_place: bool = False
    """Whether `step` changes its state; it must not fail then, because a row that fails changes nothing."""
    own: bool = False
    """Whether `step` is the user's, who may change the state in place: it is called once for each row, in order."""
    check: Callable[[Any], Any] | None = None
    """What a value goes through when it is read: raises where `step` could not take it, before anything changes."""
    refuses: Callable[[pa.DataType], bool] = lambda _: False
    """Tell of a field's type that its values cannot be taken."""
    for_type: Callable[[Agg, pa.DataType], Agg] | None = None
    """Return the aggregate as it is for values of a type, where that is known."""

    def reader(self, row: RowType | None) -> Callable[[Row], Any] | None:
        if self.value is None:
            return None
        read = self.value.read if isinstance(self.value, TakenValues) else field_reader(self.value, row)
        check = self.check
        return read if check is None else lambda row: check(read(row))


def _same(kind: pa.DataType | None) -> pa.DataType | None:
    return kind


def identity(value: Any) -> Any:
    return value


def _none() -> Any:
    return None


def count_step(count: int, _: Any) -> int:
    return count + 1


def count_valid_step(count: int, value: Any) -> int:
    return count if value is None else count + 1


def count(value: Value = None, *, where: Where = None) -> Agg:
    """Count rows, or the values of a field or expression that are not null."""
    if value is None and where is None:
        return Agg("count", None, int, count_step, identity, lambda _: pa.int64())
    return Agg("count", taken(value, where), int, count_valid_step, identity, lambda _: pa.int64())


def sum_step(total: Any, value: Any) -> Any:
    if value is None:
        return total
    if isinstance(value, bool):
        value = int(value)
    return value if total is None else total + value


def sum(value: Value, *, where: Where = None) -> Agg:
    """Add up a field, an expression or a function of the row; null where there was no value."""
    return Agg("sum", taken(value, where), _none, sum_step, identity, _sum_type, for_type=_sum_of)


def _sum_type(kind: pa.DataType | None) -> pa.DataType | None:
    if kind is None:
        return None
    if pa.types.is_decimal(kind):
        return exact_numbers.sum_type(kind)
    return pa.int64() if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else kind


def _sum_of(aggregate: Agg, kind: pa.DataType) -> Agg:
    """Return a sum that stays in the type of its results, or fails where it cannot."""
    if pa.types.is_decimal(kind):
        return replace(aggregate, step=exact_numbers.add, result=exact_numbers.Fitting(exact_numbers.sum_type(kind)))
    return replace(aggregate, result=whole_sum) if _sum_type(kind) == pa.int64() else aggregate


def whole_sum(total: int | None) -> int | None:
    """Return a sum of whole numbers; refuse one that int64 cannot hold."""
    if total is not None and not -(1 << 63) <= total < 1 << 63:
        raise OverflowError(
            f"the sum {total} does not fit int64, the type of its field; add up a function of the row, whose sums may "
            f"have any size: ps.agg.sum(lambda row: ...)"
        )
    return total


def results_of(aggregate: Agg, states: list[Any]) -> list[Any]:
    if aggregate.result is identity or (aggregate.result is whole_sum and _all_whole(states)):
        return states
    return list(map(aggregate.result, states))


def _all_whole(totals: list[Any]) -> bool:
    """Tell whether int64 can hold all of some sums: at the speed of C where none is null."""
    try:
        array("q", totals)
    except OverflowError:
        return False
    except TypeError:
        return _all_whole(there) if len(there := [t for t in totals if t is not None]) < len(totals) else False
    return True


def min_step(best: Any, value: Any) -> Any:
    if value is None:
        return best
    if best is None or value < best:
        return value
    return value if best != best else best  # noqa: PLR0124 (NaN is above all others)


def min(value: Value, *, where: Where = None) -> Agg:
    """Keep the smallest value; of equal ones the first. NaN is larger than all others."""
    return Agg("min", taken(value, where), _none, min_step, identity, _same)


def max_step(best: Any, value: Any) -> Any:
    if value is None:
        return best
    if best is None or value > best:
        return value
    return value if value != value and best == best else best  # noqa: PLR0124 (NaN is above all others)


def max(value: Value, *, where: Where = None) -> Agg:
    """Keep the largest value; of equal ones the first. NaN is larger than all others."""
    return Agg("max", taken(value, where), _none, max_step, identity, _same)


def mean_step(state: tuple[Any, int], value: Any) -> tuple[Any, int]:
    return state if value is None else (state[0] + value, state[1] + 1)


def mean(value: Value, *, where: Where = None) -> Agg:
    """Average a field: a decimal where the field is one, a float elsewhere; null where there was no value."""
    aggregate = Agg("mean", taken(value, where), lambda: (0, 0), mean_step, _average, _mean_type, for_type=_mean_of)
    return replace(aggregate, refuses=_has_no_mean)


def _has_no_mean(kind: pa.DataType) -> bool:
    return exact_numbers.no_number(kind) and not pa.types.is_boolean(kind) and not pa.types.is_null(kind)


def _average(state: tuple[Any, int]) -> Any:
    if not state[1]:
        return None
    average = state[0] / state[1]
    return float(average) if isinstance(average, Decimal) else average


def _mean_type(kind: pa.DataType | None) -> pa.DataType:
    return exact_numbers.mean_type(kind) if kind is not None and pa.types.is_decimal(kind) else pa.float64()


def _mean_of(aggregate: Agg, kind: pa.DataType) -> Agg:
    if not pa.types.is_decimal(kind):
        return aggregate
    return replace(aggregate, step=exact_numbers.add_one, result=exact_numbers.Average(exact_numbers.mean_type(kind)))


def first_step(state: Any, value: Any) -> Any:
    """Keep the first value, in a tuple that tells it from none."""
    return (value,) if state is None else state


def first_valid_step(state: Any, value: Any) -> Any:
    return value if state is None else state


def first(value: Value, *, skip_nulls: bool = False, where: Where = None) -> Agg:
    """Keep the first row's value, or the first that is not null."""
    if skip_nulls:
        return Agg("first valid", taken(value, where), _none, first_valid_step, identity, _same)
    return _present(Agg("first", value, _none, first_step, lambda s: s and s[0], _same), where)


def last_step(_: Any, value: Any) -> Any:
    return value


def last_valid_step(state: Any, value: Any) -> Any:
    return state if value is None else value


def last(value: Value, *, skip_nulls: bool = False, where: Where = None) -> Agg:
    """Keep the last row's value, or the last that is not null."""
    if skip_nulls:
        return Agg("last valid", taken(value, where), _none, last_valid_step, identity, _same)
    return _present(Agg("last", value, _none, last_step, identity, _same), where)


def collect(value: Value, *, where: Where = None) -> Agg:
    """Collect the values in a list, in order."""
    return _present(Agg("collect", value, list, collect_step, list, _list_type, in_place=True), where)


def _list_type(kind: pa.DataType | None) -> pa.DataType | None:
    return None if kind is None else pa.list_(kind)


def collect_step(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def distinct(value: Value, *, where: Where = None) -> Agg:
    """Collect the different values in a list, in the order in which they first came; null is one of them."""
    aggregate = Agg("distinct", value, dict, distinct_step, _different, _list_type, in_place=True)
    return _present(replace(aggregate, check=_hashable, refuses=pa.types.is_nested), where)


def count_distinct(value: Value, *, where: Where = None) -> Agg:
    """Count the different values; null is none of them."""
    aggregate = Agg("count_distinct", taken(value, where), dict, distinct_valid_step, len, lambda _: pa.int64())
    return replace(aggregate, in_place=True, check=_hashable, refuses=pa.types.is_nested)


def distinct_valid_step(seen: dict[Any, None], value: Any) -> dict[Any, None]:
    if value is not None:
        seen[value] = None
    return seen


def distinct_step(seen: dict[Any, None], value: Any) -> dict[Any, None]:
    seen[value] = None
    return seen


def _different(seen: dict[Any, None]) -> list[Any]:
    return [math.nan if value is NAN else value for value in seen] if NAN in seen else list(seen)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"distinct() takes values that can be hashed, not {value!r}; make a tuple or a text of it first"
        ) from None
    return NAN if isinstance(value, (float, Decimal)) and math.isnan(value) else value


def fold(
    start: Callable[[], Any],
    step: Callable[[Any, Row], Any],
    result: Callable[[Any], Any] | None = None,
    returns: Any = None,
    *,
    where: Where = None,
) -> Agg:
    """Fold whole rows by a function of your own: `step(state, row) -> state`."""
    kind = None if returns is None else arrow_type(returns)
    return _present(Agg("fold", identity, start, step, result or identity, lambda _: kind, own=True), where)


@dataclass(frozen=True)
class Present:
    """Leave a state as it is for rows that an aggregate is not to see; null is a value for its step."""

    step: Callable[[Any, Any], Any]

    def __call__(self, state: Any, value: Any) -> Any:
        return state if value is ABSENT else self.step(state, value)


def _present(aggregate: Agg, where: Where) -> Agg:
    """Return an aggregate that takes null for a value, of some rows only if `where` says so."""
    value = taken(aggregate.value, where, ABSENT)
    return replace(aggregate, value=value, step=aggregate.step if where is None else Present(aggregate.step))


def argmin_step(best: tuple[Any, Any] | None, pair: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
    if best is None or pair is None:
        return best if pair is None else pair
    return pair if pair[0] < best[0] or (best[0] != best[0] and pair[0] == pair[0]) else best


def argmin(value: Value, *, by: Value, where: Where = None) -> Agg:
    """Take a value from the row in which `by` is smallest: of equal ones the first, and none in which it is null."""
    return Agg("argmin", TakenValues((by, value), where), _none, argmin_step, _second, _same)


def argmax_step(best: tuple[Any, Any] | None, pair: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
    if best is None or pair is None:
        return best if pair is None else pair
    return pair if pair[0] > best[0] or (pair[0] != pair[0] and best[0] == best[0]) else best


def argmax(value: Value, *, by: Value, where: Where = None) -> Agg:
    """Take a value from the row in which `by` is largest: of equal ones the first, and none in which it is null."""
    return Agg("argmax", TakenValues((by, value), where), _none, argmax_step, _second, _same)


def _second(pair: tuple[Any, Any] | None) -> Any:
    return None if pair is None else pair[1]


def quantile(value: Value, q: float, *, interpolation: Interpolation = "linear", where: Where = None) -> Agg:
    """Find the number that a part `q` (0 to 1) of all are below: exactly, so all numbers are kept.

    Of n numbers in order, counted from 0, it is the one at (n - 1) * q; between two of them `interpolation` says which,
    or, by default, the number between them, as a float. NaN is larger than all others; nulls are left out.
    """
    find = exact_numbers.Quantile(q, interpolation)
    kind = _float_type if interpolation == "linear" else _same
    aggregate = Agg("quantile", taken(value, where), exact_numbers.nothing, exact_numbers.quantile_step, find, kind)
    return replace(aggregate, in_place=True, check=exact_numbers.number, refuses=exact_numbers.no_number)


def median(value: Value, *, where: Where = None) -> Agg:
    """Find the number in the middle, or between the two in the middle."""
    return quantile(value, 0.5, where=where)


def _float_type(_: pa.DataType | None) -> pa.DataType:
    return pa.float64()


def __dir__() -> list[str]:
    return makers(globals(), "Agg")
