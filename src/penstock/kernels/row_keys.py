"""Find the key of each row of a chunk, and the shard that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.base import Key, Keyed
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.keys import as_key, as_keys
from penstock.rows.records import Row, RowType, any_getter
from penstock.rows.value_columns import column_values


def row_keys(operator: Keyed, port: int, chunk: Chunk) -> tuple[list[Any], dict[int, Exception]]:
    """Return the key of each row, and the rows whose key cannot be had, by number."""
    if operator.keys is None:
        return [None] * len(chunk), {}
    key = operator.keys[port]
    columns = key_columns(key, chunk)
    if columns is not None:
        lists = list(map(column_values, columns))
        return (lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))), {}
    return _read_keys(key, chunk.type, chunk.get_rows())


@dataclass(frozen=True)
class CodedKeys:
    """The keys of rows as numbers: a key is written once, however many rows have it."""

    codes: Ints
    """The number of each row's key, in the order in which keys first appear."""
    keys: list[Any]
    own: list[Any] | None = None
    """The key of each row, where equal ones need not be the same, as 1 and True."""

    def __getitem__(self, some: slice) -> list[Any]:
        """Return the keys of some rows."""
        return [self.keys[code] for code in self.codes[some].tolist()]

    def of(self, rows: Ints) -> list[Any]:
        """Return the keys of rows as they themselves have them."""
        own, numbers = (self.keys, self.codes[rows]) if self.own is None else (self.own, rows)
        return [own[number] for number in numbers.tolist()]

    def first_rows(self) -> Ints:
        """Return the first row of each key."""
        before = np.maximum.accumulate(np.concatenate([[-1], self.codes[:-1]]))
        return np.flatnonzero(self.codes > before)

    def ordered(self, order: Ints) -> CodedKeys:
        """Return the keys of rows in another order."""
        return CodedKeys(self.codes[order], self.keys)


def coded_keys(operator: Keyed, chunk: Chunk) -> CodedKeys | None:
    """Return the keys of rows on port 0 as numbers, None where a key cannot be had."""
    if operator.keys is None:
        return CodedKeys(np.zeros(len(chunk), np.int64), [None])
    columns = key_columns(operator.keys[0], chunk)
    if columns is None:
        keys, bad = row_keys(operator, 0, chunk)
        return None if bad else _numbered(keys)
    codes, values = np.zeros(len(chunk), np.int64), [np.zeros(1, np.int64)]
    lists = []
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        lists.append(column_values(encoded.dictionary))
        codes, numbers = dense(codes * len(lists[-1]) + encoded.indices.to_numpy())
        # What stood for the fields so far is behind each new number, and so is this field.
        values = [*(v[numbers // len(lists[-1])] for v in values), numbers % len(lists[-1])]
    fields = [[held[i] for i in number.tolist()] for held, number in zip(lists, values[1:], strict=True)]
    return CodedKeys(codes, fields[0] if len(fields) == 1 else list(zip(*fields, strict=True)))


def dense(numbers: Ints) -> tuple[Ints, Ints]:
    """Number different numbers in the order in which they first appear; also return the number behind each."""
    encoded = pa.array(numbers).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_numpy()


def _numbered(keys: list[Any]) -> CodedKeys:
    # The first row of a key stands for it: `setdefault` finds it at the speed of C.
    firsts: dict[Any, int] = {}
    codes, _ = dense(np.array(list(map(firsts.setdefault, keys, range(len(keys)))), np.int64))
    return CodedKeys(codes, list(firsts), keys)


def key_columns(key: Key, chunk: Chunk) -> list[pa.Array] | None:
    """Return the columns of a key's fields, if every value of theirs is a good key."""
    columns = chunk.columns
    if columns is None or not key.fields or not all(is_good_key(columns.schema.field(f).type) for f in key.fields):
        return None
    return [columns.column(name) for name in key.fields]


def is_good_key(kind: Any) -> bool:
    """Tell whether every value of a type is a good key, so that values need no check."""
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
        keys = as_keys(list(map(read, rows)))
        if len(keys) == len(rows):
            key.check_all(keys)
            return keys, {}
    except Exception:
        pass  # found again below, row by row
    keys, bad = [], {}
    for index, item in enumerate(rows):
        try:
            found = as_key(read(item))
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
