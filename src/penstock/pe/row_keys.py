"""Find the key of each row of a chunk, and the shard that it belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.keys import check_keys, hash_columns, hash_value, hash_values
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
            check_keys(keys)
            return keys, {}
    except Exception:
        pass  # found again below, row by row
    keys, bad = [], {}
    for index, item in enumerate(rows):
        try:
            found = read(item)
            check_keys([found])
            keys.append(found)
        except Exception as error:
            keys.append(None)
            bad[index] = error
    return keys, bad


def key_shards(key: Key, chunk: Chunk, count: int) -> Ints:
    """Return the shard of each row, of so many."""
    if count == 1:
        return np.zeros(len(chunk), np.int64)
    shards: Ints = (_hashes(key, chunk) % np.uint64(count)).astype(np.int64)
    return shards


def _hashes(key: Key, chunk: Chunk) -> Any:
    """Hash the key of each row; a row whose key cannot be had goes to shard 0, where it fails."""
    try:
        if key.fields and chunk.type is not None and chunk.type.form != "scalar":
            columns = chunk.get_columns()
            return hash_columns([columns.column(name) for name in key.fields])
        read = key.function or any_getter(key.fields)
        return hash_values(list(map(read, chunk.get_rows())))
    except Exception:
        return np.fromiter((_hash_or_zero(key, row) for row in chunk.get_rows()), np.uint64, len(chunk))


def _hash_or_zero(key: Key, row: Any) -> int:
    try:
        return hash_value(key.function(row) if key.function else any_getter(key.fields)(row))
    except Exception:
        return 0
