"""Fold whole columns into groups of rows: what `Aggregation.step` gives row after row, to the last bit.

Whole numbers are added and compared in NumPy where that cannot overflow; floats are added in NumPy in the order of
their rows, after what the group had already. States of such aggregates are columns, too (`state_forms.py`). Everything
else is a loop over the values of one aggregate.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, repeat
from types import MemberDescriptorType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators import aggregates
from penstock.operators.aggregate_values import TakenValues, read_all
from penstock.operators.aggregates import Agg, identity, results_of, whole_sum
from penstock.operators.aggregation import Aggregation
from penstock.operators.state_forms import (
    COUNT,
    FLOAT,
    INT,
    MEAN_FLOAT,
    MEAN_INT,
    OBJECTS,
    Form,
    Parts,
    form_of,
    value_list,
)
from penstock.rows.records import Row, RowType
from penstock.rows.values import column_of, column_values

Ints = npt.NDArray[np.int64]


Values: TypeAlias = pa.Array | list[Any]
"""What an aggregate takes of some rows: an Arrow column, or a list of Python values."""


def read_values(
    aggregation: Aggregation, columns: pa.RecordBatch | None, rows: Callable[[], Sequence[Row]]
) -> list[Values | None]:
    """Return the values that each aggregate takes, from columns where possible; None for one that takes none."""
    exact = columns is not None and has_its_columns(aggregation.row)
    columns_read: list[Values | None] = []
    for aggregate, read in zip(aggregation.aggregates, aggregation.readers, strict=True):
        if read is None:
            columns_read.append(None)
        elif isinstance(aggregate.value, TakenValues):
            columns_read.append(_checked(aggregate.value.read_many(columns if exact else None, rows), aggregate.check))
        elif exact and isinstance(aggregate.value, str):
            columns_read.append(_checked(columns.column(aggregate.value), aggregate.check))  # type: ignore[union-attr]
        else:
            columns_read.append(_packed(read_all(read, rows())))
    return columns_read


def has_its_columns(row: RowType | None) -> bool:
    """Tell whether rows certainly have the values of their columns: a user's class may change them."""
    if row is None or row.form == "tuple":
        return row is not None and row.row_class.__bases__ == (tuple,)  # a named tuple, and nothing derived from one
    if row.form == "dataclass":
        return row.cls is not None and _is_plain(row.cls)
    return row.form in ("record", "dict")


def _is_plain(cls: type) -> bool:
    """Tell whether a dataclass keeps what it is given: no user code runs when one is made or read."""
    parameters = cls.__dict__.get("__dataclass_params__")  # of itself, not of a class that it is derived from
    hooks = ("__post_init__", "__getattr__", "__new__", "__setattr__", "__getattribute__")
    if parameters is None or not parameters.init or any(_is_own(cls, name) for name in hooks):
        return False
    fields = {field.name for field in dataclasses.fields(cls) if field.init}
    if fields != cls.__dataclass_fields__.keys():  # type: ignore[attr-defined]
        return False
    read = (getattr(base, "__dict__", {}).get(name) for base in cls.__mro__ for name in fields)
    return all(isinstance(each, MemberDescriptorType) or not hasattr(each, "__get__") for each in read)


def _is_own(cls: type, name: str) -> bool:
    """Tell whether a class has a method of its own; the `__setattr__` of a frozen dataclass does not count."""
    method = getattr(cls, name, None)
    if name == "__setattr__" and cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return False
    return method is not getattr(object, name, None)


def _checked(values: Values, check: Callable[[Any], Any] | None) -> Values:
    if check is None or (isinstance(values, pa.Array) and values.type == pa.int64()):
        return _packed(values) if isinstance(values, list) else values
    return list(map(check, as_list(values)))


def _packed(values: list[Any]) -> Values:
    """Make a column of numbers of one type."""
    kinds = set(map(type, values))
    try:
        if kinds == {int}:
            return column_of(values, pa.int64())
        if kinds == {float}:
            return pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(array("d", values))])
    except OverflowError:
        pass  # numbers that only Python can hold
    return values


def picked(values: Values | None, rows: Ints) -> Values | None:
    if values is None or not isinstance(values, list):
        return None if values is None else values.take(pa.array(rows))
    return [values[row] for row in rows.tolist()]


def numbers_of(column: pa.Array, filler: float, form: Form) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Return a column's values, a filler in the place of nulls, and which are not null: None if all are."""
    if column.type != form.kind:
        column = column.cast(form.kind)
    if column.null_count == 0:
        return column.to_numpy(), None
    return column.fill_null(filler).to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)


GroupFold = Callable[[Parts, Any, Ints], Parts | None]
"""Takes values into the states of their groups; None where NumPy would give another result than Python."""
Column = tuple[Form, Parts]
"""The states of one aggregate."""


