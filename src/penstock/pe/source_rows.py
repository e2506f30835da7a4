"""Positions of source rows: order_by values as integers, then one packed place, or several numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph import Node
from penstock.ingress.splits import ROW_BITS, Piece
from penstock.operators.base import Source
from penstock.pe.chunk import Chunk, Ints
from penstock.pe.marks import Steps
from penstock.plan import Plan
from penstock.positions import LAST, own_width
from penstock.rows import any_getter
from penstock.timing import FOREVER, column_ticks, time_to_ticks

_PLACE_BITS = 57
"""Bits of a packed place; above them the number of the source, below them one bit: row or mark."""
_SIGN = np.int64(-(1 << 63))


def source_chunk(plan: Plan, node: Node, piece: Piece, timed: bool) -> Chunk:
    """Make the chunk of a piece of a source: rows with positions and times, in order."""
    source = node.operator
    assert isinstance(source, Source)
    number = plan.sources.index(node)
    ordered = [_order_column(piece, field) for field in source.order_by]
    own = own_positions(plan, number, [piece.positions] if piece.positions.ndim == 1 else list(piece.positions))
    times = None
    if timed:
        times = np.zeros(len(own[0]), np.int64) if source.time is None else _times(piece, source.time)
    chunk = Chunk([*ordered, *own], times, node.types[0], piece.columns, piece.rows)
    return chunk if piece.in_order and not ordered else chunk.sorted()


def own_positions(plan: Plan, number: int, own: list[Ints]) -> list[Ints]:
    """Return the components of rows' places inside source `number`; the lowest bit is 1 for rows, 0 for marks."""
    wide = max(own_width(node.operator) for node in plan.sources if isinstance(node.operator, Source))
    if wide == 1:
        return [(np.int64(number) << np.int64(_PLACE_BITS + 1)) + own[0] * 2 + 1]
    padding = [np.zeros(len(own[0]), np.int64)] * (wide - len(own))
    columns = [np.full(len(own[0]), number, np.int64), *own, *padding]
    columns[-1] = columns[-1] * 2 + 1
    return columns


def end_mark(number: int, base: int) -> Steps:
    """Return the mark at the end of a source: behind every row, ends in the order of the sources."""
    place = LAST - 2 * (64 - number)
    return Steps([np.array([place], np.int64) for _ in range(base)], np.array([FOREVER], np.int64))


def late_rows(chunk: Chunk, floor: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return which rows are ordered before a floor."""
    below = np.zeros(len(chunk), bool)
    equal = np.ones(len(chunk), bool)
    for component, least in zip(chunk.positions, floor, strict=False):
        below |= equal & (component < least)
        equal &= component == least
    return below


def _order_column(piece: Piece, field: str) -> Ints:
    """Return an order_by field as integers in the same order; null comes first."""
    if piece.columns is None:
        column = pa.array([any_getter([field])(row) for row in piece.rows or []])
    else:
        column = piece.columns.column(field)
    kind = column.type
    if pa.types.is_floating(kind):
        bits = column.cast(pa.float64()).fill_null(-np.inf).to_numpy(zero_copy_only=False) + 0.0
        as_int = bits.view(np.int64)
        # Negative floats order backwards by their bits: flip all but the sign.
        values: Ints = np.where(as_int < 0, as_int ^ ~_SIGN, as_int)
    elif pa.types.is_boolean(kind):
        values = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    else:
        ticks = column if pa.types.is_integer(kind) else pa.array(column_ticks(column.fill_null(0)))
        values = ticks.cast(pa.int64()).fill_null(int(_SIGN)).to_numpy(zero_copy_only=False)
    return values


def _times(piece: Piece, field: str) -> Ints:
    if piece.columns is not None:
        return column_ticks(piece.columns.column(field))
    return np.fromiter((time_to_ticks(any_getter([field])(row)) for row in piece.rows or []), np.int64)


def packed_place(number: int, ordinal: int, row: int) -> int:
    """Return the position that separates the rows before a row of a split from that row on."""
    return (number << (_PLACE_BITS + 1)) + ((ordinal << ROW_BITS) + row) * 2
