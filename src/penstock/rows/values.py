"""Python values as an Arrow column and back, exactly or not at all; and values as they are at one moment."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import marshal
from array import array
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from itertools import repeat
from operator import add, attrgetter, index
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_ZONE, _FOLD = attrgetter("tzinfo"), attrgetter("fold")
_MARSHALLED: dict[type | None, tuple[str, str]] = {int: ("i", "<i4"), float: ("g", "<f8")}

MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


class PickledFields:
    """Base of dataclasses with cached properties: they pickle their fields, and what is cached is made anew."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def row_fields(row: Any) -> dict[str, Any] | None:
    """Return the fields of a row of any form, a dict as it is; None for a value without any."""
    if isinstance(row, dict):
        return row
    if hasattr(row, "_fields"):
        return dict(zip(row._fields, row, strict=True))
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return dict(row) if isinstance(row, Mapping) else None


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make a column, refusing what would lose something: by default Arrow makes the integer 1 of 1.5."""
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


def come_back(values: list[Any], kinds: tuple[type | None, ...]) -> bool:
    """Tell whether columns of these kinds would give back the same values: those of one row after the other."""
    width = len(kinds)
    if width > 1 and _are_numbers(values, kinds):
        return True
    columns = [values] if width == 1 else [values[number::width] for number in range(width)]
    return all(
        _are_numbers(each, (kind,)) or _comes_back(each, kind) for each, kind in zip(columns, kinds, strict=True)
    )


def _comes_back(values: list[Any], kind: type | None) -> bool:
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


def _are_numbers(values: list[Any], kinds: tuple[type | None, ...]) -> bool:
    """Tell whether all values are floats, or integers of 32 bits, as said, and none of a subclass: by `marshal`.

    It looks once at each: it writes a list as five bytes, then each such value as its kind and so many bytes, and
    everything else otherwise.
    """
    written_as = _written_as(kinds)
    if written_as is None or not values:
        return False
    first = values[: len(kinds)]  # most columns are alike from there on
    if tuple(map(type, first)) != kinds or any(type(v) is int and v.bit_length() > 31 for v in first):
        return False
    try:
        written = marshal.dumps(values, 2)
    except ValueError:
        return False
    if len(written) * len(kinds) != 5 * len(kinds) + written_as.itemsize * len(values):
        return False
    found = np.frombuffer(written, written_as, offset=5)
    return all((found[f"kind{n}"] == ord(_MARSHALLED[kind][0])).all() for n, kind in enumerate(kinds))


@cache
def _written_as(kinds: tuple[type | None, ...]) -> np.dtype[Any] | None:
    """Return how the numbers of a row are written, None where not all kinds are numbers."""
    if not _MARSHALLED.keys() >= set(kinds):
        return None
    fields = [((f"kind{n}", "u1"), (f"value{n}", _MARSHALLED[kind][1])) for n, kind in enumerate(kinds)]
    return np.dtype([field for pair in fields for field in pair])


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
