"""Fold whole columns into groups of rows: what `Aggregation.step` gives row after row, to the last bit.

Whole numbers are added and compared in NumPy where that cannot overflow; floats are added in NumPy in the order of
their rows, behind what the group had already. Everything else is a loop over the values of one aggregate.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from types import MemberDescriptorType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators import aggregates
from penstock.operators.aggregate_values import TakenValues, read_all
from penstock.operators.aggregates import Agg
from penstock.operators.aggregation import Aggregation
from penstock.rows.records import Row, RowType
from penstock.rows.value_columns import column_values

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Nullable:
    """A column with nulls: an array that has anything where there is none."""

    values: npt.NDArray[Any]
    valid: npt.NDArray[np.bool_]

    def tolist(self) -> list[Any]:
        """Return the values as Python has them."""
        listed: list[Any] = self.values.tolist()
        for index in np.flatnonzero(~self.valid).tolist():
            listed[index] = None
        return listed

    def __getitem__(self, index: Any) -> Nullable:
        return Nullable(self.values[index], self.valid[index])


Values = npt.NDArray[Any] | Nullable | list[Any]
"""A column: an array of int64 or float64, perhaps with nulls, or a list of whatever there is."""
_NOTHING = type(None)


def read_values(
    aggregation: Aggregation, columns: pa.RecordBatch | None, rows: Callable[[], Sequence[Row]]
) -> list[Values | None]:
    """Return the values that each aggregate takes, from the columns where they will do; None where it takes none."""
    exact = columns is not None and has_its_columns(aggregation.row)
    found: list[Values | None] = []
    for aggregate, read in zip(aggregation.aggregates, aggregation.readers, strict=True):
        if read is None:
            found.append(None)
        elif isinstance(aggregate.value, TakenValues):
            some = aggregate.value.read_many(columns if exact else None, rows)
            check = aggregate.check
            if isinstance(some, list):
                found.append(_packed(some if check is None else list(map(check, some))))
            else:
                found.append(_numbers(some, check))
        elif exact and isinstance(aggregate.value, str):
            found.append(_numbers(columns.column(aggregate.value), aggregate.check))  # type: ignore[union-attr]
        else:
            found.append(_packed(read_all(read, rows())))
    return found


def has_its_columns(row: RowType | None) -> bool:
    """Tell whether rows surely have the values of their columns: a class of the user's may change them."""
    if row is None or row.form == "tuple":
        return row is not None and row.row_class.__bases__ == (tuple,)  # a named tuple, and nothing derived from one
    if row.form == "dataclass":
        return row.cls is not None and _is_plain(row.cls)
    return row.form in ("record", "dict")


def _is_plain(cls: type) -> bool:
    """Tell whether a dataclass keeps what it is given: nothing of the user's is called when one is made or read."""
    made = cls.__dict__.get("__dataclass_params__")  # of itself, not of a class that it is derived from
    hooks = ("__post_init__", "__getattr__", "__new__", "__setattr__", "__getattribute__")
    if made is None or not made.init or any(_is_own(cls, name) for name in hooks):
        return False
    fields = {field.name for field in dataclasses.fields(cls) if field.init}
    if fields != cls.__dataclass_fields__.keys():  # type: ignore[attr-defined]
        return False
    read = (getattr(base, "__dict__", {}).get(name) for base in cls.__mro__ for name in fields)
    return all(isinstance(each, MemberDescriptorType) or not hasattr(each, "__get__") for each in read)


def _is_own(cls: type, name: str) -> bool:
    """Tell whether a class has a method that no plain class has; one that is frozen refuses to be changed, no more."""
    found = getattr(cls, name, None)
    if name == "__setattr__" and cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return False
    return found is not getattr(object, name, None)


def _numbers(column: pa.Array, check: Callable[[Any], Any] | None) -> Values:
    if check is not None and column.type != pa.int64():
        return list(map(check, column_values(column)))
    if column.type not in (pa.int64(), pa.float64()):
        return column_values(column)
    if column.null_count == 0:
        values: npt.NDArray[Any] = column.to_numpy()
        return values
    return Nullable(column.fill_null(0).to_numpy(), column.is_valid().to_numpy(zero_copy_only=False))