def fold_groups(
    aggregation: Aggregation, values: list[Values | None], groups: Ints, at: Ints, held: list[Column]
) -> list[Column]:
    """Return the new states of the groups, of each aggregate.

    `groups` tells the group of each value, `at` where a group's state is among those that are `held`, -1 where there is
    none. Old states stay as they were if anything fails; aggregates that change theirs cannot fail, and come last.
    """
    after: dict[int, Column] = {}
    for index in in_order(aggregation):
        before = held[index] if held else (OBJECTS, OBJECTS.blanks(0))
        after[index] = _folded(aggregation.aggregates[index], values[index], groups, at, before)
    return [after[index] for index in range(len(after))]


def in_order(aggregation: Aggregation) -> list[int]:
    """Return the numbers of the aggregates, those that change their state in place last."""
    return sorted(range(len(aggregation.aggregates)), key=lambda index: aggregation.aggregates[index].in_place)


def _folded(aggregate: Agg, values: Values | None, groups: Ints, at: Ints, held: Column) -> Column:
    step = aggregate.step
    form = form_of(aggregate, values.type if isinstance(values, pa.Array) else None)
    fold = _FOLDS.get((step, form.name))
    carried = None if fold is None else _carried(form, held, at)
    folded = None if fold is None or carried is None else fold(carried, values, groups)
    if folded is not None:
        return form, folded
    before = held[0].unpack(held[1])
    states = [aggregate.start() if place < 0 else before[place] for place in at.tolist()]
    listed = _LISTED.get(step)
    if listed is not None:
        if step in (aggregates.first_valid_step, aggregates.last_valid_step):
            values, groups = _without_nulls(values, groups)
        listed(states, values, groups)
    else:
        for group, value in zip(groups.tolist(), as_list(values), strict=False):
            states[group] = step(states[group], value)
    return OBJECTS, (value_list(states),)


def _without_nulls(values: Any, groups: Ints) -> tuple[Any, Ints]:
    if isinstance(values, pa.Array):
        there = values.is_valid().to_numpy(zero_copy_only=False)
    else:
        there = np.fromiter((value is not None for value in values), bool, len(values))
    return (values, groups) if there.all() else (picked(values, np.flatnonzero(there)), groups[there])


def _carried(form: Form, held: Column, at: Ints) -> Parts | None:
    """Return the states of groups in a form, which may be changed; None where one does not fit."""
    before, parts = held
    states = parts if before is form else form.pack(before.unpack(parts))
    if states is None:
        return None
    if not len(states[0]):
        return form.blanks(len(at))
    there = at >= 0
    if there.all():
        return tuple(part[at] for part in states)
    carried = form.blanks(len(at))
    for one, part in zip(carried, states, strict=True):
        one[there] = part[at[there]]
    return carried


def segments(groups: Ints, count: int) -> tuple[Ints | None, list[int]]:
    """Return the order that puts the members of each group together, None if they are, and where each group ends."""
    ends = [0, *np.cumsum(np.bincount(groups, minlength=count)).tolist()]
    return None if (groups[1:] >= groups[:-1]).all() else np.argsort(groups, kind="stable"), ends


def as_list(values: Values | None) -> Any:
    return repeat(None) if values is None else values if isinstance(values, list) else column_values(values)


def _count(carried: Parts, _: Any, groups: Ints) -> Parts:
    return (carried[0] + np.bincount(groups, minlength=len(carried[0])),)


def _count_valid(carried: Parts, values: Any, groups: Ints) -> Parts:
    return _count(carried, None, _without_nulls(values, groups)[1])


def _numbers(form: Form, fold: GroupFold) -> GroupFold:
    """Return a fold of numbers, which nulls do not change, as one of a column."""

    def folded(carried: Parts, values: pa.Array, groups: Ints) -> Parts | None:
        numbers, valid = numbers_of(values, 0, form)
        return fold(carried, numbers, groups) if valid is None else fold(carried, numbers[valid], groups[valid])

    return folded


def _sum(carried: Parts, values: Any, groups: Ints) -> Parts | None:
    totals, there = carried
    if not _add(totals, values, groups):
        return None
    there[groups] = True
    return totals, there


def _mean(carried: Parts, values: Any, groups: Ints) -> Parts | None:
    totals, counts = carried
    return (totals, counts + np.bincount(groups, minlength=len(counts))) if _add(totals, values, groups) else None


def _add(totals: npt.NDArray[Any], values: Any, groups: Ints) -> bool:
    """Add values to totals in the order of the rows; return False, and add nothing, where int64 may not hold a sum."""
    if totals.dtype == np.int64 and farthest(values) * len(values) + farthest(totals) >= 1 << 63:
        return False  # Python's numbers have no end, NumPy's do
    with np.errstate(all="ignore"):
        np.add.at(totals, groups, values)
    return True


def farthest(values: Ints) -> int:
    """Return the largest absolute value."""
    return max(-int(values.min(initial=0)), int(values.max(initial=0)))


