"""A chunk: some rows of one stream with their positions and times, as columns, as Python rows, or as both.

A tuple for each row would be made, kept until the columns or the records are, and taken apart again: a fifth of what a
cheap function of a row costs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import RowTypeError
from penstock.rows.records import Row, RowType
from penstock.rows.values import MISFITS

Ints = npt.NDArray[np.int64]


class Unread(NamedTuple):
    """Rows as an operator made them, not read yet: most are written as columns and never are."""

    rows: list[Row]
    """Their values alone, if these are `FlatRows`."""
    loose: bool
    """Whether some may be bare tuples that stand for records."""
    order: Ints | None = None
    """Where each row of the chunk is in `rows`, if they are in another order: columns are reordered faster."""

    @property
    def flat(self) -> FlatRows | None:
        return self.rows if isinstance(self.rows, FlatRows) and self.rows.width else None

    @property
    def is_whole(self) -> bool:
        """Whether all of `rows` are in the chunk."""
        count = len(self.rows) if self.flat is None else self.flat.count
        return self.order is None or len(self.order) == count

    def read(self, row_type: RowType | None) -> list[Row]:
        """Return the rows in order, and as what they stand for."""
        rows = self.rows if self.flat is None else self.flat.rows()
        rows = rows if self.order is None else [rows[i] for i in self.order.tolist()]
        if not self.loose or self.flat is not None:
            return rows
        assert row_type is not None
        return row_type.records(rows)

    def encode(self, row_type: RowType) -> pa.RecordBatch:
        """Make columns of all rows; raises one of `MISFITS`, or `RowTypeError`, where a value does not fit."""
        columns = row_type.encode(self.rows) if self.flat is None else self.flat.columns()
        return columns if self.order is None else columns.take(pa.array(self.order))

    def select(self, index: Ints) -> Unread:
        if self.order is not None or self.flat is not None:
            return self._replace(order=index if self.order is None else self.order[index])
        return self._replace(rows=[self.rows[i] for i in index.tolist()])

    def slice(self, start: int, stop: int) -> Unread:
        if self.order is not None or self.flat is not None:
            return self.select(np.arange(start, stop))
        return self._replace(rows=self.rows[start:stop])


@dataclass
class Chunk:
    """Rows of one stream. Either form of the rows is made from the other when it is first asked for.

    Where a stream has several readers they share the chunk, each in its own thread. So what is made replaces *one*
    reference, by something of equal meaning: a reader has the one or the other, and never a mixture.
    """

    positions: list[Ints]
    """One array per component of the position."""
    times: Ints | None
    type: RowType | None
    columns: pa.RecordBatch | None = None
    rows: list[Row] | Unread | None = None
    fits: bool = False
    """Whether columns are known to give back the same rows; see `failures.py`."""

    def __len__(self) -> int:
        return len(self.positions[0])

    def get_rows(self) -> list[Row]:
        rows = self.rows
        if rows is None:
            assert self.type is not None
            assert self.columns is not None
            rows = self.rows = self.type.decode(self.columns)
        elif isinstance(rows, Unread):
            rows = self.rows = rows.read(self.type)
        return rows

    def iterate_rows(self, known: Mapping[str, list[Any]] | None = None) -> tuple[Iterator[Row], Callable[[], int]]:
        """Return the rows for one pass, without keeping them if they are not there yet; see `RowType.iterate`."""
        if self.rows is not None:
            rows: Any = iter(self.get_rows())
            return rows, rows.__length_hint__
        assert self.type is not None
        assert self.columns is not None
        return self.type.iterate(self.columns, known)

    def get_columns(self) -> pa.RecordBatch:
        """Return the rows as columns; raises `RowTypeError` where a value does not fit the declared type."""
        columns, rows = self.columns, self.rows
        if columns is not None:
            return columns
        assert self.type is not None
        if isinstance(rows, Unread) and rows.is_whole:
            with contextlib.suppress(RowTypeError, *MISFITS):  # found again below, by its place in the chunk
                columns = self.columns = rows.encode(self.type)
                return columns
        columns = self.columns = self.type.encode(self.get_rows())
        return columns

    def arrives_as_is(self) -> bool:
        """Tell whether columns would give back the same rows; False may be wrong where only some rows are here."""
        assert self.type is not None
        if isinstance(self.rows, Unread) and self.rows.flat is not None:
            return self.rows.flat.arrive_as_is()
        return self.type.all_arrive_as_is(self.get_rows())

    def select(self, index: Ints) -> Chunk:
        """Return the rows with these numbers, in this order."""
        rows, columns = self.rows, self.columns
        return Chunk(
            [p[index] for p in self.positions],
            None if self.times is None else self.times[index],
            self.type,
            None if columns is None else columns.take(pa.array(index)),
            rows.select(index) if isinstance(rows, Unread) else rows and [rows[i] for i in index.tolist()],
            self.fits,
        )

    def split(self, parts: Sequence[Ints]) -> list[Chunk]:
        """Return the rows of each part, which has their numbers; columns are copied once for all parts."""
        if self.rows is not None:
            return [self.select(part) for part in parts]
        grouped, stops = self.select(np.concatenate(parts)), np.cumsum([len(part) for part in parts]).tolist()
        return [grouped.slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]

    def slice(self, start: int, stop: int) -> Chunk:
        """Return consecutive rows; copies nothing but references."""
        rows, columns = self.rows, self.columns
        return Chunk(
            [p[start:stop] for p in self.positions],
            None if self.times is None else self.times[start:stop],
            self.type,
            None if columns is None else columns.slice(start, stop - start),
            rows.slice(start, stop) if isinstance(rows, Unread) else rows and rows[start:stop],
            self.fits,
        )

    def reordered(self, index: Ints) -> Chunk:
        """Return the rows in another order; the rows themselves wait until they are asked for."""
        rows = self.rows
        assert rows is not None
        assert not (isinstance(rows, Unread) and rows.order is not None)
        unread = Unread(rows.rows, rows.loose, index) if isinstance(rows, Unread) else Unread(rows, False, index)
        times = None if self.times is None else self.times[index]
        return Chunk([p[index] for p in self.positions], times, self.type, None, unread)

    def only_columns(self) -> Chunk:
        """Return the chunk with its rows as columns alone; raises `RowTypeError` as `get_columns` does."""
        return Chunk(self.positions, self.times, self.type, self.get_columns())

    def replace_rows(self, rows: list[Row], row_type: RowType | None) -> Chunk:
        return Chunk(self.positions, self.times, row_type, None, rows)

    def of_width(self, width: int) -> Chunk:
        """Return the chunk, whose positions must have as many components as the layout says."""
        if len(self.positions) != width:
            raise AssertionError(f"positions of {len(self.positions)} components where the layout has {width}")
        return self

    def widened(self, width: int) -> Chunk:
        """Return the chunk with its positions padded to the width of an operator's input, which none may exceed."""
        missing = width - len(self.positions)
        if missing <= 0:
            return self.of_width(width)
        zeros = np.zeros(len(self), np.int64)
        return dataclasses.replace(self, positions=[*self.positions, *[zeros] * missing])

    def extended(self, component: Ints) -> Chunk:
        """Return the chunk with one more component of the position."""
        return dataclasses.replace(self, positions=[*self.positions, component])

    def position(self, index: int) -> tuple[int, ...]:
        return tuple(int(component[index]) for component in self.positions)

    def sorted(self) -> Chunk:
        order = sorting_order(self.positions)
        return self if order is None else self.select(order)


