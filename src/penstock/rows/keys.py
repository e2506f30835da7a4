"""Keys: hashed by a canonical encoding of their value, the same in every process, engine and run; or cut in ranges.

Keys that Python holds equal (1, 1.0, True) must meet in one shard, so whole floats and booleans encode as
integers. Columns are hashed in NumPy; `hash_value` gives the same number for one value.

Range r has the keys from bound r - 1 up to below bound r. The order is Python's, the same for a column as for its
values; null stands before everything, a NaN after everything, inside of tuples too.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import FlowError
from penstock.rows.records import RowType
from penstock.rows.timing import EPOCH
from penstock.rows.values import column_values

SHARDS = 256
_MASK = (1 << 64) - 1
_NULL = 0x9E3779B97F4A7C15
_cache: dict[str | bytes, int] = {}
_CACHE_LIMIT = 1 << 18

Hashes = npt.NDArray[np.uint64]


class _NotANumber(float):
    """A NaN that is equal to itself, in every process, so that state can be kept under it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isnan(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> str:
        return "NAN"


NAN = _NotANumber("nan")
"""The one key that every NaN is."""
_AS_THEY_ARE = frozenset({int, str, bytes, bool, type(None), dt.datetime, dt.date})


def as_key(value: Any) -> Any:
    """Return the key that a value is: every NaN is the same one, and -0.0 is 0.0, as SQL groups them."""
    if isinstance(value, tuple):
        parts = tuple(map(as_key, value))
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else tuple.__new__(type(value), parts)
    if not isinstance(value, (float, np.floating, Decimal)):
        return value
    if math.isnan(value):
        return NAN
    return value + 0.0 if value == 0 and isinstance(value, (float, np.floating)) else value


def as_keys(values: list[Any]) -> list[Any]:
    return values if _AS_THEY_ARE.issuperset(map(type, values)) else list(map(as_key, values))


def has_null(key: Any) -> bool:
    """Tell whether a key is null or, of several fields, has a null: it is then equal to nothing, as in SQL."""
    return key is None or (isinstance(key, tuple) and any(map(has_null, key)))


def mix(value: int) -> int:
    """Spread an integer over 64 bits (the finalizer of splitmix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix_array(values: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def hash_value(value: Any) -> int:
    if value is None:
        return _NULL
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        number = int(value)
        return mix(number & _MASK) if -(1 << 63) <= number < (1 << 64) else _digest(b"i", str(number).encode())
    if isinstance(value, (float, np.floating)):
        return _hash_float(float(value))
    if isinstance(value, str):
        return _digest(b"s", value.encode("utf-8", "surrogatepass"), value)
    if isinstance(value, (bytes, bytearray)):
        return _digest(b"b", bytes(value))
    if isinstance(value, tuple):
        result = mix(len(value))
        for part in value:
            result = mix(((result * 31) & _MASK) ^ hash_value(part))
        return result
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return mix(((aware - EPOCH) // dt.timedelta(microseconds=1)) & _MASK)
    if isinstance(value, dt.date):
        return mix(value.toordinal() & _MASK)
    if isinstance(value, Decimal):
        return _hash_decimal(value)
    raise TypeError(
        f"a key of type {type(value).__name__} has no canonical encoding; use numbers, strings, bytes, "
        f"dates, None, or tuples of them (got {value!r})"
    )


def _hash_float(value: float) -> int:
    if math.isfinite(value) and value == int(value):
        return hash_value(int(value))
    if math.isnan(value):
        return _NULL ^ 1
    return _digest(b"f", struct.pack("<d", value))


def _hash_decimal(value: Decimal) -> int:
    if value.is_finite() and value == value.to_integral_value():
        return hash_value(int(value))
    if value == float(value) or not value.is_finite():
        return _hash_float(float(value))  # 1.5 is equal to Decimal("1.5")
    return _digest(b"d", str(value.normalize()).encode())


def _digest(tag: bytes, data: bytes, cached_as: str | None = None) -> int:
    if cached_as is not None and (known := _cache.get(cached_as)) is not None:
        return known
    result = int.from_bytes(blake2b(data, digest_size=8, person=tag).digest(), "little")
    if cached_as is not None:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[cached_as] = result
    return result


_ALWAYS_KEYS = frozenset({int, str, bytes, bool, type(None)})


def check_keys(values: Sequence[Any]) -> None:
    """Raise what `hash_values` raises for values that are no keys, without hashing those of common types."""
    if not _ALWAYS_KEYS.issuperset(map(type, values)):
        hash_values(values)


def hash_values(values: Sequence[Any]) -> Hashes:
    if values and set(map(type, values)) == {int}:
        try:
            return mix_array(np.array(values, np.int64).view(np.uint64))
        except OverflowError:
            pass
    return np.fromiter(map(hash_value, values), np.uint64, len(values))


def hash_column(column: pa.Array) -> Hashes:
    """Hash a column of keys; equal to `hash_values` of its Python values."""
    kind = column.type
    if pa.types.is_integer(kind) and column.null_count == 0:
        signed = column.to_numpy(zero_copy_only=False)
        return mix_array(signed.astype(np.int64, copy=False).view(np.uint64))
    encoded = column.dictionary_encode()
    hashes = np.fromiter((hash_value(v.as_py()) for v in encoded.dictionary), np.uint64, len(encoded.dictionary))
    if len(hashes) == 0:
        return np.full(len(column), _NULL, np.uint64)
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    result: Hashes = hashes[codes]
    if column.null_count:
        result = np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint64(_NULL), result)
    return result


def hash_columns(columns: Sequence[pa.Array]) -> Hashes:
    """Hash keys of one or several columns; several hash as the tuple of their values does."""
    if len(columns) == 1:
        return hash_column(columns[0])
    with np.errstate(over="ignore"):
        result = np.full(len(columns[0]), mix(len(columns)), np.uint64)
        for column in columns:
            result = mix_array((result * np.uint64(31)) ^ hash_column(column))
    return result


def hash_shards(columns: Sequence[pa.Array], count: int) -> npt.NDArray[np.int64]:
    return (hash_columns(columns) % np.uint64(count)).astype(np.int64)


Ints = npt.NDArray[np.int64]
Number = TypeVar("Number", int, Ints)
_MICROSECOND = dt.timedelta(microseconds=1)
_TIMESTAMPS = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
_NUMBERS = (int, float, Decimal)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of keys, given by the bounds between them, which increase."""

    bounds: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.bounds) + 1

    def shards(self, place: Number, count: int) -> Number:
        """Return the shard, out of `count`, of a range or of each of an array of ranges.

        Ranges are spread evenly and stay in order; those that are more than the shards share one with neighbours. The
        shard is the middle one of a range's part of them all, so that tables of tasks, cut in other places, fit too.
        """
        return (2 * place + 1) * count // (2 * len(self))

    def of_value(self, key: Any) -> int:
        try:
            return bisect_right(self.bounds, key)
        except (TypeError, ArithmeticError):
            pass  # a null or a decimal NaN, which have a place, or a key of another type
        try:
            return bisect_right(self.bounds, order_place(key), key=order_place)
        except TypeError:
            raise TypeError(
                f"the key {key!r} cannot be compared with {self.bounds[0]!r}, a bound of key_by(..., ranges=...); "
                f"give keys and bounds one type"
            ) from None

    def of_values(self, keys: Sequence[Any]) -> Ints:
        kinds = set(map(type, keys))
        edges = None
        if kinds == {int}:
            edges = _edges(self.bounds, pa.int64())
        elif kinds == {float}:
            edges = _edges(self.bounds, pa.float64())
        if edges is not None:
            try:
                return _search(edges, np.array(keys, edges.dtype))
            except OverflowError:
                pass  # an integer of more than 64 bits
        return np.fromiter(map(self.of_value, keys), np.int64, len(keys))

    def of_columns(self, columns: Sequence[pa.Array]) -> Ints:
        """Return the range of each key of one or several columns; several are the tuple of their values."""
        if len(columns) > 1:
            return self.of_values(list(zip(*map(column_values, columns), strict=True)))
        column = columns[0]
        edges = _edges(self.bounds, column.type)
        if edges is None:
            encoded = column.dictionary_encode()
            column, known = encoded.indices, self.of_values(encoded.dictionary.to_pylist())
            ranges = known[_numbers(column)] if len(known) else np.zeros(len(column), np.int64)
        else:
            ranges = _search(edges, _numbers(column).astype(edges.dtype, copy=False))
        return np.where(column.is_null().to_numpy(zero_copy_only=False), 0, ranges) if column.null_count else ranges


