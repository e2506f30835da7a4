"""Take the rows of a chunk into windows by columns, and close by columns the windows that begin and end in it.

A row belongs to a window unless a mark has closed it before, so all rows of a chunk can go in before any window closes.
Of the windows that are new, most are due by the end of the chunk: those leave at once, each at its own mark, and no key
ever has them. The others are kept with their timers, as if their rows had come one by one.
"""

from __future__ import annotations

import contextlib
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import CodedKeys
from penstock.kernels.shards import Shard, Shards
from penstock.operators.aggregate_columns import fold_groups, picked, read_values, segments
from penstock.operators.aggregates import results_of
from penstock.operators.base import Logic, Position
from penstock.operators.ranking import TopFold
from penstock.operators.windows import (
    AggregateFold,
    ApplyFold,
    CountWindows,
    Fold,
    SessionWindows,
    TimeWindows,
    Windowed,
)
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, Ints, Unread
from penstock.rows.records import record_class
from penstock.rows.timing import ticks_to_time
from penstock.rows.value_columns import MISFITS

FAR = 1 << 61
"""Times beyond this may overflow when a window's size is added."""


@dataclass(frozen=True)
class Held:
    """A window that a key has already: its fold, and the position of the row that opened it."""

    inside: Any
    opened: Position


@dataclass(frozen=True)
class Groups:
    """The windows that the rows of a chunk go into. A member is a row in a window; it stands behind earlier rows."""

    rows: Ints
    """The row of each member."""
    of: Ints
    """The window of each member."""
    first: Ints
    """The first member of each window."""
    codes: Ints
    """The key of each window, as a number."""
    starts: Ints
    ends: Ints
    _: KW_ONLY
    held: list[Held | None]
    """Each window as it was before; None where it is new."""

    @property
    def openers(self) -> Ints:
        """Return the first row of each window."""
        return self.rows[self.first]


@dataclass(frozen=True)
class WindowRows:
    """The rows of a chunk in order, with what is known of each, and the state of their keys."""

    chunk: Chunk
    times: Ints
    keys: CodedKeys
    shard_of: Ints
    waters: Ints
    """The watermark at each row."""
    shards: Shards

    @cached_property
    def shard_of_key(self) -> list[Shard]:
        """Return the shard of each key."""
        numbers = self.shard_of[self.keys.first_rows()].tolist()
        loaded = {number: self.shards.get(number) for number in set(numbers)}
        return [loaded[number] for number in numbers]

    def states(self) -> list[Any]:
        """Return the state of each key, None for a new one."""
        return [shard.states.get(key) for shard, key in zip(self.shard_of_key, self.keys.keys, strict=True)]


def by_column(logic: Logic) -> bool:
    """Tell whether the rows of an operator may be taken into their windows by columns."""
    if isinstance(logic, CountWindows):
        # Where a result fails all rows are taken again one by one, so no state may have changed by then.
        return _foldable(logic.fold_) and _keeps_states(logic.fold_)
    if isinstance(logic, TimeWindows):
        near = max(logic.size, abs(logic.offset)) < FAR
    else:
        # A session that keeps its rows may be joined with another one by any row.
        near = isinstance(logic, SessionWindows) and logic.one_at_a_time and logic.gap < FAR
    return near and isinstance(logic, Windowed) and _foldable(logic.fold_)


def _foldable(fold: Fold) -> bool:
    return isinstance(fold, ApplyFold | TopFold) or (isinstance(fold, AggregateFold) and fold.aggregation.by_column)


def _keeps_states(fold: Fold) -> bool:
    return isinstance(fold, AggregateFold) and not any(each.in_place for each in fold.aggregation.aggregates)


def fold_members(fold: Fold, chunk: Chunk, groups: Groups) -> list[list[Any]] | None:
    """Return the folds of the windows, one list an aggregate; None where it is to be done row by row."""
    if not groups.held:
        return []  # all rows are late
    held = [None if window is None else window.inside for window in groups.held]
    if isinstance(fold, ApplyFold | TopFold):
        rows, (order, bounds) = chunk.get_rows(), segments(groups.of, len(held))
        members = (groups.rows if order is None else groups.rows[order]).tolist()
        added = [[rows[i] for i in members[start:stop]] for start, stop in pairwise(bounds)]
        if isinstance(fold, TopFold):
            try:
                return [[reduce(fold.add, more, old) for old, more in zip(held, added, strict=True)]]
            except Exception:
                return None  # found again row by row
        return [[more if old is None else _extended(old, more) for old, more in zip(held, added, strict=True)]]
    assert isinstance(fold, AggregateFold)
    try:
        values = read_values(fold.aggregation, chunk.columns, chunk.get_rows)
        if not _is_whole(groups.rows, len(chunk)):
            values = [picked(column, groups.rows) for column in values]
        return fold_groups(fold.aggregation, values, groups.of, groups.first, held)
    except Exception:
        return None  # found again row by row


