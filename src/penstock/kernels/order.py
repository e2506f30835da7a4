"""The order of source rows: values as integers, the running maximum of a part, how far a merge of several may go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.interfaces import Piece
from penstock.errors import SourceError, operator_error, row_text
from penstock.flow.checks import DeadLetter
from penstock.kernels.failures import Failure
from penstock.kernels.stateless import letters_chunk
from penstock.plan.graph import SourceNode
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.records import any_getter
from penstock.rows.timing import column_ticks
from penstock.sequential import no_time, no_time_message

Key = tuple[int, ...]
"""The order_by values of a row, as integers in the same order."""
Part = tuple[int, int]
"""The number of a source, and the part of it."""
Bound = tuple[Key, Part]
"""Rows may be taken up to these values, and with them where their part is not after this one."""


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
    is_below = np.zeros(len(columns[0]), bool)
    equal = np.ones(len(columns[0]), bool)
    for column, least in zip(columns, floor, strict=False):
        is_below |= equal & (column < least)
        equal &= column == least
    return is_below


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


_SIGN = np.int64(-(1 << 63))


def order_column(piece: Piece, field: str) -> Ints:
    """Return an order_by field as integers in the same order; null comes first, NaN last."""
    if piece.columns is None:
        column = pa.array([any_getter([field])(row) for row in piece.rows or []])
    else:
        column = piece.columns.column(field)
    return order_values(column)


def order_values(column: pa.Array) -> Ints:
    """Return values as integers in the same order."""
    kind = column.type
    if pa.types.is_floating(kind):
        numbers = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        as_int = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        # Negative floats order backwards by their bits: flip all but the sign. The one NaN is above infinity.
        values: Ints = np.where(as_int < 0, as_int ^ ~_SIGN, as_int)
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    else:
        values = column_ticks(column)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _SIGN, values) if column.null_count else values


def row_times(piece: Piece, field: str) -> Ints:
    """Return the event time of each row; see `untimed` for nulls."""
    assert piece.columns is not None  # the type of a field of times is known
    return column_ticks(piece.columns.column(field))


def untimed(node: SourceNode, chunk: Chunk) -> tuple[Chunk, Ints]:
    """Return a source's rows without those that have no event time, and the numbers of these."""
    source = node.operator
    nothing = np.empty(0, np.int64)
    if source.time is None or chunk.columns is None or not chunk.columns.column(source.time).null_count:
        return chunk, nothing
    missing = chunk.columns.column(source.time).is_null().to_numpy(zero_copy_only=False)
    return chunk.select(np.flatnonzero(~missing)), np.flatnonzero(missing)


def no_time_failure(node: SourceNode, chunk: Chunk, index: int) -> Failure:
    source = node.operator
    assert source.time is not None
    error = SourceError(no_time_message(node.name, source.time, None, chunk.slice(index, index + 1).get_rows()[0]))
    return Failure(node.name, chunk.position(index), error)


def no_time_letters(node: SourceNode, chunk: Chunk, missing: Ints) -> Chunk:
    source = node.operator
    assert source.time is not None
    rows, error = chunk.select(missing), no_time(source.time, None)
    problems = [(row, operator_error(node.name, error, row)) for row in rows.get_rows()]
    letters = [DeadLetter(node.name, problem.error, problem.where, row_text(row)) for row, problem in problems]
    return letters_chunk(rows, list(enumerate(letters)), len(rows.positions))
