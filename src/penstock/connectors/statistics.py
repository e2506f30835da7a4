"""How far the rows of a Parquet file reach, as its statistics tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.paths import open_path


@dataclass(frozen=True)
class RowGroup:
    """Rows [start, stop) of a file."""

    start: int
    stop: int
    span: pa.Array | None
    """The least and the greatest value of the column; None where the statistics do not tell, or cannot be trusted."""


def row_groups(path: str, column: str, kind: pa.DataType) -> list[RowGroup]:
    """Return the row groups of a file, and what a column of a type spans in each."""
    with open_path(path) as file:
        parquet = pq.ParquetFile(file)
        metadata, index = parquet.metadata, parquet.schema_arrow.get_field_index(column)
        stored = None if index < 0 else parquet.schema_arrow.field(index).type
        leaves = [number for number in range(metadata.num_columns) if metadata.schema.column(number).path == column]
    found, start = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        known = len(leaves) == 1 and stored is not None and _comparable(stored, kind)
        span = _span(group.column(leaves[0]).statistics, group.num_rows, stored, kind) if known else None
        found.append(RowGroup(start, start + group.num_rows, span))
        start += group.num_rows
    return found


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
