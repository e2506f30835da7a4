"""Take the rows of a chunk into windows by columns, close those that are due, and keep the others as columns.

A row belongs to a window unless a mark has closed it before, so all rows of a chunk can go in before any window closes.
Windows that are due by the end of the chunk leave at once, each at its own mark. The others wait *aside* for the next
chunk, which begins with them. Who takes rows or timers one by one has them written to the state of their keys before
(`settle`), with their timers, as if their rows had come one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import KeptAside, RowKeys, grouped
from penstock.kernels.shards import Shard, Shards, settle
from penstock.operators.aggregate_columns import Column, fold_groups, picked, read_values, results_column, segments
from penstock.operators.base import Logic
from penstock.operators.state_forms import OBJECTS, value_list
from penstock.operators.window_folds import AggregateFold, ApplyFold, Fold, TopFold
from penstock.operators.windows import CountWindows, SessionWindows, TimeWindows, Windowed
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, Ints, Unread
from penstock.rows.records import record_class
from penstock.rows.timing import ticks_to_time, time_type
from penstock.rows.values import MISFITS, column_of, column_values

FAR = 1 << 61
"""Times beyond this may overflow when a window's size is added."""
AS_MANY = 4
"""So many times as many windows may wait aside as there are rows: all of them are looked at with each chunk."""
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class OpenWindows:
    """Windows as columns, in the order in which they were opened; of count windows one for each key."""

    logic: Windowed
    keys: RowKeys
    shards: Ints
    opened: list[Ints]
    """The epoch and the position of the row that opened each, component by component."""
    starts: Ints
    """Of count windows: the number."""
    ends: Ints
    """Of count windows: the rows so far."""
    _: KW_ONLY
    times: Ints
    """When the last row of a count window came."""
    known: Bools
    """Whether a timer is set for the window's end."""
    inside: list[Column]
    """The states of each part of a window's fold."""

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def listed(cls, logic: Windowed, found: list[tuple[int, Any, Any]], width: int) -> OpenWindows:
        """Make columns of (shard, key, window as `Windowed.windows` gives it)."""
        shards, keys = [each[0] for each in found], [each[1] for each in found]
        starts, ends, inside, opened, times = zip(*(each[2] for each in found), strict=True) if found else [()] * 5
        places = np.array(opened, np.int64).reshape(len(found), width + 1).T
        # The timer of a session may go off before its end, when nothing would set it again.
        known = [not isinstance(logic, SessionWindows) and logic.due(end) is not None for end in ends]
        columns: list[Any] = [inside]
        if isinstance(logic.fold_, AggregateFold):
            blank = [each.start() for each in logic.fold_.aggregation.aggregates]
            columns = list(zip(*(blank if state is None else state for state in inside), strict=True))
        made = cls(
            logic,
            RowKeys(len(keys), (), keys),
            *(np.array(shards, np.int64), list(places), np.array(starts, np.int64), np.array(ends, np.int64)),
            times=np.array(times, np.int64),
            known=np.array(known, bool),
            inside=[(OBJECTS, (value_list(column),)) for column in columns],
        )
        return made.take(np.lexsort(tuple(reversed(places))) if found else np.empty(0, np.int64))

    def take(self, which: Ints) -> OpenWindows:
        numbers = {name: getattr(self, name)[which] for name in _NUMBERS}
        opened = [component[which] for component in self.opened]
        inside = [(form, tuple(part[which] for part in parts)) for form, parts in self.inside]
        return replace(self, keys=self.keys.take(which), opened=opened, inside=inside, **numbers)

    def then(self, others: OpenWindows) -> OpenWindows:
        """Return these windows and others, in the order in which they were opened."""
        if not len(self) or not len(others):
            return self if len(self) else others
        numbers: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in _NUMBERS
        }
        opened = [np.concatenate(pair) for pair in zip(self.opened, others.opened, strict=True)]
        inside = [_joined(*pair) for pair in zip(self.inside, others.inside, strict=True)]
        made = replace(self, keys=self.keys.then(others.keys), opened=opened, inside=inside, **numbers)
        return made.take(np.lexsort(tuple(reversed(opened))))

    def _listing(self) -> Iterator[tuple[int, Any, tuple[Any, ...], bool]]:
        """Yield (shard, key, window as `Windowed.windows` gives it, whether its timer is set) of each."""
        if not len(self):
            return
        columns = [form.unpack(parts) for form, parts in self.inside]
        states = map(list, zip(*columns, strict=True)) if isinstance(self.logic.fold_, AggregateFold) else columns[0]
        yield from zip(
            self.shards.tolist(),
            self.keys.values(),
            zip(
                self.starts.tolist(),
                self.ends.tolist(),
                states,
                zip(*(component.tolist() for component in self.opened), strict=True),
                self.times.tolist(),
                strict=True,
            ),
            self.known.tolist(),
            strict=True,
        )

    def settle(self, shards: Shards) -> None:
        for number, key, window, known in self._listing():
            shard = shards.get(number)
            shard.states[key] = self.logic.put(shard.states.get(key), *window)
            due = self.logic.due(window[1])
            if due is not None and not known:
                shard.register(due, window[3], key)
            if not shard.all_touched:
                shard.touched.add(key)

    def states(self) -> Mapping[Any, Any]:
        return KeptAside(self.keys, self._states)

    def _states(self) -> dict[Any, Any]:
        states: dict[Any, Any] = {}
        for _, key, window, _ in self._listing():
            states[key] = self.logic.put(states.get(key), *window)
        return states


