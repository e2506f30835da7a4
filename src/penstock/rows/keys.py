"""Hash keys by a canonical encoding of their value: the same in every process, engine and run.

Keys that Python holds equal (1, 1.0, True) must meet in one shard, so whole floats and booleans encode as
integers. Columns are hashed in NumPy; `hash_value` gives the same number for one value.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SHARDS = 256
_MASK = (1 << 64) - 1
_NULL = 0x9E3779B97F4A7C15
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
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
        return mix(((aware - _EPOCH) // dt.timedelta(microseconds=1)) & _MASK)
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
