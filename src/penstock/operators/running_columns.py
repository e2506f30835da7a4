"""Running aggregates by columns: what `Agg.step` gives after each row, for whole columns, to the last bit.

Rows are put together by their key, in order. A group's first value takes in what its key had before; the rest is a
running sum, minimum or maximum of each group. Whole numbers are added over all groups at once. Floats are added in the
order of their rows: the second rows of all groups, then the third ones, and what is left of the largest groups one
group after the other. Where NumPy would give another result than Python, the aggregate is a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators import aggregates
from penstock.operators.aggregate_columns import EXACT, are_plain, farthest, numbers_of
from penstock.operators.aggregates import Agg, results_of
from penstock.operators.state_forms import FLOAT, INT, MEAN_FLOAT, MEAN_INT, Form, Parts, value_list
from penstock.rows.values import column_of, column_values

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
_STEP, _MEMBER, _CALL, _REST = 6e-6, 8e-9, 0.6e-6, 2e-9
"""Seconds of taking the next row of all groups, of each row of it; of one group's rest, of each row of that."""
_MOST_STEPS = 4096
_LIMIT = 1 << 62


@dataclass(frozen=True)
class Members:
    """Rows by their group."""

    order: Ints | None
    """The rows, those of a group together and in order; None where they are."""
    sizes: Ints
    """How many rows each group has."""

    @classmethod
    def by_code(cls, codes: Ints, count: int) -> Members:
        """Group rows by their codes, from 0 to below `count`."""
        order = None if (codes[1:] >= codes[:-1]).all() else sorting(codes, count - 1)
        return cls(order, np.bincount(codes, minlength=count))

    @classmethod
    def by_number(cls, numbers: Ints) -> tuple[Members, Ints]:
        """Group rows by equal numbers; also return the number of each group."""
        low = int(numbers.min())
        span = int(numbers.max()) - low
        if span >= 1 << 32:
            encoded = pa.array(numbers).dictionary_encode()
            distinct: Ints = encoded.dictionary.to_numpy()
            return cls.by_code(encoded.indices.to_numpy(), len(distinct)), distinct
        order = sorting(numbers - low, span)
        numbers = numbers[order]
        starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        return cls(order, np.diff(np.append(starts, len(numbers)))), numbers[starts]

    @property
    def count(self) -> int:
        return len(self.sizes)

    @cached_property
    def rows(self) -> int:
        return int(self.sizes.sum())

    @cached_property
    def starts(self) -> Ints:
        """Where each group begins among the rows in order."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def of(self) -> Ints:
        """The group of each row in order."""
        return np.repeat(np.arange(self.count), self.sizes)

    @cached_property
    def codes(self) -> Ints:
        """The group of each row."""
        return self.unsorted(self.of)

    @property
    def firsts(self) -> Ints:
        """The first row of each group."""
        return self.starts if self.order is None else self.order[self.starts]

    @property
    def last(self) -> Ints:
        """Where each group ends."""
        return self.starts + self.sizes - 1

    @property
    def lasts(self) -> Ints:
        """The last row of each group."""
        return self.last if self.order is None else self.order[self.last]

    def sorted(self, values: Array) -> Array:
        """Return values of rows in order; always a copy."""
        return values.copy() if self.order is None else values[self.order]

    def unsorted(self, values: Array) -> Array:
        """Put values of sorted rows back in the order in which the rows came."""
        if self.order is None:
            return values
        as_came = np.empty_like(values)
        as_came[self.order] = values
        return as_came

    @cached_property
    def _steps(self) -> tuple[Ints, Ints, list[int]]:
        """Where groups begin and end, the largest first, and how many have a second, third, ... row, while it pays."""
        largest = np.argsort(-self.sizes, kind="stable")
        starts = self.starts[largest]
        # How many groups have more rows than the index; after `_MOST_STEPS` steps none is worth one more.
        longer = (self.count - np.cumsum(np.bincount(np.minimum(self.sizes, _MOST_STEPS))))[:_MOST_STEPS]
        taken = np.cumsum(longer)
        cost = _STEP * np.arange(len(longer)) + _MEMBER * taken + _CALL * longer + _REST * (self.rows - taken)
        return starts, starts + self.sizes[largest], longer[: int(cost.argmin()) + 1].tolist()

    def accumulate(self, operation: Any, values: Array) -> None:
        """Replace values of rows in order by the running ones of their group."""
        starts, ends, longer = self._steps
        for rank, count in enumerate(longer[1:], 1):
            at = starts[:count] + rank
            values[at] = operation(values[at - 1], values[at])
        rank, rest = len(longer) - 1, longer[-1]
        for start, end in zip((starts[:rest] + rank).tolist(), ends[:rest].tolist(), strict=True):
            part = values[start:end]
            operation.accumulate(part, out=part)

    def whole_sums(self, values: Ints, carried: Ints) -> Ints:
        """Return running sums of whole numbers in order; none may leave int64, what comes between may."""
        sums = np.cumsum(values)
        before = sums[self.starts] - values[self.starts] - carried
        return sums - before[self.of]


def sorting(numbers: Ints, most: int) -> Ints:
    """Return the order of numbers from 0 to below 2**32: NumPy sorts short ones without comparing them."""
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    if most < 1 << 16:
        return order
    return order[np.argsort((numbers[order] >> 16).astype(np.uint16), kind="stable")]


Found = tuple[pa.Array, Parts]
"""The result after each row, and the new states of the groups."""


def running(
    aggregate: Agg, form: Form, carried: Parts, column: pa.Array | list[Any] | None, members: Members, kind: pa.DataType
) -> tuple[pa.Array, Form, Parts]:
    """Return the results of an aggregate after each row, and the groups' new states, in a form that has them."""
    fold = None if isinstance(column, list) else _FOLDS.get((aggregate.step, form.name))
    folded = None if fold is None else fold(carried, column, members, kind)
    if folded is not None:
        return folded[0], form, folded[1]
    states = [aggregate.start() if state is None else state for state in form.unpack(carried)]
    values = [None] * members.rows if column is None else column if isinstance(column, list) else column_values(column)
    step, after = aggregate.step, []
    for code, value in zip(members.codes.tolist(), values, strict=True):
        states[code] = state = step(states[code], value)
        after.append(state)
    results = column_of(results_of(aggregate, after), kind)
    kept, parts = form.packed(states)
    return results, kept, parts


