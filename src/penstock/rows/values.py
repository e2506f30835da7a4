"""Python values as a column of Arrow's and back, exactly or not at all; and values as they are at one moment."""

from __future__ import annotations

import copy
import datetime as dt
import marshal
from array import array
from collections.abc import Sequence
from decimal import Decimal
from itertools import repeat
from operator import add, attrgetter, index
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_ZONE, _FOLD = attrgetter("tzinfo"), attrgetter("fold")
_MARSHALLED = np.dtype([("kind", "u1"), ("number", "<i4")])

MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make a column, refusing what would lose something: Arrow by itself makes the integer 1 of 1.5."""
    if pa.types.is_integer(kind):
        return _integers(values, kind)
    leaf = kind
    while pa.types.is_list(leaf):
        leaf = leaf.value_type
    if leaf is not kind and pa.types.is_integer(leaf):
        return pa.array(values).cast(kind)  # a cast is strict
    return pa.array(values, kind)


def _integers(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        # Faster than `pa.array`, and strict.
        whole = pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(array("q", values))])
    except (TypeError, OverflowError):  # nulls, large unsigned numbers, or a misfit
        return pa.array([None if value is None else int(index(value)) for value in values], kind)
    return whole if kind == pa.int64() else whole.cast(kind)


def comes_back(values: Sequence[Any], kind: type | None) -> bool:
    """Tell whether a column would give back the same values."""
    if kind is int and _are_short(values):
        return True
    if kind is None or list(map(type, values)).count(kind) != len(values):
        return False
    if kind is dt.datetime:  # of zones that are equal, only one comes back
        return set(map(id, map(_ZONE, values))) <= {id(dt.UTC)} and not any(map(_FOLD, values))
    if kind is int:
        try:
            np.fromiter(values, np.int64, len(values))
        except OverflowError:
            return False
    return kind is not str or all(map(str.isascii, values))


def _are_short(values: Any) -> bool:
    """Tell whether all values are integers, none of a subclass, of 32 bits: with one look at each, by `marshal`.

    It writes a list as five bytes, then each such integer as its kind and four bytes, and everything else otherwise.
    """
    if not values or type(values[0]) is not int or values[0].bit_length() > 31:
        return False  # most columns are alike from the first value on
    try:
        written = marshal.dumps(values, 2)
    except ValueError:
        return False
    if len(written) != 5 + _MARSHALLED.itemsize * len(values):
        return False
    return bool((np.frombuffer(written, _MARSHALLED, offset=5)["kind"] == ord("i")).all())


def column_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values, by the fastest way that is exact."""
    kind = column.type
    if column.null_count == 0:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            values: list[Any] = (
                column.to_numpy(zero_copy_only=False).tolist()
                if isinstance(column, pa.Array)
                else column.to_numpy().tolist()
            )
            return values
        if pa.types.is_timestamp(kind) and kind.unit == "us":
            whole = column if isinstance(column, pa.Array) else column.combine_chunks()
            if kind.tz is None:
                return whole.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
            # To add to the epoch is several times as fast as to give each moment a time zone.
            since = whole.cast(pa.int64()).to_numpy(zero_copy_only=False).view("timedelta64[us]").tolist()
            return list(map(add, repeat(_EPOCH), since))
    return column.to_pylist()  # type: ignore[no-any-return]


_FIXED = frozenset(
    {int, float, str, bool, bytes, complex, type(None), Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta}
)


def is_fixed(value: Any) -> bool:
    """Tell at little cost that nothing in a value can be changed in place; False where that is not known."""
    return type(value) in _FIXED or (isinstance(value, tuple) and _FIXED.issuperset(map(type, value)))


def snapshot(value: Any) -> Any:
    """Return a value as it is now, whatever is done later to what it holds; itself where nothing can be done."""
    if is_fixed(value):
        return value
    if type(value) is dict and _FIXED.issuperset(map(type, value.values())):
        return value.copy()
    try:
        return copy.deepcopy(value)
    except Exception:
        return value  # a file, a lock: what cannot be copied is what it is
