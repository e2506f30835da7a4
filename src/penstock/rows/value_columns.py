"""Python values as a column of Arrow's and back, exactly or not at all."""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Sequence
from itertools import repeat
from operator import add, index
from typing import Any

import pyarrow as pa

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

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