def _extended(held: list[Any], more: list[Any]) -> list[Any]:
    held += more  # cannot fail, so it need not be undone
    return held


def _is_whole(rows: Ints, count: int) -> bool:
    return len(rows) == count and bool((rows[1:] > rows[:-1]).all())


class Closing:
    """Close the new windows of a chunk that are due at its marks."""

    def __init__(self, node: Node, fold: Fold, epoch: int, marks: Steps) -> None:
        self._node, self._fold, self._epoch, self._marks = node, fold, epoch, marks

    def due(self, groups: Groups) -> npt.NDArray[np.bool_]:
        """Tell which windows can be closed by columns."""
        if not isinstance(self._fold, AggregateFold) or len(self._marks) == 0:
            return np.zeros(len(groups.ends), bool)
        due: npt.NDArray[np.bool_] = groups.ends <= self._marks.values[-1]
        due &= np.array([window is None for window in groups.held], bool)
        return due

    def close(self, arrived: WindowRows, groups: Groups, inside: list[list[Any]], due: Any) -> Chunk | None:
        """Return the rows of the windows that are due, in order; None where a result must be had one by one."""
        which = np.flatnonzero(due)
        marks = np.searchsorted(self._marks.values, groups.ends[which], "left")
        order = np.lexsort((groups.openers[which], groups.ends[which], marks))
        which, marks = which[order], marks[order]
        ends, openers = groups.ends[which], groups.openers[which]
        positions = [
            *(p[marks] for p in self._marks.positions),
            ends,
            np.full(len(which), self._epoch, np.int64),
            *(p[openers] for p in arrived.chunk.positions),
            np.zeros(len(which), np.int64),
        ]
        try:
            bounds = [self._shown(groups.starts[which]), self._shown(ends)]
        except Exception:
            return None  # found again window by window
        return window_rows(self._node, self._fold, positions, ends - 1, arrived.keys.of(openers), bounds, inside, which)

    def _shown(self, moments: Ints) -> list[Any]:
        kind = self._node.time or "integer"
        return moments.tolist() if kind == "integer" else [ticks_to_time(each, kind) for each in moments.tolist()]


def window_rows(
    node: Node,
    fold: Fold,
    positions: list[Ints],
    times: Ints | None,
    keys: list[Any],
    bounds: list[list[Any]],
    inside: list[list[Any]],
    which: Ints,
) -> Chunk | None:
    """Return the rows of some windows, with their keys and bounds; None where a result must be had one by one."""
    assert isinstance(fold, AggregateFold)
    columns: list[Any] = []
    if fold.key is not None:
        several = len(fold.key.fields) > 1
        columns = [[key[i] for key in keys] for i in range(len(fold.key.fields))] if several else [keys]
    columns += bounds
    numbers = which.tolist()
    try:
        for aggregate, states in zip(fold.aggregation.aggregates, inside, strict=True):
            columns.append(results_of(aggregate, [states[number] for number in numbers]))
    except Exception:
        return None  # found again window by window
    declared = node.types[0]
    if declared is not None:
        with contextlib.suppress(*MISFITS):  # found where the rows leave
            return Chunk(positions, times, declared, declared.encode_columns(columns, len(which)))
    rows = list(zip(*columns, strict=True))
    if declared is not None:
        return Chunk(positions, times, declared, None, Unread(rows, loose=True))
    names = (*(fold.key.names if fold.key else ()), *fold.bounds, *fold.aggregation.names)
    return Chunk(positions, times, None, None, list(map(partial(tuple.__new__, record_class(names)), rows)))


def keep(
    arrived: WindowRows,
    groups: Groups,
    inside: list[list[Any]],
    some: npt.NDArray[np.bool_],
    epoch: int,
    logic: Windowed,
) -> None:
    """Put some windows in the state of their keys; `inside` has a list for each part of a window's fold."""
    which = np.flatnonzero(some)
    openers = groups.openers[which]
    aggregates = isinstance(logic.fold_, AggregateFold)
    for number, code, key, start, end, place in zip(
        which.tolist(),
        groups.codes[which].tolist(),
        arrived.keys.of(openers),
        groups.starts[which].tolist(),
        groups.ends[which].tolist(),
        zip(*(p[openers].tolist() for p in arrived.chunk.positions), strict=True),
        strict=True,
    ):
        held, shard = groups.held[number], arrived.shard_of_key[code]
        opened = (epoch, *place) if held is None else held.opened
        state = [column[number] for column in inside] if aggregates else inside[0][number]
        shard.states[key] = logic.put(shard.states.get(key), start, end, state, opened)
        if held is None:
            shard.register(end, opened, key)
        if not shard.all_touched:
            shard.touched.add(key)