def _best(operation: Any, whole: int, number: float) -> GroupFold:
    def fold(carried: Parts, values: Any, groups: Ints) -> Parts | None:
        best, there = carried
        if values.dtype == np.float64 and not (are_plain(values) and are_plain(best[there])):
            return None
        best[~there] = whole if values.dtype == np.int64 else number
        operation.at(best, groups, values)
        there[groups] = True
        return best, there

    return fold


def are_plain(values: npt.NDArray[Any]) -> bool:
    """Tell whether there is no NaN, and no -0.0: which of two zeros is kept depends on their order."""
    return not (np.isnan(values).any() or (np.signbit(values) & (values == 0)).any())


def _latest(groups: Ints, count: int) -> Ints:
    """Return the last place of each group, -1 where it has none."""
    latest = np.full(count, -1, np.int64)
    latest[groups] = np.arange(len(groups))  # of several numbers for one place, NumPy keeps the last
    return latest


def _last_number(form: Form) -> Callable[[Parts, Any, Ints], Parts]:
    def fold(carried: Parts, values: pa.Array, groups: Ints) -> Parts:
        latest = _latest(groups, len(carried[0]))
        some = np.flatnonzero(latest >= 0)
        numbers, valid = numbers_of(values, 0, form)
        carried[0][some] = numbers[latest[some]]
        carried[1][some] = True if valid is None else valid[latest[some]]
        return carried

    return fold


def _keep_last(states: list[Any], values: Any, groups: Ints) -> None:
    latest = _latest(groups, len(states))
    some = np.flatnonzero(latest >= 0)
    for group, value in zip(some.tolist(), as_list(picked(values, latest[some])), strict=True):
        states[group] = value


def _keep_first(states: list[Any], values: Any, groups: Ints, wrapped: bool = False) -> None:
    earliest = len(groups) - 1 - _latest(groups[::-1], len(states))
    some = np.flatnonzero(earliest < len(groups))
    for group, value in zip(some.tolist(), as_list(picked(values, earliest[some])), strict=True):
        if states[group] is None:
            states[group] = (value,) if wrapped else value


def _extend(add: Callable[[Any, list[Any]], Any]) -> Callable[[list[Any], Any, Ints], None]:
    def fold(states: list[Any], values: Any, groups: Ints) -> None:
        order, bounds = segments(groups, len(states))
        listed = as_list(values if order is None else picked(values, order))
        for state, (start, stop) in zip(states, pairwise(bounds), strict=True):
            add(state, listed[start:stop])

    return fold


_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_MIN, _MAX = _best(np.minimum, _HIGHEST, np.inf), _best(np.maximum, _LOWEST, -np.inf)
_FOLDS: dict[tuple[Any, str], GroupFold] = {
    (aggregates.count_step, COUNT.name): _count,
    (aggregates.count_valid_step, COUNT.name): _count_valid,
    (aggregates.sum_step, INT.name): _numbers(INT, _sum),
    (aggregates.sum_step, FLOAT.name): _numbers(FLOAT, _sum),
    (aggregates.mean_step, MEAN_INT.name): _numbers(INT, _mean),
    (aggregates.mean_step, MEAN_FLOAT.name): _numbers(FLOAT, _mean),
    (aggregates.min_step, INT.name): _numbers(INT, _MIN),
    (aggregates.min_step, FLOAT.name): _numbers(FLOAT, _MIN),
    (aggregates.max_step, INT.name): _numbers(INT, _MAX),
    (aggregates.max_step, FLOAT.name): _numbers(FLOAT, _MAX),
    (aggregates.last_step, INT.name): _last_number(INT),
    (aggregates.last_step, FLOAT.name): _last_number(FLOAT),
}
"""How an aggregate whose states have a form takes a whole column in."""
_LISTED: dict[Any, Callable[[list[Any], Any, Ints], None]] = {
    aggregates.first_step: partial(_keep_first, wrapped=True),
    aggregates.last_step: _keep_last,
    aggregates.first_valid_step: _keep_first,
    aggregates.last_valid_step: _keep_last,
    aggregates.distinct_step: _extend(lambda seen, more: seen.update(dict.fromkeys(more))),
    aggregates.collect_step: _extend(list.extend),
}
"""The same for states that are objects."""


def results_column(aggregate: Agg, column: Column, which: Ints) -> pa.Array | list[Any]:
    form, parts = column[0], tuple(part[which] for part in column[1])
    if form in (INT, FLOAT, COUNT) and (aggregate.result is identity or aggregate.result is whole_sum):
        return pa.array(parts[0], mask=None if form is COUNT or parts[1].all() else ~parts[1])
    if form is MEAN_FLOAT or (form is MEAN_INT and farthest(parts[0]) < EXACT):
        with np.errstate(all="ignore"):
            return pa.array(parts[0] / parts[1], mask=parts[1] == 0)
    return results_of(aggregate, form.unpack(parts))


EXACT = 1 << 53
"""Whole numbers up to this are exact as floats, so that both divide to the same result."""
