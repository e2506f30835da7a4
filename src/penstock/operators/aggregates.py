"""Built-in aggregates: each folds row after row, in order, so that results equal a plain loop's."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.errors import FlowError
from penstock.operators import decimals
from penstock.public import makers
from penstock.rows import Row, RowType, any_getter, arrow_type


@dataclass(frozen=True)
class Agg:
    """Describe one aggregate: where its values come from, how they fold, and what comes out."""

    label: str
    value: str | Callable[[Row], Any] | None
    start: Callable[[], Any]
    step: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    type_of: Callable[[pa.DataType | None], pa.DataType | None]
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
        """Return the function that reads this aggregate's value from a row."""
        if self.value is None:
            return None
        read: Callable[[Row], Any]
        if callable(self.value):
            read = self.value
        else:
            read = any_getter([self.value]) if row is None else row.getter([self.value])
        check = self.check
        return read if check is None else lambda row: check(read(row))


def _same(kind: pa.DataType | None) -> pa.DataType | None:
    return kind


def identity(value: Any) -> Any:
    """Return the value itself."""
    return value


def _none() -> Any:
    return None


def count_step(count: int, _: Any) -> int:
    """Count one more."""
    return count + 1


def count() -> Agg:
    """Count rows."""
    return Agg("count", None, int, count_step, identity, lambda _: pa.int64())


def sum_step(total: Any, value: Any) -> Any:
    """Add a value, if there is one."""
    if value is None:
        return total
    if isinstance(value, bool):
        value = int(value)
    return value if total is None else total + value


def sum(value: str | Callable[[Row], Any]) -> Agg:
    """Add up a field, or a function of the row; null where there was no value."""
    return Agg("sum", value, _none, sum_step, identity, _sum_type, for_type=_sum_of)


def _sum_type(kind: pa.DataType | None) -> pa.DataType | None:
    if kind is None:
        return None
    if pa.types.is_decimal(kind):
        return decimals.sum_type(kind)
    return pa.int64() if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else kind


def _sum_of(aggregate: Agg, kind: pa.DataType) -> Agg:
    """Return a sum that stays in the type of its results, or fails where it cannot."""
    if pa.types.is_decimal(kind):
        return replace(aggregate, step=decimals.add, result=decimals.Fitting(decimals.sum_type(kind)))
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
    """Return the value of an aggregate for each of its states."""
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
    """Keep the smaller."""
    if value is None:
        return best
    if best is None or value < best:
        return value
    return value if best != best else best  # noqa: PLR0124 (NaN is above all others)


def min(value: str | Callable[[Row], Any]) -> Agg:
    """Keep the smallest value; of equal ones the first. NaN is larger than all others."""
    return Agg("min", value, _none, min_step, identity, _same)


def max_step(best: Any, value: Any) -> Any:
    """Keep the larger."""
    if value is None:
        return best
    if best is None or value > best:
        return value
    return value if value != value and best == best else best  # noqa: PLR0124 (NaN is above all others)


def max(value: str | Callable[[Row], Any]) -> Agg:
    """Keep the largest value; of equal ones the first. NaN is larger than all others."""
    return Agg("max", value, _none, max_step, identity, _same)


def mean_step(state: tuple[Any, int], value: Any) -> tuple[Any, int]:
    """Add a value to the total, and one to the count."""
    return state if value is None else (state[0] + value, state[1] + 1)


def mean(value: str | Callable[[Row], Any]) -> Agg:
    """Average a field: a decimal where the field is one, a float elsewhere; null where there was no value."""
    return Agg("mean", value, lambda: (0, 0), mean_step, _average, _mean_type, for_type=_mean_of)


def _average(state: tuple[Any, int]) -> Any:
    if not state[1]:
        return None
    average = state[0] / state[1]
    return float(average) if isinstance(average, Decimal) else average


def _mean_type(kind: pa.DataType | None) -> pa.DataType:
    return decimals.mean_type(kind) if kind is not None and pa.types.is_decimal(kind) else pa.float64()


