"""How the states of one aggregate are kept as columns: numbers where they are numbers, objects where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators import aggregates
from penstock.operators.aggregates import Agg

Parts = tuple[npt.NDArray[Any], ...]
"""The arrays that hold the states of some keys."""


@dataclass(frozen=True)
class Form:
    name: str
    types: tuple[Any, ...]
    """The type of each array."""
    blank: tuple[Any, ...]
    """What each array has for a key that is new."""
    pack: Callable[[Sequence[Any]], Parts | None]
    """Make arrays of states; None where one of them does not fit."""
    unpack: Callable[[Parts], list[Any]]
    kind: pa.DataType | None = None
    """What values are before they are folded."""

    def packed(self, states: Sequence[Any]) -> tuple[Form, Parts]:
        """Keep states in this form, or as they are where one of them does not fit."""
        parts = self.pack(states)
        return (OBJECTS, (value_list(states),)) if parts is None else (self, parts)

    def blanks(self, count: int) -> Parts:
        return tuple(
            value_list([value] * count) if kind is object else np.full(count, value, kind)
            for kind, value in zip(self.types, self.blank, strict=True)
        )


def value_list(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Make an array of objects, whatever they are: NumPy would look inside."""
    return np.fromiter(values, object, len(values))


def _are(kinds: set[Any], values: Sequence[Any]) -> bool:
    return kinds.issuperset(map(type, values))


def _whole(values: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return None  # numbers that only Python can hold


def _pack_counts(states: Sequence[Any]) -> Parts | None:
    counts = _whole(states) if _are({int}, states) else None
    return None if counts is None else (counts,)


def _packing(kind: type, zero: Any) -> Callable[[Sequence[Any]], Parts | None]:
    def pack(states: Sequence[Any]) -> Parts | None:
        if not _are({kind, type(None)}, states):
            return None
        filled = [zero if state is None else state for state in states]
        values = _whole(filled) if kind is int else np.array(filled, np.float64)
        valid = np.fromiter((state is not None for state in states), bool, len(states))
        return None if values is None else (values, valid)

    return pack


def _unpack_numbers(parts: Parts) -> list[Any]:
    values: list[Any] = parts[0].tolist()
    if not parts[1].all():
        for index in np.flatnonzero(~parts[1]).tolist():
            values[index] = None
    return values


def _packing_means(kind: type) -> Callable[[Sequence[Any]], Parts | None]:
    def pack(states: Sequence[Any]) -> Parts | None:
        totals, counts = [state[0] for state in states], [state[1] for state in states]
        # A mean begins with the integer 0, whatever comes then.
        if not _are({kind}, [total for total, count in states if count]) or not _are({int}, counts):
            return None
        values = _whole(totals) if kind is int else np.array(totals, np.float64)
        return None if values is None else (values, np.array(counts, np.int64))

    return pack


def _unpack_means(parts: Parts) -> list[Any]:
    return [(total, count) if count else (0, 0) for total, count in zip(*(p.tolist() for p in parts), strict=True)]


COUNT = Form("count", (np.int64,), (0,), _pack_counts, lambda parts: parts[0].tolist())
INT = Form("int", (np.int64, bool), (0, False), _packing(int, 0), _unpack_numbers, pa.int64())
FLOAT = Form("float", (np.float64, bool), (-0.0, False), _packing(float, -0.0), _unpack_numbers, pa.float64())
MEAN_INT = Form("mean of int", (np.int64, np.int64), (0, 0), _packing_means(int), _unpack_means, pa.int64())
MEAN_FLOAT = Form("mean of float", (np.float64, np.int64), (0.0, 0), _packing_means(float), _unpack_means, pa.float64())
OBJECTS = Form("objects", (object,), (None,), lambda s: (value_list(s),), lambda parts: parts[0].tolist())
FORMS = {form.name: form for form in (COUNT, INT, FLOAT, MEAN_INT, MEAN_FLOAT, OBJECTS)}

_NUMBERS = {aggregates.min_step, aggregates.max_step, aggregates.last_step}


def form_of(aggregate: Agg, kind: pa.DataType | None) -> Form:
    """Return how the states of an aggregate of values of a type are kept."""
    if aggregate.step in (aggregates.count_step, aggregates.count_valid_step):
        return COUNT
    adds = aggregate.step in (aggregates.sum_step, aggregates.mean_step)
    if kind is None or not (adds or aggregate.step in _NUMBERS):
        return OBJECTS
    if kind == pa.float64():
        return MEAN_FLOAT if aggregate.step is aggregates.mean_step else FLOAT
    if (pa.types.is_integer(kind) and kind != pa.uint64()) or (adds and pa.types.is_boolean(kind)):
        return MEAN_INT if aggregate.step is aggregates.mean_step else INT
    return OBJECTS