_NUMBERS = ("shards", "starts", "ends", "times", "known")
"""What `OpenWindows` has one number of for each window."""


def _joined(one: Column, other: Column) -> Column:
    form = other[0] if one[0] is OBJECTS else one[0]
    packed = [parts if kept is form else form.pack(kept.unpack(parts)) for kept, parts in (one, other)]
    found = [parts for parts in packed if parts is not None]
    if len(found) < 2:
        form, found = OBJECTS, [(value_list(kept.unpack(parts)),) for kept, parts in (one, other)]
    return form, tuple(np.concatenate(pair) for pair in zip(*found, strict=True))


@dataclass(frozen=True)
class WindowRows:
    """What is taken at once: windows that were open, and then the rows of a chunk, in order."""

    logic: Windowed
    held: OpenWindows
    chunk: Chunk
    times: Ints
    waters: Ints
    """The watermark at each row."""
    shards: Ints
    _: KW_ONLY
    epoch: int
    keys: RowKeys
    """Of the windows and the rows."""
    taken: list[tuple[Shard, Any]]
    """The keys whose state is in `held`."""

    @cached_property
    def codes(self) -> tuple[Ints, int]:
        """A number for each key, and what all of them are below."""
        return self.keys.codes()

    def windows(
        self, items: Ints, starts: Ints, ends: Ints, inside: list[Column], times: Ints | None = None
    ) -> OpenWindows:
        """Return windows that an item (a window that was open, or a row after these) has opened, in their order."""
        return OpenWindows(
            self.logic,
            self.keys.take(items),
            np.concatenate([self.held.shards, self.shards])[items],
            self.opened(items),
            starts,
            ends,
            times=np.zeros(len(items), np.int64) if times is None else times,
            known=np.concatenate([self.held.known, np.zeros(len(self.chunk), bool)])[items],
            inside=inside,
        )

    def opened(self, items: Ints) -> list[Ints]:
        """Return the epoch and the position at which items came."""
        new = [np.full(len(self.chunk), self.epoch, np.int64), *self.chunk.positions]
        if not len(self.held):
            return [component[items] for component in new]
        return [np.concatenate(pair)[items] for pair in zip(self.held.opened, new, strict=True)]


def window_rows(
    logic: Windowed, chunk: Chunk, keys: RowKeys, shard_of: Ints, waters: Ints, shards: Shards, epoch: int
) -> WindowRows | None:
    """Put what is aside, and what the keys of rows have in their state, before the rows; None where it will not do."""
    width = len(chunk.positions)
    times = chunk.times if chunk.times is not None else np.zeros(len(chunk), np.int64)
    aside = shards.aside
    if aside is not None and len(aside) > AS_MANY * len(chunk):
        settle(shards)
        aside = None
    held = OpenWindows.listed(logic, [], width) if aside is None else aside
    listing: list[tuple[int, Any, Any]] = []
    taken = []
    touched = {number: shards.get(number) for number in np.flatnonzero(np.bincount(shard_of)).tolist()}
    if any(shard.states for shard in touched.values()):
        _, first = grouped(keys.codes()[0])
        for number, key in zip(shard_of[first].tolist(), keys.take(first).values(), strict=True):
            state = touched[number].states.get(key)
            if state is None:
                continue
            windows = logic.open_windows(state)
            if windows is None or any(len(window[3]) != width + 1 for window in windows):
                return None
            listing += [(number, key, window) for window in windows]
            taken.append((touched[number], key))
    if listing:
        held = held.then(OpenWindows.listed(logic, listing, width))
    own = held.keys.then(keys)
    return WindowRows(logic, held, chunk, times, waters, shard_of, epoch=epoch, keys=own, taken=taken)


@dataclass(frozen=True)
class Groups:
    """The windows that rows go into. A member is a row in a window."""

    rows: Ints | None
    """The row of each member; None where they are all rows, in order."""
    of: Ints
    """The window of each member."""
    items: Ints
    """What has opened each window: one that was open, by its number, or a row after these."""
    starts: Ints
    ends: Ints

    def before(self, held: int) -> Ints:
        """Return the number of each window among those that were open, -1 where it is new."""
        return np.where(self.items < held, self.items, -1)


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


def fold_members(fold: Fold, arrived: WindowRows, groups: Groups) -> list[Column] | None:
    """Return the folds of the windows, part by part; None where it is to be done row by row."""
    chunk, at = arrived.chunk, groups.before(len(arrived.held))
    try:
        if not isinstance(fold, AggregateFold):
            return [(OBJECTS, (value_list(_fold_rows(fold, arrived, groups, at)),))]
        values = read_values(fold.aggregation, chunk.columns, chunk.get_rows)
        if groups.rows is not None:
            values = [picked(column, groups.rows) for column in values]
        return fold_groups(fold.aggregation, values, groups.of, at, arrived.held.inside)
    except Exception:
        return None  # found again row by row


