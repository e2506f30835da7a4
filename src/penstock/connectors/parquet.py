"""Files of Parquet: read some of their rows, find what is damaged, and tell how far rows reach without reading them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.interfaces import BATCH_ROWS, Piece, Span, Split, cast_table, fit_table, nulls
from penstock.connectors.paths import open_path
from penstock.connectors.text import UNTOLD, Unreadable, refuse_others
from penstock.errors import row_text
from penstock.rows.records import RowType


def read_parquet(
    row: RowType, file: Any, split: Split, source: str, *, passes_over: bool, known: Sequence[str] | None = None
) -> Iterator[Piece]:
    """Read rows [start, stop) of a Parquet file, touching only the row groups that hold them.

    Columns that are not `known` are refused, where these are given.
    """
    parquet = pq.ParquetFile(file)
    if known is not None:
        refuse_others(parquet.schema_arrow.names, known)
    names = [name for name in row.names if name in parquet.schema_arrow.names]
    if passes_over:
        fit_table(row, parquet.schema_arrow.empty_table())
    ends = _ends(parquet.metadata)
    wanted = [n for n, end in enumerate(ends) if end > split.start and (ends[n - 1] if n else 0) < split.stop]
    # One by one where one of them may fail: the others are still read.
    for groups in [[group] for group in wanted] if passes_over else [wanted] if wanted else []:
        begin = at = ends[groups[0] - 1] if groups[0] else 0
        low, high = max(split.start, begin), min(split.stop, ends[groups[-1]])
        try:
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
                first, at = max(low, at), at + batch.num_rows
                last = min(high, at)
                if first < last:
                    rows = batch.slice(first - at + batch.num_rows, last - first)
                    if passes_over:
                        yield from _fitted(row, rows, split, first)
                    else:
                        columns = cast_table(row, rows, source, split.path)
                        yield Piece(split.positions(first - split.start, len(rows)), columns, None)
                    low = last
        except (pa.ArrowInvalid, OSError) as error:
            if not blames_content(error, str(split.path), groups, names):
                raise
            if not passes_over:
                raise pa.ArrowInvalid(str(error)) from None
            why = Unreadable(f"{split.path}, rows {begin} to {ends[groups[-1]]}", str(error).splitlines()[0], "")
            yield unreadable_rows(row, split, range(low, high), begin, why)


def _fitted(row: RowType, rows: pa.RecordBatch, split: Split, first: int) -> Iterator[Piece]:
    """Bring rows of a Parquet file to the declared type, and find those that do not fit."""
    try:
        columns = fit_table(row, rows)
    except pa.ArrowInvalid as error:
        if len(rows) > 1:
            middle = len(rows) // 2
            yield from _fitted(row, rows[:middle], split, first)
            yield from _fitted(row, rows[middle:], split, first + middle)
            return
        why = Unreadable(f"{split.path}, row {first}", str(error), row_text(rows.to_pylist()[0]))
        yield unreadable_rows(row, split, range(first, first + 1), first, why)
    else:
        yield Piece(split.positions(first - split.start, len(rows)), columns, None)


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


def unreadable_rows(row: RowType, split: Split, rows: range, first: int, why: Unreadable) -> Piece:
    """Return a piece for rows of a file that cannot be read for one reason, reported at the `first` of them."""
    unreadable = {number - rows.start: why if number == first else UNTOLD for number in rows}
    positions = split.positions(rows.start - split.start, len(rows))
    return Piece(positions, nulls(row.schema, len(rows)), None, unreadable=unreadable)


def row_group_ends(path: str) -> list[int]:
    """Return the rows up to the end of each row group; raise `pa.ArrowInvalid` where the file is damaged."""
    try:
        with open_path(path) as file:
            return _ends(pq.ParquetFile(file).metadata)
    except FileNotFoundError:
        raise
    except OSError as error:
        if blames_content(error, path):
            raise pa.ArrowInvalid(str(error)) from None
        raise


def _ends(metadata: Any) -> list[int]:
    return list(itertools.accumulate(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)))


def row_group_spans(path: str, column: str, kind: pa.DataType) -> list[Span]:
    """Return what a column of some type spans in each row group, as the statistics tell."""
    with open_path(path) as file:
        parquet = pq.ParquetFile(file)
        metadata, index = parquet.metadata, parquet.schema_arrow.get_field_index(column)
        stored = None if index < 0 else parquet.schema_arrow.field(index).type
        leaves = [number for number in range(metadata.num_columns) if metadata.schema.column(number).path == column]
    spans, start = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        known = len(leaves) == 1 and stored is not None and _comparable(stored, kind)
        ends = _span(group.column(leaves[0]).statistics, group.num_rows, stored, kind) if known else None
        spans.append(Span(start, start + group.num_rows, ends))
        start += group.num_rows
    return spans


def _comparable(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Tell whether values are read in the order in which the file compares them.

    That of floats leaves out NaN, and of unsigned integers some writers made signed ones.
    """
    if pa.types.is_timestamp(stored):
        return bool(pa.types.is_timestamp(kind) and stored.tz == kind.tz)
    if pa.types.is_signed_integer(stored):
        return bool(pa.types.is_signed_integer(kind))
    return bool(pa.types.is_date32(stored) and stored == kind)


def _span(statistics: Any, rows: int, stored: pa.DataType, kind: pa.DataType) -> pa.Array | None:
    if statistics is None or not statistics.has_min_max or statistics.physical_type not in ("INT32", "INT64"):
        return None
    if not statistics.has_null_count or statistics.null_count or statistics.num_values != rows:
        return None  # a null is before everything, and not among the statistics
    least, greatest = statistics.min_raw, statistics.max_raw
    if least > greatest:
        return None
    try:
        width = pa.int32() if stored.bit_width == 32 else pa.int64()
        raw = pa.array([least, greatest], pa.int64())
        values = raw.cast(stored) if pa.types.is_integer(stored) else raw.cast(width).view(stored)
        return values.cast(kind, safe=not pa.types.is_timestamp(kind))
    except pa.ArrowInvalid:
        return None
