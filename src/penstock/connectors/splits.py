"""Read one split of a source: a piece that can be named in a log and read in any process, any number of times."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.paths import open_path
from penstock.connectors.read import Files, Generated, Items, Reader, Socket
from penstock.connectors.retries import retried_pieces
from penstock.connectors.text import UNTOLD, Unreadable, read_text
from penstock.errors import RowTypeError, SourceError, operator_error, row_text
from penstock.rows.records import RowType

BATCH_ROWS = 32_768
"""Rows that are read, and later run, at once: enough to spread the cost of a call, few enough for the cache."""
ROW_BITS = 33
"""A position inside a source is (ordinal of the file or split << ROW_BITS) + row."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """A piece of a source. What is used depends on the reader: a file and rows of it, a range, or rows themselves."""

    ordinal: int
    start: int = 0
    stop: int = 0
    path: str | None = None
    payload: bytes | None = None
    """Rows that only the driver has, pickled."""
    place: int | None = None
    """The place of the first row in its source, where that is not told by `ordinal` and `start`."""
    _: KW_ONLY
    part: int = 0
    """The part of the source that all rows are of; see `Piece`."""
    floor: tuple[int, ...] | None = None
    """The highest order_by values of its part before the split: rows below them are late."""

    def to_json(self) -> dict[str, Any]:
        """Describe the split for the log; rows are left out unless nothing else can bring them back."""
        return {"ordinal": self.ordinal, "start": self.start, "stop": self.stop, "path": self.path}

    @property
    def first(self) -> int:
        """Return the place of the first row in its source."""
        return (self.ordinal << ROW_BITS) + self.start if self.place is None else self.place

    @property
    def rows(self) -> int | None:
        """Return how many rows there are; None for a file that is not counted."""
        return None if self.path is not None and self.stop == 0 else self.stop - self.start

    def cut(self, start: int, stop: int) -> Split:
        """Return rows `start` to `stop` of the source's piece, as rows of it are counted; for what has no payload."""
        assert self.payload is None
        place = None if self.place is None else self.place + start - self.start
        return replace(self, start=start, stop=stop, place=place)


@dataclass(frozen=True)
class Piece:
    """Rows of a split as they are read: columns, or Python rows where the type is not declared.

    A source has one or more *parts*: what writes at its own pace, such as a partition of Kafka. Each has a watermark,
    and that of the source is the lowest of them. A part is named by any 64-bit number that is the same in every epoch
    and every run (the partition's number; a hash of topic and partition where there are several topics).
    """

    positions: Positions
    """The place of each row in its source: one number a row, or a matrix with one row of numbers per component."""
    columns: pa.RecordBatch | None
    rows: list[Any] | None
    in_order: bool = True
    """Whether the positions are ascending."""
    parts: Positions | None = None
    """The part that each row belongs to; None where all rows are of the part 0, as in a source with one part."""
    unreadable: Mapping[int, Unreadable] = field(default_factory=dict)
    """Rows, by number, that cannot be read and are null in all columns, where the source goes on without them."""


