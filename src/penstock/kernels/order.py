"""The order that `order_by` gives: the running maximum of a part, and how far a merge of several may go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from penstock.rows.chunk import Ints

Key = tuple[int, ...]
"""The order_by values of a row, as integers in the same order."""
Part = tuple[int, int]
"""The number of a source, and the part of it."""
Bound = tuple[Key, Part]
"""Rows may be taken up to these values, and with them where their part is not behind this one."""


def climb(columns: Sequence[Ints], floor: Key | None) -> tuple[list[Ints], npt.NDArray[np.bool_]]:
    """Return the highest values up to each row of a part, from `floor` on, and which rows are below them: late ones.

    Where a row is late, its place is that of the highest values before it. So places never go back, and a row has the
    same one however the input was cut.
    """
    if len(columns) == 1:
        values = columns[0]
        highest = np.maximum.accumulate(values)
        if floor is not None:
            highest = np.maximum(highest, floor[0])
        return [highest], values < highest
    if floor is not None:
        columns = [np.concatenate([[least], column]) for column, least in zip(columns, floor, strict=True)]
    ranks = _ranks(columns)
    highest = np.maximum.accumulate(ranks)
    rising = np.concatenate([[True], ranks[1:] > highest[:-1]])
    reached = np.maximum.accumulate(np.where(rising, np.arange(len(ranks)), 0))
    skip = 0 if floor is None else 1
    return [column[reached][skip:] for column in columns], (ranks < highest)[skip:]


def _ranks(columns: Sequence[Ints]) -> Ints:
    """Number the values of rows by their order, equal ones alike."""
    order = np.lexsort(tuple(reversed(columns)))
    differs = np.zeros(len(order), bool)
    for column in columns:
        differs[1:] |= column[order][1:] != column[order][:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(differs)
    return ranks


def below(columns: Sequence[Ints], floor: Key) -> npt.NDArray[np.bool_]:
    """Return which rows have values before a floor."""
    found = np.zeros(len(columns[0]), bool)
    equal = np.ones(len(columns[0]), bool)
    for column, least in zip(columns, floor, strict=False):
        found |= equal & (column < least)
        equal &= column == least
    return found


def bound(tops: Mapping[Part, Key | None], counting: Iterable[Part]) -> Bound | None:
    """Return how far rows of all parts may be taken: as far as the last of those that may still give rows has come.

    `tops` has the highest values that each part has shown, None for nothing. None is returned where one has shown
    nothing, so that no row may be taken at all.
    """
    reached: Bound | None = None
    for part in counting:
        top = tops.get(part)
        if top is None:
            return None
        if reached is None or (top, part) < reached:
            reached = (top, part)
    return reached


def within(columns: Sequence[Ints], part: Part, most: Bound) -> int:
    """Return how many rows of a part, whose values never go back, are within a bound."""
    values, last = most
    if part > last:
        return int(below(columns, values).sum())
    low = below(columns, values)
    equal = np.ones(len(low), bool)
    for column, value in zip(columns, values, strict=True):
        equal &= column == value
    return int((low | equal).sum())
