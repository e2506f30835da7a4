"""What places rows of a source in order, and in time: values as integers; and rows that have no time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.connectors.splits import Piece
from penstock.errors import SourceError, operator_error, row_text
from penstock.flow.checks import DeadLetter
from penstock.kernels.failures import Failure
from penstock.kernels.stateless import letters_chunk
from penstock.plan.graph import SourceNode
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.records import any_getter
from penstock.rows.timing import column_ticks
from penstock.sequential import no_time, no_time_message

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
    """Return the failure of a row that has no event time."""
    source = node.operator
    assert source.time is not None
    error = SourceError(no_time_message(node.name, source.time, None, chunk.slice(index, index + 1).get_rows()[0]))
    return Failure(node.name, chunk.position(index), error)


def no_time_letters(node: SourceNode, chunk: Chunk, missing: Ints) -> Chunk:
    """Return dead letters of rows that have no event time."""
    source = node.operator
    assert source.time is not None
    rows, error = chunk.select(missing), no_time(source.time, None)
    problems = [(row, operator_error(node.name, error, row)) for row in rows.get_rows()]
    letters = [DeadLetter(node.name, problem.error, problem.where, row_text(row)) for row, problem in problems]
    return letters_chunk(rows, list(enumerate(letters)), len(rows.positions))