def _count(carried: Parts, column: Any, members: Members, kind: pa.DataType) -> Found:
    counts = members.unsorted((carried[0] - members.starts)[members.of] + np.arange(1, members.rows + 1))
    return pa.array(counts), (carried[0] + members.sizes,)


def _count_valid(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found:
    counts = members.whole_sums(_valid_rows(column, members).astype(np.int64), carried[0])
    return pa.array(members.unsorted(counts)), (counts[members.last],)


def _there(members: Members, valid: Array | None, carried: Array) -> Array | None:
    """Tell after which rows, in order, a group has had a value; None if after all."""
    if valid is None:
        return None
    return members.whole_sums(members.sorted(valid).astype(np.int64), carried.astype(np.int64))


def _made(members: Members, values: Array, there: Array | None, kind: pa.DataType) -> pa.Array:
    nulls = None if there is None else members.unsorted(there <= 0)
    column = pa.array(members.unsorted(values), mask=nulls)
    return column if column.type == kind else column.cast(kind)


def _after(members: Members, values: Array, there: Array | None) -> Parts:
    last = members.last
    return values[last], np.ones(members.count, bool) if there is None else there[last] > 0


def _sums(form: Form, carried: Array, column: pa.Array, members: Members) -> tuple[Array, Array | None] | None:
    """Return the running sums of rows in order, and which values are there; None where a sum may leave int64."""
    # -0.0 is the number that changes no other: 0.0 would make 0.0 of -0.0. It stands for nulls and in new states.
    values, valid = numbers_of(column, -0.0 if form is FLOAT else 0, form)
    if form is INT:
        fits = farthest(values) * int(members.sizes.max()) + farthest(carried) < _LIMIT
        return (members.whole_sums(members.sorted(values), carried), valid) if fits else None
    sums = members.sorted(values)
    with np.errstate(all="ignore"):
        sums[members.starts] = carried + sums[members.starts]
        members.accumulate(np.add, sums)
    return sums, valid


def _sum(form: Form) -> Callable[..., Found | None]:
    def fold(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found | None:
        running = _sums(form, carried[0], column, members)
        if running is None:
            return None
        sums, there = running[0], _there(members, running[1], carried[1])
        return _made(members, sums, there, kind), _after(members, sums, there)

    return fold


def _mean(form: Form) -> Callable[..., Found | None]:
    def fold(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found | None:
        running = _sums(form, carried[0], column, members)
        if running is None or (form is INT and farthest(running[0]) >= EXACT):
            return None
        sums, valid = running
        ones = np.ones(len(sums), np.int64) if valid is None else members.sorted(valid).astype(np.int64)
        counts, last = members.whole_sums(ones, carried[1]), members.last
        with np.errstate(all="ignore"):
            means = sums / counts
        return _made(members, means, None if valid is None else counts, pa.float64()), (sums[last], counts[last])

    return fold


def _best(operation: Any, form: Form, filler: float) -> Callable[..., Found | None]:
    def fold(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found | None:
        values, valid = numbers_of(column, filler, form)
        if form is FLOAT and not (are_plain(values) and are_plain(carried[0][carried[1]])):
            return None
        there = _there(members, valid, carried[1])
        best, starts = members.sorted(values), members.starts
        best[starts] = operation(np.where(carried[1], carried[0], np.array(filler, best.dtype)), best[starts])
        members.accumulate(operation, best)
        return _made(members, best, there, kind), _after(members, best, there)

    return fold


def _last(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found:
    return column, (value_list(column_values(column.take(pa.array(members.lasts)))),)


def _last_number(form: Form) -> Callable[..., Found]:
    def fold(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found:
        values, valid = numbers_of(column, 0, form)
        lasts = members.lasts
        return column, (values[lasts], np.ones(members.count, bool) if valid is None else valid[lasts])

    return fold


def _first(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found:
    held = carried[0].tolist()
    values = column_values(column.take(pa.array(members.firsts)))
    states = [(value,) if state is None else state for state, value in zip(held, values, strict=True)]
    new = np.fromiter((state is None for state in held), bool, members.count)
    picked = np.where(new, members.count + members.firsts, np.arange(members.count))[members.codes]
    before = [None if state is None else state[0] for state in held]
    return _taken(before, column, picked, kind), (value_list(states),)


def _valid_rows(column: pa.Array, members: Members) -> Array:
    return members.sorted(column.is_valid().to_numpy(zero_copy_only=False))


def _last_valid(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found:
    places = np.arange(members.rows)
    latest = np.maximum.accumulate(np.where(_valid_rows(column, members), places, -1))
    return _from(carried, column, members, kind, np.where(latest >= members.starts[members.of], latest, -1))


def _first_valid(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType) -> Found:
    places = np.arange(members.rows)
    earliest = np.minimum.reduceat(np.where(_valid_rows(column, members), places, len(places)), members.starts)
    earliest[np.fromiter((state is not None for state in carried[0].tolist()), bool, members.count)] = len(places)
    each = earliest[members.of]
    return _from(carried, column, members, kind, np.where(each <= places, each, -1))


def _from(carried: Parts, column: pa.Array, members: Members, kind: pa.DataType, places: Ints) -> Found:
    """Return the values that stand, of the rows in order, at some places; -1 is what the group had before."""
    rows = places if members.order is None else members.order[places]
    held = carried[0].tolist()
    picked = members.unsorted(np.where(places >= 0, members.count + rows, members.of))
    results = _taken(held, column, picked, kind)
    return results, (value_list(column_values(results.take(pa.array(members.lasts)))),)


def _taken(before: list[Any], column: pa.Array, picked: Ints, kind: pa.DataType) -> pa.Array:
    """Pick values: the first numbers are of those before, the others of the column."""
    return pa.concat_arrays([column_of(before, kind), column]).take(pa.array(picked))


_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_FOLDS: dict[tuple[Any, str], Callable[..., Found | None]] = {
    (aggregates.count_step, "count"): _count,
    (aggregates.count_valid_step, "count"): _count_valid,
    (aggregates.sum_step, INT.name): _sum(INT),
    (aggregates.sum_step, FLOAT.name): _sum(FLOAT),
    (aggregates.mean_step, MEAN_INT.name): _mean(INT),
    (aggregates.mean_step, MEAN_FLOAT.name): _mean(FLOAT),
    (aggregates.min_step, INT.name): _best(np.minimum, INT, _HIGHEST),
    (aggregates.max_step, INT.name): _best(np.maximum, INT, _LOWEST),
    (aggregates.min_step, FLOAT.name): _best(np.minimum, FLOAT, np.inf),
    (aggregates.max_step, FLOAT.name): _best(np.maximum, FLOAT, -np.inf),
    (aggregates.first_step, "objects"): _first,
    (aggregates.last_step, "objects"): _last,
    (aggregates.last_step, INT.name): _last_number(INT),
    (aggregates.last_step, FLOAT.name): _last_number(FLOAT),
    (aggregates.first_valid_step, "objects"): _first_valid,
    (aggregates.last_valid_step, "objects"): _last_valid,
}