def row_chunk(rows: list[Row], row_type: RowType | None) -> Chunk:
    """Make a chunk of rows that stand in order."""
    return Chunk([np.arange(len(rows), dtype=np.int64)], None, row_type, None, rows)


def sorting_order(positions: Sequence[Ints]) -> Ints | None:
    """Return the order that sorts positions, or None where they are sorted."""
    first = positions[0]
    if len(first) < 2:
        return None
    if len(positions) == 1:
        if (first[1:] >= first[:-1]).all():
            return None
        return np.argsort(first, kind="stable")
    if _is_sorted(positions):
        return None
    # np.lexsort takes the most significant key last.
    return np.lexsort(tuple(reversed(positions))).astype(np.int64)


def _is_sorted(positions: Sequence[Ints]) -> bool:
    """Compare each position with the next, by as many components as it takes: far less than sorting."""
    equal = np.arange(len(positions[0]) - 1)
    for component in positions:
        here, following = component[equal], component[equal + 1]
        if (following < here).any():
            return False
        equal = equal[following == here]
        if len(equal) == 0:
            break
    return True


def concat(chunks: Sequence[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    width = max(len(chunk.positions) for chunk in chunks)
    chunks = [chunk.widened(width) for chunk in chunks]
    positions = [np.concatenate([chunk.positions[i] for chunk in chunks]) for i in range(width)]
    times = None if chunks[0].times is None else np.concatenate([_times(chunk) for chunk in chunks])
    row_type = chunks[0].type
    if row_type is not None and all(chunk.columns is not None for chunk in chunks):
        return Chunk(positions, times, row_type, pa.concat_batches([chunk.columns for chunk in chunks]))
    rows: list[Any] = []
    for chunk in chunks:
        rows.extend(chunk.get_rows())
    return Chunk(positions, times, row_type, None, rows, all(chunk.fits for chunk in chunks))


def _times(chunk: Chunk) -> Ints:
    assert chunk.times is not None
    return chunk.times


def sorted_together(parts: Sequence[tuple[Chunk, Ints]], width: int) -> tuple[Chunk, Ints]:
    """Put chunks, with the shard of each row, in one, rows in order, positions as wide as an operator's input."""
    chunk = concat([part.widened(width) for part, _ in parts])
    shards = np.concatenate([of for _, of in parts]) if len(parts) > 1 else parts[0][1]
    order = sorting_order(chunk.positions)
    return (chunk, shards) if order is None else (chunk.select(order), shards[order])


class FlatRows(list[Any]):
    """A list of values, `width` for each row; a list of rows once that is 0."""

    def __init__(self, row_type: RowType, for_columns: bool) -> None:
        """Make it; what is not known to be `for_columns` is so only where rows would have to be made anyway."""
        super().__init__()
        self.row_type, self.width, self.for_columns = row_type, len(row_type.schema), for_columns

    @property
    def count(self) -> int:  # type: ignore[override]  # hides list.count, which is not called
        """How many rows there are."""
        return len(self) // self.width if self.width else len(self)

    def rows(self) -> list[Row]:
        return self.row_type.records(zip(*[iter(self)] * self.width, strict=True)) if self.width else list(self)

    def to_rows(self) -> None:
        """Be a list of rows from now on: something in them is not as it should be, or they are rows already."""
        self[:] = self.rows()
        self.width = 0

    def add_row(self, row: Row) -> None:
        """Add a row that is not as the others, and be a list of rows from now on."""
        self.to_rows()
        self.append(row)

    def columns(self) -> pa.RecordBatch:
        """Make columns of the values; raises one of `MISFITS` where a value does not fit."""
        values: list[Sequence[Any]] = [self[number :: self.width] for number in range(self.width)]
        return self.row_type.encode_columns(values, self.count)

    def arrive_as_is(self) -> bool:
        """Tell whether columns would give back the same values."""
        return self.row_type.values_arrive_as_is(self[:])