def make_ranges(bounds: Any, row: RowType | None, names: Sequence[str], operator: str) -> Ranges | None:
    """Make the ranges of a key, of these fields or of a function; refuse bounds that do not fit it."""
    if bounds is None:
        return None
    where = f"operator {operator!r}: key_by(ranges=...)"
    if isinstance(bounds, (str, bytes, Mapping)) or not isinstance(bounds, Iterable):
        raise FlowError(f"{where} takes a list of bounds, for example ranges=[10, 20] for three ranges, not {bounds!r}")
    plain = tuple(_plain(bound) for bound in bounds)
    if not plain:
        raise FlowError(f"{where} has no bounds; give at least one, or leave ranges= out to spread keys by their hash")
    for bound in plain:
        _check_bound(bound, row, names, where)
    for low, high in pairwise(plain):
        try:
            rises = low < high
        except TypeError:
            raise FlowError(f"{where} has the bounds {low!r} and {high!r}, which have no order; use one type") from None
        if not rises:
            raise FlowError(
                f"{where} needs bounds that ascend, but {low!r} comes before {high!r}; sort them, each once"
            )
    return Ranges(plain)


def _plain(bound: Any) -> Any:
    return bound.item() if isinstance(bound, np.generic) else bound


def _check_bound(bound: Any, row: RowType | None, names: Sequence[str], where: str) -> None:
    parts = bound if isinstance(bound, tuple) else (bound,)
    if any(part is None or is_nan(part) for part in parts):
        raise FlowError(f"{where} has the bound {bound!r}; nulls are in the first range and NaN in the last as it is")
    try:
        hash_value(bound)
    except TypeError as error:
        raise FlowError(f"{where} has the bound {bound!r}: {error}") from None
    if len(names) == 1 and isinstance(bound, tuple):
        raise FlowError(f"{where} has the bound {bound!r}, but the key has one field, {names[0]!r}; give plain values")
    if len(names) > 1 and not (isinstance(bound, tuple) and 0 < len(bound) <= len(names)):
        raise FlowError(
            f"{where} has the bound {bound!r}, but the key has the fields {', '.join(map(repr, names))}; give tuples, "
            f"with a value for each field or for the first of them"
        )
    for name, part in zip(names, parts, strict=False):
        kind = None if row is None else row.schema.field(name).type
        if kind is not None and not _is_of(part, kind):
            raise FlowError(f"{where} has {part!r} in a bound, but the field {name!r} is of type {kind}; use its type")