def cut_splits(splits: tuple[Split, ...], pieces: int, *, whole: bool = False) -> list[list[Split]]:
    """Divide splits in about equal contiguous groups, one a task, cutting those whose rows are counted if need be."""
    counts = [split.rows for split in splits]
    if None in counts or any(split.payload for split in splits):
        groups: list[list[Split]] = [[] for _ in range(min(pieces, len(splits)))]
        for index, split in enumerate(splits):
            groups[index * len(groups) // len(splits)].append(split)
        return groups
    size = max(1, -(-sum(count or 0 for count in counts) // pieces))
    groups, room = [[]], size
    for split in splits:
        start = split.start
        while start < split.stop:
            stop = split.stop if whole else min(split.stop, start + room)
            groups[-1].append(split.cut(start, stop))
            room -= stop - start
            start = stop
            if room <= 0:
                groups.append([])
                room = size
    return [group for group in groups if group]


def read_split(reader: Reader, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
    """Read a split in order."""
    for piece in _read(reader, row, split, source):
        yield piece if split.part == 0 else replace(piece, parts=np.full(piece.positions.shape[-1], split.part))


def _read(reader: Reader, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
    if isinstance(reader, Files):
        assert row is not None
        files, declared, given = reader, row, 0
        for piece in retried_pieces(
            lambda: _read_file(files, declared, split, source), f"source {source!r}: reading", str(split.path)
        ):
            given += piece.positions.shape[-1]
            yield piece
        if split.rows is not None and given < split.rows:
            raise changed(source, split.path, f"of rows {split.start} to {split.stop} it has {given}")
    elif isinstance(reader, Generated):
        assert row is not None
        for start in range(split.start, split.stop, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, split.stop)
            try:
                table = reader.function(start, stop)
            except Exception as error:  # the user's function, whatever it reads
                raise operator_error(source, error, range(start, stop)) from None
            if table.num_rows != stop - start:
                raise SourceError(
                    f"source {source!r}: the generator gave {table.num_rows} rows for the row numbers "
                    f"{start} to {stop}; it must give {stop - start}"
                )
            yield from _pieces(row, table, split, start - split.start, source)
    elif isinstance(reader, (Items, Socket)):
        rows = pickle.loads(split.payload or b"")
        yield from item_pieces(row, rows, split, source, passes_over=isinstance(reader, Items) and reader.passes_over)
    else:
        raise TypeError(f"{reader!r} is not read by splits")


def changed(source: str, path: str | None, how: str) -> SourceError:
    """Return the refusal of a file of which other rows were taken, or counted, before."""
    return SourceError(
        f"source {source!r}: the file {path} has changed since its rows were counted: {how}; put it back as it was, "
        f"or start with a new checkpoint"
    )


def gone(source: str, path: str) -> SourceError:
    """Return the refusal of a file that was listed and is not there any more."""
    return SourceError(
        f"source {source!r}: the file {path} is gone; it was there when the epoch was planned, so restore it, or start "
        f"with a new checkpoint"
    )


def item_pieces(
    row: RowType | None, rows: list[Any], split: Split, source: str, *, passes_over: bool = False
) -> Iterator[Piece]:
    """Give rows from memory as pieces."""
    for start in range(0, len(rows), BATCH_ROWS):
        part = rows[start : start + BATCH_ROWS]
        positions = _positions(split, start, len(part))
        if row is None:
            yield Piece(positions, None, part)
            continue
        unreadable: dict[int, Unreadable] = {}
        try:
            columns = row.encode(part)
        except RowTypeError as error:
            if not passes_over:
                raise SourceError(f"source {source!r}, row {split.start + start + error.index}: {error}") from None
            part, unreadable = _without_misfits(row, part, split.start + start)
            columns = row.encode(part)
        yield Piece(positions, columns, None, unreadable=unreadable)


def _without_misfits(row: RowType, rows: list[Any], first: int) -> tuple[list[Any], dict[int, Unreadable]]:
    """Return rows with nothing in the place of those that do not fit their type, and why these do not."""
    fitting, unreadable = list(rows), dict[int, Unreadable]()
    nothing = row.decode(_nulls(row, 1))[0]
    for number, value in enumerate(rows):
        try:
            row.encode([value])
        except RowTypeError as error:
            unreadable[number] = Unreadable(f"row {first + number}", str(error), row_text(value))
            fitting[number] = nothing
    return fitting, unreadable


def _nulls(row: RowType, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count, kind) for kind in row.schema.types], schema=row.schema)


def _positions(split: Split, start: int, count: int) -> Positions:
    first = split.first + start
    return np.arange(first, first + count, dtype=np.int64)


def _pieces(row: RowType, table: pa.Table, split: Split, start: int, source: str) -> Iterator[Piece]:
    """Cast a table to the source's type and cut it in batches."""
    table = cast_table(row, table, source, split.path)
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        if batch.num_rows:
            yield Piece(_positions(split, start, batch.num_rows), batch, None)
            start += batch.num_rows


def cast_table(row: RowType, table: pa.Table | pa.RecordBatch, source: str, where: str | None) -> Any:
    """Bring a table to the declared columns and types, or say which does not fit."""
    try:
        return _fit(row, table)
    except pa.ArrowInvalid as error:
        place = f" in {where}" if where else ""
        raise SourceError(f"source {source!r}{place}: {error}") from None


def _fit(row: RowType, table: pa.Table | pa.RecordBatch) -> Any:
    """Bring a table to the declared columns and types; raise `pa.ArrowInvalid` where one does not fit."""
    if table.schema.equals(row.schema):
        return table
    columns = []
    for wanted in row.schema:
        index = table.schema.get_field_index(wanted.name)
        if index < 0:
            raise pa.ArrowInvalid(
                f"there is no column {wanted.name!r}; the columns are {', '.join(table.schema.names)}"
            )
        column = table.column(index)
        try:
            columns.append(
                column
                if column.type == wanted.type
                else column.cast(wanted.type, safe=not pa.types.is_timestamp(wanted.type))
            )
        except pa.ArrowException as error:
            raise pa.ArrowInvalid(
                f"column {wanted.name!r} is of type {column.type} and does not fit {wanted.type}: "
                f"{str(error).splitlines()[0]}"
            ) from None
    make = pa.Table if isinstance(table, pa.Table) else pa.RecordBatch
    return make.from_arrays(columns, schema=row.schema)


def _read_file(reader: Files, row: RowType, split: Split, source: str) -> Iterator[Piece]:
    assert split.path is not None
    pieces = _read_parquet if reader.format == "parquet" else _read_lines
    try:
        with open_path(split.path) as file:
            yield from pieces(reader, row, file, split, source)
    except FileNotFoundError:
        raise gone(source, split.path) from None
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and (reader.format != "parquet" or not blames_content(error, split.path)):
            raise
        reason = str(error).splitlines()[0]
        if not reader.passes_over:
            raise SourceError(
                f"source {source!r}: the file {split.path} cannot be read as {reader.format}: {reason}{PASS_OVER}"
            ) from None
        # Nobody knows how many rows there would be, unless they were counted before.
        stop = split.stop or 1
        yield _unreadable_rows(row, split, range(split.start, stop), 0, Unreadable(split.path, reason, ""))


PASS_OVER = '; repair it, or give the source on_error="skip" or "dead_letter"'


def blames_content(
    error: Exception, path: str, groups: Sequence[int] = (), columns: Sequence[str] | None = None
) -> bool:
    """Tell whether an error of reading a file of Parquet comes from what is in it, and not from disk or network.

    Arrow reports damaged pages, and what a store answers, alike: as OSError without a number. So all of the file is
    fetched, and read from memory.
    """
    if isinstance(error, pa.ArrowInvalid):
        return True
    if not isinstance(error, OSError) or error.errno is not None:
        return False
    with open_path(path) as file:
        content = file.read()
    try:
        parquet = pq.ParquetFile(pa.BufferReader(content))
        if groups:
            parquet.read_row_groups(list(groups), columns=columns, use_threads=False)
    except (pa.ArrowInvalid, OSError):
        return True
    return False


def _unreadable_rows(row: RowType, split: Split, rows: range, first: int, why: Unreadable) -> Piece:
    """Return what stands for rows of a file that cannot be read for one reason: it is told of at the `first` of all."""
    unreadable = {number - rows.start: why if number == first else UNTOLD for number in rows}
    positions = _positions(split, rows.start - split.start, len(rows))
    return Piece(positions, _nulls(row, len(rows)), None, unreadable=unreadable)


def count_rows(reader: Files, row: RowType, path: str, source: str) -> int:
    """Count the rows of a text file, as they are read later."""
    return sum(len(piece.positions) for piece in _read_file(reader, row, Split(0, 0, 0, path), source))


def _read_lines(reader: Files, row: RowType, file: Any, split: Split, source: str) -> Iterator[Piece]:
    """Read rows of a text file. Those before the split are read again: nothing else tells where a row begins."""
    at, stop = 0, split.stop or None
    for found in read_text(reader.format, reader.options, row.schema, file, lambda table: _fit(row, table)):
        if found.unreadable and not reader.passes_over:
            (why,) = found.unreadable.values()
            raise pa.ArrowInvalid(f"{why.where}: {why.reason}")
        count = found.columns.num_rows
        low, high = max(split.start - at, 0), count if stop is None else min(stop - at, count)
        at += count
        if low < high:
            unreadable = {
                number - low: Unreadable(f"{split.path}, {why.where}", why.reason, why.text)
                for number, why in found.unreadable.items()
                if low <= number < high
            }
            columns, start = found.columns.slice(low, high - low), at - count + low - split.start
            yield Piece(_positions(split, start, high - low), columns, None, unreadable=unreadable)
        if stop is not None and at >= stop:
            break


def _read_parquet(reader: Files, row: RowType, file: Any, split: Split, source: str) -> Iterator[Piece]:
    """Read rows [start, stop) of a Parquet file, touching only the row groups that hold them."""
    parquet = pq.ParquetFile(file)
    names = [name for name in row.names if name in parquet.schema_arrow.names]
    if reader.passes_over:
        _fit(row, parquet.schema_arrow.empty_table())
    ends = list(itertools.accumulate(parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)))
    wanted = [n for n, end in enumerate(ends) if end > split.start and (ends[n - 1] if n else 0) < split.stop]
    # One by one where one of them may fail: the others are read nevertheless.
    for groups in [[group] for group in wanted] if reader.passes_over else [wanted] if wanted else []:
        begin = at = ends[groups[0] - 1] if groups[0] else 0
        low, high = max(split.start, begin), min(split.stop, ends[groups[-1]])
        try:
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
                first, at = max(low, at), at + batch.num_rows
                last = min(high, at)
                if first < last:
                    rows = batch.slice(first - at + batch.num_rows, last - first)
                    yield from _fitted(reader, row, rows, split, first, source)
                    low = last
        except (pa.ArrowInvalid, OSError) as error:
            if not blames_content(error, str(split.path), groups, names):
                raise
            if not reader.passes_over:
                raise pa.ArrowInvalid(str(error)) from None
            why = Unreadable(f"{split.path}, rows {begin} to {ends[groups[-1]]}", str(error).splitlines()[0], "")
            yield _unreadable_rows(row, split, range(low, high), begin, why)


def _fitted(
    reader: Files, row: RowType, rows: pa.RecordBatch, split: Split, first: int, source: str
) -> Iterator[Piece]:
    """Bring rows of a Parquet file to the declared type, and find those that do not fit."""
    try:
        columns = _fit(row, rows) if reader.passes_over else cast_table(row, rows, source, split.path)
    except pa.ArrowInvalid as error:
        if len(rows) > 1:
            middle = len(rows) // 2
            yield from _fitted(reader, row, rows[:middle], split, first, source)
            yield from _fitted(reader, row, rows[middle:], split, first + middle, source)
            return
        why = Unreadable(f"{split.path}, row {first}", str(error), row_text(rows.to_pylist()[0]))
        yield _unreadable_rows(row, split, range(first, first + 1), first, why)
    else:
        yield Piece(_positions(split, first - split.start, len(rows)), columns, None)