def _fold_rows(fold: Fold, arrived: WindowRows, groups: Groups, at: Ints) -> list[Any]:
    inside = [form.unpack(parts) for form, parts in arrived.held.inside]
    held = [None if place < 0 else inside[0][place] for place in at.tolist()]
    rows, (order, bounds) = arrived.chunk.get_rows(), segments(groups.of, len(held))
    every = np.arange(len(rows)) if groups.rows is None else groups.rows
    members = (every if order is None else every[order]).tolist()
    added = [[rows[i] for i in members[start:stop]] for start, stop in pairwise(bounds)]
    if isinstance(fold, TopFold):
        return [reduce(fold.add, more, old) for old, more in zip(held, added, strict=True)]
    return [more if old is None else _extended(old, more) for old, more in zip(held, added, strict=True)]


def _extended(held: list[Any], more: list[Any]) -> list[Any]:
    held += more  # cannot fail, so it need not be undone
    return held


def close_windows(
    node: Node, arrived: WindowRows, groups: Groups, inside: list[Column], marks: Steps, due: Bools
) -> Chunk | None:
    """Return the rows of the windows that are due, in order; None where a result must be had one by one."""
    fold = arrived.logic.fold_
    if not isinstance(fold, AggregateFold):
        return None
    which = np.flatnonzero(due)
    # What ends first is reached by an earlier mark, or by the same one.
    which = which[_order(groups.ends[which], groups.items[which], len(arrived.held) + len(arrived.chunk))]
    ends, items = groups.ends[which], groups.items[which]
    at = np.searchsorted(marks.values, ends, "left")
    positions = [*(p[at] for p in marks.positions), ends, *arrived.opened(items), np.zeros(len(which), np.int64)]
    try:
        bounds = [_shown(moments, node) for moments in (groups.starts[which], ends)]
    except Exception:
        return None  # found again window by window
    return made_rows(node, fold, positions, ends - 1, arrived.keys.take(items), bounds, inside, which)


def _order(ends: Ints, items: Ints, count: int) -> Ints:
    """Sort by two numbers, the second of which is below `count`."""
    low = int(ends.min(initial=0))
    if (int(ends.max(initial=0)) - low + 1) * count < 1 << 62:
        return np.argsort((ends - low) * count + items)
    return np.lexsort((items, ends))


def _shown(moments: Ints, node: Node) -> pa.Array:
    kind = node.time or "integer"
    for each in (int(moments.min()), int(moments.max())):
        ticks_to_time(each, kind)  # fails where there is no such time
    return pa.array(moments).cast(time_type(kind))


def made_rows(
    node: Node,
    fold: AggregateFold,
    positions: list[Ints],
    times: Ints | None,
    keys: RowKeys,
    bounds: list[pa.Array],
    inside: list[Column],
    which: Ints,
) -> Chunk | None:
    """Return the rows of some windows, with their keys and bounds; None where a result must be had one by one."""
    columns: list[Any] = []
    if fold.key is not None:
        columns = list(keys.fields)
        if keys.listed is not None:
            several = len(fold.key.fields) > 1
            columns = list(zip(*keys.listed, strict=True)) if several else [keys.listed]
    columns += bounds
    try:
        for aggregate, column in zip(fold.aggregation.aggregates, inside, strict=True):
            columns.append(results_column(aggregate, column, which))
    except Exception:
        return None  # found again window by window
    declared = node.types[0]
    if declared is not None:
        with contextlib.suppress(*MISFITS):  # found where the rows leave
            arrays = [_as_kind(column, field.type) for column, field in zip(columns, declared.schema, strict=True)]
            return Chunk(positions, times, declared, pa.RecordBatch.from_arrays(arrays, schema=declared.schema))
    rows = list(zip(*(column_values(c) if isinstance(c, pa.Array) else c for c in columns), strict=True))
    if declared is not None:
        return Chunk(positions, times, declared, None, Unread(rows, loose=True))
    names = (*(fold.key.names if fold.key else ()), *fold.bounds, *fold.aggregation.names)
    return Chunk(positions, times, None, None, list(map(partial(tuple.__new__, record_class(names)), rows)))


def _as_kind(column: pa.Array | Iterable[Any], kind: pa.DataType) -> pa.Array:
    if not isinstance(column, pa.Array):
        return column_of(list(column), kind)
    return column if column.type == kind else column.cast(kind)


def keep_aside(arrived: WindowRows, rest: OpenWindows, shards: Shards) -> None:
    """Have windows wait for the next chunk, and nowhere else."""
    for shard, key in arrived.taken:
        shard.states.pop(key, None)
        if not shard.all_touched:
            shard.touched.add(key)
    shards.aside = rest if len(rest) else None
