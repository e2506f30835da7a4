"""Read one split of a source: a piece that can be named in a log and read in any process, any number of times."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from penstock.errors import RowTypeError, SourceError, operator_error
from penstock.ingress.paths import open_path
from penstock.ingress.retries import retried_pieces
from penstock.read import Files, Generated, Items, Reader, Socket
from penstock.rows import RowType

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
        yield from item_pieces(row, rows, split, source)
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


def item_pieces(row: RowType | None, rows: list[Any], split: Split, source: str) -> Iterator[Piece]:
    """Give rows from memory as pieces."""
    for start in range(0, len(rows), BATCH_ROWS):
        part = rows[start : start + BATCH_ROWS]
        positions = _positions(split, start, len(part))
        if row is None:
            yield Piece(positions, None, part)
        else:
            try:
                columns = row.encode(part)
            except RowTypeError as error:
                raise SourceError(f"source {source!r}, row {split.start + start + error.index}: {error}") from None
            yield Piece(positions, columns, None)


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
    if table.schema.equals(row.schema):
        return table
    place = f" in {where}" if where else ""
    columns = []
    for field in row.schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            raise SourceError(
                f"source {source!r}{place}: there is no column {field.name!r}; the columns are "
                f"{', '.join(table.schema.names)}"
            )
        column = table.column(index)
        try:
            columns.append(
                column
                if column.type == field.type
                else column.cast(field.type, safe=not pa.types.is_timestamp(field.type))
            )
        except pa.ArrowException as error:
            raise SourceError(
                f"source {source!r}{place}: column {field.name!r} is of type {column.type} and does not "
                f"fit {field.type}: {str(error).splitlines()[0]}"
            ) from None
    make = pa.Table if isinstance(table, pa.Table) else pa.RecordBatch
    return make.from_arrays(columns, schema=row.schema)


def _read_file(reader: Files, row: RowType, split: Split, source: str) -> Iterator[Piece]:
    assert split.path is not None
    try:
        with open_path(split.path) as file:
            if reader.format == "parquet":
                yield from _read_parquet(row, file, split, source)
                return
            at, stop = 0, split.stop or None
            for batch in _open_text(reader, row, file):
                # Rows before the split are read again: nothing else tells where a row of text begins.
                low, high = max(split.start - at, 0), batch.num_rows if stop is None else min(stop - at, batch.num_rows)
                at += batch.num_rows
                if low < high:
                    columns = cast_table(row, batch.slice(low, high - low), source, split.path)
                    yield Piece(_positions(split, at - batch.num_rows + low - split.start, high - low), columns, None)
                if stop is not None and at >= stop:
                    break
    except FileNotFoundError:
        raise gone(source, split.path) from None
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"source {source!r}: the file {split.path} cannot be read as {reader.format}: {str(error).splitlines()[0]}"
        ) from None


def count_rows(reader: Files, row: RowType, path: str, source: str) -> int:
    """Count the rows of a text file, as they are read later."""
    return sum(len(piece.positions) for piece in _read_file(reader, row, Split(0, 0, 0, path), source))


def _read_parquet(row: RowType, file: Any, split: Split, source: str) -> Iterator[Piece]:
    """Read rows [start, stop) of a Parquet file, touching only the row groups that hold them."""
    parquet = pq.ParquetFile(file)
    names = [name for name in row.names if name in parquet.schema_arrow.names]
    wanted: list[int] = []
    before = 0
    first = 0
    for group in range(parquet.num_row_groups):
        count = parquet.metadata.row_group(group).num_rows
        if before + count > split.start and before < split.stop:
            if not wanted:
                first = before
            wanted.append(group)
        before += count
    at = first
    for batch in parquet.iter_batches(BATCH_ROWS, row_groups=wanted, columns=names, use_threads=False):
        low, high = max(split.start - at, 0), min(split.stop - at, batch.num_rows)
        at += batch.num_rows
        if low < high:
            part = cast_table(row, batch.slice(low, high - low), source, split.path)
            yield Piece(_positions(split, at - batch.num_rows + low - split.start, high - low), part, None)


def _open_text(reader: Files, row: RowType, file: Any) -> Iterator[pa.RecordBatch]:
    """Open a file of CSV, JSON or plain lines as a stream of batches."""
    if reader.format == "text":
        yield from _read_lines(row, file)
        return
    if reader.format == "csv":
        header = reader.options.get("header", True)
        read = pa.csv.ReadOptions(use_threads=False, block_size=4 << 20, column_names=None if header else row.names)
        parse = pa.csv.ParseOptions(delimiter=reader.options.get("delimiter", ","))
        convert = pa.csv.ConvertOptions(column_types=row.schema, include_columns=row.names)
        yield from pa.csv.open_csv(file, read, parse, convert)
        return
    options = pa.json.ReadOptions(use_threads=False, block_size=4 << 20)
    parse_json = pa.json.ParseOptions(explicit_schema=row.schema, unexpected_field_behavior="ignore")
    yield from pa.json.open_json(file, read_options=options, parse_options=parse_json)


def _read_lines(row: RowType, file: Any) -> Iterator[pa.RecordBatch]:
    """Read lines of text; bytes that are no UTF-8 are replaced, because a log may hold anything that somebody sent."""
    begun = b""
    while block := file.read(4 << 20):
        whole, newline, rest = block.rpartition(b"\n")
        if not newline:
            begun += rest
            continue
        yield _line_batch(row, begun + whole)
        begun = rest
    if begun:
        yield _line_batch(row, begun)


def _line_batch(row: RowType, lines: bytes) -> pa.RecordBatch:
    text = lines.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\r")
    return pa.RecordBatch.from_arrays([pa.array(text.split("\n"), pa.string())], schema=row.schema)