def _packed(values: list[Any]) -> Values:
    kinds = set(map(type, values))
    try:
        if kinds == {int}:
            return np.frombuffer(array("q", values), np.int64)
        if kinds == {float}:
            return np.frombuffer(array("d", values), np.float64)
    except OverflowError:
        pass  # numbers that only Python can hold
    return values


def picked(values: Values | None, rows: Ints) -> Values | None:
    """Return some values of a column."""
    if values is None or not isinstance(values, list):
        return None if values is None else values[rows]
    return [values[row] for row in rows.tolist()]


def fold_groups(
    aggregation: Aggregation, values: list[Values | None], groups: Ints, first: Ints, held: list[list[Any] | None]
) -> list[list[Any]]:
    """Return the new states of the groups, one list an aggregate.

    `groups` tells the group of each value, `first` the first value of each group, `held` the state it had. Old states
    stay as they were if anything fails; aggregates that change theirs cannot fail, and come last.
    """
    columns: list[list[Any]] = [[]] * len(values)
    for index in in_order(aggregation):
        aggregate, taken = aggregation.aggregates[index], values[index]
        states = [aggregate.start() if state is None else state[index] for state in held]
        made = _fast(aggregate, states, taken, groups, first)
        columns[index] = _loop(aggregate, states, taken, groups.tolist()) if made is None else made
    return columns


def _fast(aggregate: Agg, states: list[Any], values: Values | None, groups: Ints, first: Ints) -> list[Any] | None:
    """Fold a whole column at once, or return None where there is no such way."""
    fold = _BY_COLUMN.get(aggregate.step)
    if fold is None:
        return None
    if aggregate.step in _ANY_VALUES:
        return fold(states, values, groups, first, len(states))
    if isinstance(values, list):
        return None
    if isinstance(values, Nullable):
        # Nulls change nothing, and a group that has nothing else stays as it is.
        there = np.flatnonzero(values.valid)
        if len(there) == 0:
            return states
        some, first, groups = np.unique(groups[there], return_index=True, return_inverse=True)
        numbers = some.tolist()
        made = fold([states[n] for n in numbers], values.values[there], groups, first, len(some))
        if made is None:
            return None
        for number, state in zip(numbers, made, strict=True):
            states[number] = state
        return states
    return fold(states, values, groups, first, len(states))


def segments(groups: Ints, count: int) -> tuple[Ints | None, list[int]]:
    """Return the order that puts the members of each group together, None if they are, and where each group ends."""
    ends = [0, *np.cumsum(np.bincount(groups, minlength=count)).tolist()]
    return None if (groups[1:] >= groups[:-1]).all() else np.argsort(groups, kind="stable"), ends


def in_order(aggregation: Aggregation) -> list[int]:
    """Return the numbers of the aggregates, those that change their state in place last."""
    return sorted(range(len(aggregation.aggregates)), key=lambda index: aggregation.aggregates[index].in_place)


def as_list(values: Values | None) -> Any:
    """Return values for a loop."""
    return repeat(None) if values is None else values if isinstance(values, list) else values.tolist()


def _loop(aggregate: Agg, states: list[Any], values: Values | None, members: list[int]) -> list[Any]:
    step = aggregate.step
    for group, value in zip(members, as_list(values), strict=False):
        states[group] = step(states[group], value)
    return states


def _count(states: list[Any], _: Any, groups: Ints, first: Ints, count: int) -> list[Any]:
    return [state + more for state, more in zip(states, np.bincount(groups, minlength=count).tolist(), strict=True)]


def _sum(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any] | None:
    kinds = set(map(type, states))
    if values.dtype == np.int64 and kinds <= {int, _NOTHING}:
        totals = _whole_sums(values, groups, count)
        if totals is None:
            return None
        return [more if state is None else state + more for state, more in zip(states, totals, strict=True)]
    if values.dtype == np.float64 and kinds <= {float, _NOTHING}:
        # -0.0 is the number that changes no other: 0.0 would make 0.0 of -0.0.
        return _float_sums([-0.0 if state is None else state for state in states], values, groups)
    return None