def _mean_of(aggregate: Agg, kind: pa.DataType) -> Agg:
    if not pa.types.is_decimal(kind):
        return aggregate
    return replace(aggregate, step=decimals.add_one, result=decimals.Average(decimals.mean_type(kind)))


def first_step(state: Any, value: Any) -> Any:
    """Keep the first value, in a tuple that tells it from none."""
    return (value,) if state is None else state


def first_valid_step(state: Any, value: Any) -> Any:
    """Keep the first value that is not null."""
    return value if state is None else state


def first(value: str | Callable[[Row], Any], *, skip_nulls: bool = False) -> Agg:
    """Keep the first row's value, or the first that is not null."""
    if skip_nulls:
        return Agg("first valid", value, _none, first_valid_step, identity, _same)
    return Agg("first", value, _none, first_step, lambda s: s and s[0], _same)


def last_step(_: Any, value: Any) -> Any:
    """Keep the last value."""
    return value


def last_valid_step(state: Any, value: Any) -> Any:
    """Keep the last value that is not null."""
    return state if value is None else value


def last(value: str | Callable[[Row], Any], *, skip_nulls: bool = False) -> Agg:
    """Keep the last row's value, or the last that is not null."""
    if skip_nulls:
        return Agg("last valid", value, _none, last_valid_step, identity, _same)
    return Agg("last", value, _none, last_step, identity, _same)


def collect(value: str | Callable[[Row], Any]) -> Agg:
    """Collect the values in a list, in order."""
    return Agg(
        "collect",
        value,
        list,
        collect_step,
        list,
        lambda kind: None if kind is None else pa.list_(kind),
        in_place=True,
    )


def collect_step(values: list[Any], value: Any) -> list[Any]:
    """Add a value to the list."""
    values.append(value)
    return values


class _NotANumber:
    """Stand for a value that is not equal to itself, so that it can be found in a dict, also in a loaded one."""

    def __reduce__(self) -> str:
        return "NAN"


NAN = _NotANumber()


def distinct(value: str | Callable[[Row], Any]) -> Agg:
    """Collect the different values in a list, in the order in which they first came; null is one of them."""
    return Agg(
        "distinct",
        value,
        dict,
        distinct_step,
        _different,
        lambda kind: None if kind is None else pa.list_(kind),
        in_place=True,
        check=_hashable,
        refuses=pa.types.is_nested,
    )


def distinct_step(seen: dict[Any, None], value: Any) -> dict[Any, None]:
    """Note a value."""
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
) -> Agg:
    """Fold whole rows by a function of your own: `step(state, row) -> state`."""
    return Agg(
        "fold",
        identity,
        start,
        step,
        result or identity,
        lambda _: None if returns is None else arrow_type(returns),
        own=True,
    )


