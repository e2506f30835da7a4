"""Find the key of each row of a chunk, and the shard that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.aggregate_values import read_all
from penstock.operators.base import Key, Keyed
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.keys import as_key, as_keys
from penstock.rows.records import Row, RowType, any_getter
from penstock.rows.values import MISFITS, column_of, column_values


def row_keys(
    operator: Keyed, port: int, chunk: Chunk, values: dict[str, list[Any]] | None = None
) -> tuple[list[Any], dict[int, Exception]]:
    """Return the key of each row, and the rows whose key cannot be had, by number; put in `values` what was made."""
    if operator.keys is None:
        return [None] * len(chunk), {}
    key = operator.keys[port]
    columns = key_columns(key, chunk)
    if columns is not None:
        lists = list(map(column_values, columns))
        if values is not None:
            values.update(zip(key.fields, lists, strict=True))
        return _keys(lists), {}
    return _read_keys(key, chunk.type, chunk.get_rows())


def _keys(lists: list[list[Any]]) -> list[Any]:
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


@dataclass(frozen=True)
class RowKeys:
    """The keys of some rows: columns of their fields where every value of these is a good key, else as they are."""

    count: int
    fields: tuple[pa.Array, ...] = ()
    """None where rows have no key, or `listed` has them."""
    listed: list[Any] | None = None
    """Equal ones need not be the same, as 1 and True."""

    def values(self) -> list[Any]:
        if self.listed is not None:
            return self.listed
        lists = list(map(column_values, self.fields))
        if not lists:
            return [None] * self.count
        return _keys(lists)

    def __getitem__(self, some: slice) -> list[Any]:
        return self.take(np.arange(*some.indices(self.count))).values()

    def take(self, rows: Ints) -> RowKeys:
        if self.listed is not None:
            return RowKeys(len(rows), (), [self.listed[row] for row in rows.tolist()])
        index = pa.array(rows)
        return RowKeys(len(rows), tuple(field.take(index) for field in self.fields))

    def then(self, others: RowKeys) -> RowKeys:
        if not self.count or not others.count:
            return self if self.count else others
        one, other = self._like(others), others._like(self)
        count = self.count + others.count
        if [field.type for field in one.fields] != [field.type for field in other.fields] or one.listed is not None:
            return RowKeys(count, (), self.values() + others.values())
        return RowKeys(count, tuple(pa.concat_arrays(pair) for pair in zip(one.fields, other.fields, strict=True)))

    def _like(self, others: RowKeys) -> RowKeys:
        """Return the keys as columns where others are, if they fit."""
        if self.listed is None or others.listed is not None:
            return self
        if not others.fields:
            return RowKeys(self.count)  # rows without a key have none, however they come
        lists = [self.listed] if len(others.fields) == 1 else list(zip(*self.listed, strict=True))
        try:
            kinds = [field.type for field in others.fields]
            return RowKeys(self.count, tuple(column_of(*each) for each in zip(lists, kinds, strict=True)))
        except MISFITS:
            return self

    def codes(self) -> tuple[Ints, int]:
        """Return a number for each row, alike for equal keys, and what all of them are below."""
        if self.listed is not None:
            # The first row of a key stands for it: `setdefault` finds it at the speed of C.
            firsts: dict[Any, int] = {}
            return np.fromiter(map(firsts.setdefault, self.listed, range(self.count)), np.int64, self.count), self.count
        codes, below = np.zeros(self.count, np.int64), 1
        for number, column in enumerate(self.fields):
            found, size = _field_codes(column)
            codes, below = (codes * size + found, below * size) if number else (found, size)
            if number:
                codes, first = grouped(codes)
                below = len(first)
        return codes, below


@dataclass(frozen=True)
class ByColumns:
    """What came of a group of rows that were taken by columns."""

    outputs: dict[int, Chunk]
    """The rows of each output port that has any."""
    keys: Callable[[], RowKeys | None]
    """Returns the keys of the rows that were taken."""
    shards: Ints
    """And their shards."""
    rest: list[tuple[int, Chunk, Ints]] = field(default_factory=list)
    """Rows that are to be taken one by one: their port, and the shard of each."""


class KeptAside(Mapping[Any, Any]):
    """States that are kept as columns, by key: made when one is asked for, and their keys counted without."""

    def __init__(self, keys: RowKeys, states: Callable[[], dict[Any, Any]]) -> None:
        self._keys, self._make = keys, states

    def __len__(self) -> int:
        return len(grouped(self._keys.codes()[0])[1])

    @cached_property
    def _states(self) -> dict[Any, Any]:
        return self._make()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._states)

    def __getitem__(self, key: Any) -> Any:
        return self._states[key]


def keys_of(operator: Keyed, port: int, chunk: Chunk) -> RowKeys | None:
    """Return the keys of rows, None where one cannot be had."""
    if operator.keys is None:
        return RowKeys(len(chunk))
    columns = key_columns(operator.keys[port], chunk)
    if columns is not None:
        return RowKeys(len(chunk), tuple(columns))
    keys, bad = row_keys(operator, port, chunk)
    return None if bad else RowKeys(len(chunk), (), keys)


def _field_codes(field: pa.Array) -> tuple[Ints, int]:
    if pa.types.is_integer(field.type) and field.type != pa.uint64() and field.null_count == 0 and len(field):
        values = field.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        low, span = _span(values)
        if span <= _SPREAD * len(values):
            return values - low, span
    encoded = field.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), max(1, len(encoded.dictionary))


_SPREAD = 4
"""Numbers among so many times as many are found by their place in a table; others by their hash."""


def _span(numbers: Ints) -> tuple[int, int]:
    low = int(numbers.min())
    return low, int(numbers.max()) - low + 1


def grouped(numbers: Ints) -> tuple[Ints, Ints]:
    """Number different numbers from 0 on; return the number of each, and where each is first found."""
    if len(numbers) == 0:
        return numbers, numbers
    low, span = _span(numbers)
    if span > max(1024, _SPREAD * len(numbers)):
        encoded = pa.array(numbers).dictionary_encode()
        of = encoded.indices.to_numpy().astype(np.int64)
        return of, np.flatnonzero(of > np.maximum.accumulate(np.concatenate([[-1], of[:-1]])))
    places = numbers - low
    first = np.full(span, -1, np.int64)
    first[places[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of several numbers for one place, NumPy keeps the last
    there = first >= 0
    if there.all():
        return places, first
    return (np.cumsum(there) - 1)[places], first[there]


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
        keys = as_keys(read_all(read, rows))
        key.check_all(keys)
        return keys, {}
    except Exception:
        pass  # found again below, row by row
    keys, bad = [], {}
    for index, item in enumerate(rows):
        try:
            key_of_row = as_key(read(item))
            key.check(key_of_row)
            keys.append(key_of_row)
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
        return key.shards(read_all(read, chunk.get_rows()), count)
    except Exception:
        shards = (_shard_or_first(key, read, row, count) for row in chunk.get_rows())
        return np.fromiter(shards, np.int64, len(chunk))


def _shard_or_first(key: Key, read: Callable[[Row], Any], row: Row, count: int) -> int:
    try:
        return key.shard(read(row), count)
    except Exception:
        return 0