def _mean(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any] | None:
    carried = [total for total, _ in states]
    kinds = set(map(type, carried))
    totals: list[Any] | None = None
    if values.dtype == np.int64 and kinds == {int}:
        sums = _whole_sums(values, groups, count)
        totals = None if sums is None else [a + b for a, b in zip(carried, sums, strict=True)]
    elif values.dtype == np.float64 and kinds <= {int, float} and all(t == 0 or type(t) is float for t in carried):
        totals = _float_sums([float(total) for total in carried], values, groups)
    if totals is None:
        return None
    counts = np.bincount(groups, minlength=count).tolist()
    return [(total, held + more) for total, (_, held), more in zip(totals, states, counts, strict=True)]


def _whole_sums(values: Ints, groups: Ints, count: int) -> list[int] | None:
    if max(-int(values.min()), int(values.max())) * len(values) >= 1 << 63:
        return None  # Python's numbers have no end, NumPy's do
    totals = np.zeros(count, np.int64)
    np.add.at(totals, groups, values)
    return totals.tolist()


def _float_sums(carried: list[float], values: Any, groups: Ints) -> list[float]:
    totals = np.array(carried, np.float64)
    with np.errstate(all="ignore"):
        np.add.at(totals, groups, values)  # one after the other, in the order of the rows
    return totals.tolist()  # type: ignore[no-any-return]


def _min(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any] | None:
    if not _whole(states, values):
        return None
    best = values[first]
    np.minimum.at(best, groups, values)
    return [new if old is None or new < old else old for old, new in zip(states, best.tolist(), strict=True)]


def _max(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any] | None:
    if not _whole(states, values):
        return None
    best = values[first]
    np.maximum.at(best, groups, values)
    return [new if old is None or new > old else old for old, new in zip(states, best.tolist(), strict=True)]


def _whole(states: list[Any], values: Any) -> bool:
    """Tell whether only whole numbers meet: of floats, which of 0.0 and -0.0 is kept depends on their order."""
    return values.dtype == np.int64 and set(map(type, states)) <= {int, _NOTHING}


def _first(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any]:
    return [(new,) if old is None else old for old, new in zip(states, as_list(picked(values, first)), strict=True)]


def _last(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any]:
    latest = np.empty(count, np.int64)
    latest[groups] = np.arange(len(groups))  # of several numbers for one place, NumPy keeps the last
    return as_list(picked(values, latest))  # type: ignore[no-any-return]


def _first_valid(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any]:
    return [new if old is None else old for old, new in zip(states, values[first].tolist(), strict=True)]


def _distinct(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any] | None:
    order, bounds = segments(groups, count)
    listed = as_list(values if order is None else picked(values, order))
    for state, (start, stop) in zip(states, pairwise(bounds), strict=True):
        state.update(dict.fromkeys(listed[start:stop]))
    return states


def _collect(states: list[Any], values: Any, groups: Ints, first: Ints, count: int) -> list[Any]:
    order, bounds = segments(groups, count)
    listed = as_list(values if order is None else picked(values, order))
    for state, (start, stop) in zip(states, pairwise(bounds), strict=True):
        state.extend(listed[start:stop])
    return states


_BY_COLUMN: dict[Any, Callable[[list[Any], Any, Ints, Ints, int], list[Any] | None]] = {
    aggregates.count_step: _count,
    aggregates.count_valid_step: _count,
    aggregates.sum_step: _sum,
    aggregates.mean_step: _mean,
    aggregates.min_step: _min,
    aggregates.max_step: _max,
    aggregates.first_step: _first,
    aggregates.last_step: _last,
    aggregates.first_valid_step: _first_valid,
    aggregates.last_valid_step: _last,
    aggregates.distinct_step: _distinct,
    aggregates.collect_step: _collect,
}
_ANY_VALUES = {
    aggregates.count_step,
    aggregates.first_step,
    aggregates.last_step,
    aggregates.distinct_step,
    aggregates.collect_step,
}
"""Steps that take nulls, and columns of anything, at once too."""