def _is_of(value: Any, kind: pa.DataType) -> bool:
    """Tell whether a value can be compared with those of a column."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return isinstance(value, (int, float, Decimal))
    if pa.types.is_timestamp(kind):
        return isinstance(value, dt.datetime) and (value.utcoffset() is None) == (kind.tz is None)
    if pa.types.is_date(kind):
        return type(value) is dt.date
    if pa.types.is_boolean(kind):
        return isinstance(value, (bool, int))
    if pa.types.is_binary(kind):
        return isinstance(value, bytes)
    return pa.types.is_string(kind) and isinstance(value, str)


def order_place(value: Any) -> tuple[Any, ...]:
    """Return what a value sorts by: nulls first, NaNs last."""
    if value is None:
        return (0,)
    if is_nan(value):
        return (2,)
    return (1, tuple(map(order_place, value)) if isinstance(value, tuple) else value)


def is_nan(value: Any) -> bool:
    return math.isnan(value) if isinstance(value, float) else isinstance(value, Decimal) and value.is_nan()


def _search(edges: npt.NDArray[Any], keys: npt.NDArray[Any]) -> Ints:
    return np.searchsorted(edges, keys, "right").astype(np.int64, copy=False)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Return a column as numbers, those that `_edges` cuts; any number for nulls."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    numbers: npt.NDArray[Any] = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return numbers


@lru_cache(maxsize=256)
def _edges(bounds: tuple[Any, ...], kind: pa.DataType) -> npt.NDArray[Any] | None:
    """Return numbers that cut a column of a type exactly where the bounds do; None where there are none.

    NumPy would compare an integer with a float as floats, which changes large integers.
    """
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        fits = all(isinstance(bound, _NUMBERS) for bound in bounds)
        return np.array([_least_float(bound) for bound in bounds], np.float64) if fits else None
    if pa.types.is_integer(kind) and all(isinstance(bound, _NUMBERS) for bound in bounds):
        whole, limits = bounds, np.iinfo(kind.to_pandas_dtype())
    elif pa.types.is_date32(kind) and all(type(bound) is dt.date for bound in bounds):
        whole, limits = tuple((bound - EPOCH.date()).days for bound in bounds), np.iinfo(np.int32)
    elif kind in _TIMESTAMPS and all(isinstance(bound, dt.datetime) for bound in bounds):
        # Bounds with a time zone and a column without one, or the other way round, do not get here.
        epoch = EPOCH if kind.tz else EPOCH.replace(tzinfo=None)
        whole, limits = tuple((bound - epoch) // _MICROSECOND for bound in bounds), np.iinfo(np.int64)
    else:
        return None
    # No value of the type is at or above an edge that is too large for it; all are at or above one that is too small.
    edges = [max(edge, int(limits.min)) for bound in whole if (edge := _least_integer(bound)) <= limits.max]
    return np.array(edges, limits.dtype)


def _least_integer(bound: Any) -> Any:
    return bound if bound in (math.inf, -math.inf) else math.ceil(bound)


def _least_float(bound: Any) -> float:
    try:
        near = float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -sys.float_info.max
    return near if near >= bound else math.nextafter(near, math.inf)
