"""Fold rows into time windows by columns, where a window holds aggregates that need no function of the user's.

A row belongs to a window unless a mark has closed it before, so the rows of a chunk can all go in before any window
closes: each one that is due then closes at its own mark, as it would have between the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.operators.aggregate_columns import fold_groups, read_values
from penstock.operators.base import Logic
from penstock.operators.windows import AggregateFold, TimeWindows
from penstock.pe.chunk import Chunk, Ints
from penstock.pe.shards import Shard, Shards
from penstock.pe.stateless import expansion

_FAR = 1 << 61
"""Times beyond this may overflow when a window's size is added."""


def by_column(logic: Logic) -> bool:
    """Tell whether the rows of an operator may be folded by columns."""
    return (
        isinstance(logic, TimeWindows)
        and isinstance(logic.fold_, AggregateFold)
        and logic.fold_.aggregation.by_column
        and max(logic.size, abs(logic.offset)) < _FAR
    )


def fold_windows(
    logic: TimeWindows, epoch: int, shards: Shards, chunk: Chunk, keys: list[Any], shard_of: Ints, waters: Ints
) -> Ints | None:
    """Take the rows of a chunk into their windows; return the numbers of those that are late.

    `waters` tells the watermark at each row. Return None, and change nothing, where it must be done row by row.
    """
    times = chunk.times
    if times is None or len(times) == 0 or times.min() < -_FAR or times.max() > _FAR:
        return None
    assert isinstance(logic.fold_, AggregateFold)
    row, start, late = _windows(logic, times, waters)
    if len(row) == 0:
        return late
    whole = len(row) == len(times) and logic.size == logic.every
    # The first row in a window stands for it: `setdefault` finds it at the speed of C.
    opening: dict[tuple[Any, int], int] = {}
    there = keys if whole else [keys[i] for i in row.tolist()]
    members = np.array(
        list(map(opening.setdefault, zip(there, start.tolist(), strict=True), range(len(row)))), np.int64
    )
    first = np.array(list(opening.values()), np.int64)
    rank = np.empty(len(row), np.int64)
    rank[first] = np.arange(len(first))
    opener = row[first]
    numbers = shard_of[opener].tolist()
    loaded = {number: shards.get(number) for number in set(numbers)}
    held = [_held(loaded[number], key, at) for number, (key, at) in zip(numbers, opening, strict=True)]
    try:
        values = read_values(logic.fold_.aggregation, chunk.columns, chunk.get_rows)
        if not whole:
            picked = row.tolist()
            values = [v[row] if isinstance(v, np.ndarray) else v and [v[i] for i in picked] for v in values]
        inside = fold_groups(
            logic.fold_.aggregation, values, rank[members], first, [found and found[0] for found in held]
        )
    except Exception:
        return None  # found again row by row
    places = zip(*(p[opener].tolist() for p in chunk.positions), strict=True)
    for number, (key, at), state, found, place in zip(numbers, opening, inside, held, places, strict=True):
        _put(loaded[number], logic, key, at, state, (epoch, *place) if found is None else found[1], found is None)
    return late


def _windows(logic: TimeWindows, times: Ints, waters: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (row, start of the window) for each window that a row goes into, and the rows that go into none."""
    latest = times - (times - logic.offset) % logic.every
    row = np.arange(len(times), dtype=np.int64)
    start = latest
    if logic.size != logic.every:
        more = (logic.size - 1 - (times - latest)) // logic.every
        row, number = expansion(more + 1)
        start = (latest - more * logic.every)[row] + number * logic.every
    is_open: npt.NDArray[np.bool_] = start + logic.size > waters[row]
    if is_open.all():
        return row, start, np.empty(0, np.int64)
    row, start = row[is_open], start[is_open]
    in_time = np.zeros(len(times), bool)
    in_time[row] = True
    return row, start, np.flatnonzero(~in_time)


def _held(shard: Shard, key: Any, start: int) -> Any:
    windows = shard.states.get(key)
    return None if windows is None else windows.get(start)


def _put(shard: Shard, logic: TimeWindows, key: Any, start: int, state: Any, opened: Any, new: bool) -> None:
    windows = shard.states.get(key)
    if windows is None:
        windows = shard.states[key] = {}
    windows[start] = (state, opened)
    if new:
        shard.register(start + logic.size, opened, key)
    if not shard.all_touched:
        shard.touched.add(key)
