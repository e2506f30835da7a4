"""Find the key of each row of a chunk, and the shard that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.operators.base import Key, Keyed
from penstock.pe.chunk import Chunk, Ints
from penstock.rows import Row, RowType, any_getter, column_values


def row_keys(operator: Keyed, port: int, chunk: Chunk) -> tuple[list[Any], dict[int, Exception]]:
    """Return the key of each row, and the rows whose key cannot be had, by number."""
    if operator.keys is None:
        return [None] * len(chunk), {}
    key = operator.keys[port]
    columns = chunk.columns
    if columns is not None and key.fields and all(_exact(columns.schema.field(f).type) for f in key.fields):
        lists = [column_values(columns.column(name)) for name in key.fields]
        return (lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))), {}
    return _read_keys(key, chunk.type, chunk.get_rows())


def _exact(kind: Any) -> bool:
    """Tell whether every value of a type is a good key, so that values need no check."""
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_binary(kind)
    )


def _read_keys(key: Key, row: RowType | None, rows: list[Row]) -> tuple[list[Any], dict[int, Exception]]:
    read = key.function or (row.getter(key.fields) if row is not None else any_getter(key.fields))
    try:
        keys = list(map(read, rows))
        if len(keys) == len(rows):
            key.check_all(keys)
            return keys, {}
    except Exception:
        pass  # found again below, row by row
    keys, bad = [], {}
    for index, item in enumerate(rows):
        try:
            found = read(item)
            key.check(found)
            keys.append(found)
        except Exception as error:
            keys.append(None)
            bad[index] = error
    return keys, bad


def key_shards(key: Key, chunk: Chunk, count: int) -> Ints:
    """Return the shard of each row, of so many; a row whose key cannot be had goes to shard 0, where it fails."""
    if count == 1:
        return np.zeros(len(chunk), np.int64)
    read = key.function or any_getter(key.fields)
    try:
        if key.fields and chunk.type is not None and chunk.type.form != "scalar":
            columns = chunk.get_columns()
            return key.column_shards([columns.column(name) for name in key.fields], count)
        return key.shards(list(map(read, chunk.get_rows())), count)
    except Exception:
        found = (_shard_or_first(key, read, row, count) for row in chunk.get_rows())
        return np.fromiter(found, np.int64, len(chunk))


def _shard_or_first(key: Key, read: Callable[[Row], Any], row: Row, count: int) -> int:
    try:
        return key.shard(read(row), count)
    except Exception:
        return 0