@dataclass(frozen=True)
class Aggregation:
    """Several aggregates under their names; the state is one list."""

    names: tuple[str, ...]
    aggregates: tuple[Agg, ...]
    row: RowType | None = field(default=None, compare=False)
    """The type of the rows, as far as it is known."""

    @property
    def by_column(self) -> bool:
        """Tell whether a whole column may be folded at once, and the rows one by one if that fails."""
        return not any(aggregate.own for aggregate in self.aggregates)

    def step(self, state: list[Any] | None, row: Row) -> list[Any]:
        """Take one row in; the old state is left as it was, so that a row that fails changes nothing."""
        if state is None:
            state = [aggregate.start() for aggregate in self.aggregates]
        if self._plain is not None:
            return [step(old, read(row)) for old, (step, read) in zip(state, self._plain, strict=True)]
        values = [None if read is None else read(row) for read in self.readers]
        result = [
            old if aggregate.in_place else aggregate.step(old, value)
            for aggregate, old, value in zip(self.aggregates, state, values, strict=True)
        ]
        for index in self._in_place:
            result[index] = self.aggregates[index].step(result[index], values[index])
        return result

    @cached_property
    def readers(self) -> list[Callable[[Row], Any] | None]:
        """Return the function that reads each aggregate's value, None where it takes none."""
        return [aggregate.reader(self.row) for aggregate in self.aggregates]

    @cached_property
    def _plain(self) -> list[tuple[Callable[[Any, Any], Any], Callable[[Row], Any]]] | None:
        """How each aggregate steps and reads, where no step changes a state that is there."""
        if self._in_place or not self.by_column:
            return None
        # One that takes no value does not look at what it gets.
        return [(agg.step, read or identity) for agg, read in zip(self.aggregates, self.readers, strict=True)]

    @cached_property
    def _in_place(self) -> list[int]:
        return [index for index, aggregate in enumerate(self.aggregates) if aggregate.in_place]

    def __getstate__(self) -> dict[str, Any]:
        return {"names": self.names, "aggregates": self.aggregates, "row": self.row}

    def advance(self, state: list[Any] | None, row: Row) -> tuple[list[Any], list[Any]]:
        """Take one row in, and return the value of each aggregate too; where one fails, no state has changed."""
        if not self._in_place:
            after = self.step(state, row)
            return after, self.results(after)
        before = [aggregate.start() for aggregate in self.aggregates] if state is None else state
        values = [None if read is None else read(row) for read in self.readers]
        after, results = list(before), [None] * len(before)
        for index in sorted(range(len(before)), key=self._in_place.__contains__):
            aggregate = self.aggregates[index]
            after[index] = aggregate.step(before[index], values[index])
            results[index] = aggregate.result(after[index])
        return after, results

    def results(self, state: list[Any]) -> list[Any]:
        """Return the value of each aggregate."""
        return [aggregate.result(value) for aggregate, value in zip(self.aggregates, state, strict=True)]

    def fields(self, row: RowType | None) -> list[pa.Field] | None:
        """Return the fields of the results, or None where a type is unknown."""
        fields = []
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            source = None
            if isinstance(aggregate.value, str) and row is not None:
                source = row.schema.field(aggregate.value).type
            kind = aggregate.type_of(source)
            if kind is None:
                return None
            fields.append(pa.field(name, kind))
        return fields

    def functions(self) -> list[Any]:
        """List the user's functions."""
        return [f for a in self.aggregates for f in (a.value, a.step, a.result) if callable(f)]


def aggregation(aggregates: dict[str, Any], operator: str, row: RowType | None) -> Aggregation:
    """Check and bundle named aggregates of rows of a type."""
    if not aggregates:
        raise FlowError(
            f"operator {operator!r}: aggregate() needs at least one aggregate, for example "
            f'aggregate(total=ps.agg.sum("value"))'
        )
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Agg):
            raise FlowError(
                f"operator {operator!r}: {name}={aggregate!r} is no aggregate; use ps.agg.count(), "
                f"sum(field), min, max, mean, first, last, collect, distinct or fold"
            )
        if aggregate.value is not None and not isinstance(aggregate.value, str) and not callable(aggregate.value):
            raise FlowError(
                f"operator {operator!r}: {name} is {aggregate.label}({aggregate.value}), which is neither a field nor "
                f"a function of the row; compute an expression by select(..., value=expression) before, and give the "
                f"name of its field"
            )
        if row is not None and isinstance(aggregate.value, str) and aggregate.value in row.schema.names:
            kind = row.schema.field(aggregate.value).type
            if aggregate.refuses(kind):
                raise FlowError(
                    f"operator {operator!r}: {name} is {aggregate.label}({aggregate.value!r}), whose values are of the "
                    f"type {kind}; give a function of the row instead that makes one number or text of each"
                )
    return Aggregation(tuple(aggregates), tuple(_typed(each, row) for each in aggregates.values()), row)


def _typed(aggregate: Agg, row: RowType | None) -> Agg:
    """Return an aggregate as it is for the type of the field that it reads, where that is known."""
    if row is None or aggregate.for_type is None or not isinstance(aggregate.value, str):
        return aggregate
    place = row.schema.get_field_index(aggregate.value)
    return aggregate if place < 0 else aggregate.for_type(aggregate, row.schema.field(place).type)


def __dir__() -> list[str]:
    return makers(globals(), "Agg")
