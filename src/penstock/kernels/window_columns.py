"""Find the windows of the rows of a chunk, by columns: of time, of rows that follow one another, of so many rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import grouped
from penstock.kernels.stateless import expansion
from penstock.kernels.window_groups import Groups, OpenWindows, WindowRows, close_windows, fold_members, made_rows
from penstock.operators.aggregate_columns import Column
from penstock.operators.running_columns import sorting
from penstock.operators.window_folds import AggregateFold
from penstock.operators.windows import LATE, CountWindows, SessionWindows, TimeWindows
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.timing import BEFORE, FOREVER

Taken = tuple[dict[int, Chunk], OpenWindows, bool]
"""Rows by output port, the windows that are open now, and whether some of these are due and to be closed one by one."""


def take_windows(node: Node, arrived: WindowRows, marks: Steps, suffix: int) -> Taken | None:
    """Take rows into their windows, and close those that are due; None where rows must be taken one by one.

    Positions of rows that come out have `suffix` more components than those of rows that go in.
    """
    logic = arrived.logic
    last = int(marks.values[-1]) if len(marks) else BEFORE
    if isinstance(logic, CountWindows):
        if arrived.waters.max(initial=BEFORE) == FOREVER:
            return None  # after the end each row would close what is open
        counted = _count_windows(node, logic, arrived, suffix)
        return None if counted is None else (*counted, last == FOREVER)
    assert isinstance(logic, (TimeWindows, SessionWindows))
    found = _time_windows(logic, arrived) if isinstance(logic, TimeWindows) else _sessions(logic, arrived)
    inside = None if found is None else fold_members(logic.fold_, arrived, found[0])
    if found is None or inside is None:
        return None
    (groups, late), made = found, dict[int, Chunk]()
    if len(late):
        rows = arrived.chunk.select(late)
        made[LATE] = rows.replace_rows(rows.get_rows(), node.types[LATE]).widened(len(rows.positions) + suffix)
    due = groups.ends <= last
    closed = close_windows(node, arrived, groups, inside, marks, due) if due.any() else None
    if closed is not None:
        made[0] = closed
    which = np.flatnonzero(~due) if closed is not None else np.arange(len(due))
    which = which[np.argsort(groups.items[which], kind="stable")]
    parts = [_some(column, which) for column in inside]
    rest = arrived.windows(groups.items[which], groups.starts[which], groups.ends[which], parts)
    return made, rest, closed is None and bool(due.any())


def _time_windows(logic: TimeWindows, arrived: WindowRows) -> tuple[Groups, Ints] | None:
    """Return the windows of the rows, and the rows that are late for all of theirs."""
    rows, starts, late = _windows(logic, arrived.times, arrived.waters)
    held = len(arrived.held)
    codes, below = arrived.codes
    items = None
    if rows is not None:
        items = np.concatenate([np.arange(held), held + rows])
        codes = codes[items]
    starts = np.concatenate([arrived.held.starts, starts]) if held else starts
    cells = (starts - starts.min(initial=0)) // logic.every
    width = int(cells.max(initial=0)) + 1
    if width * below >= 1 << 62:
        return None  # times so far apart that a key and a window no longer make one number
    of, first = grouped(codes * width + cells)
    found = starts[first]
    return Groups(rows, of[held:], first if items is None else items[first], found, found + logic.size), late


def _windows(logic: TimeWindows, times: Ints, waters: Ints) -> tuple[Ints | None, Ints, Ints]:
    """Return (row, start of the window) for each window that a row goes into, and the rows that go into none.

    No rows stand for all of them, each in one window.
    """
    latest = times - (times - logic.offset) % logic.every
    row, start = None, latest
    if logic.size != logic.every:
        more = (logic.size - 1 - (times - latest)) // logic.every
        row, number = expansion(more + 1)
        start = (latest - more * logic.every)[row] + number * logic.every
    is_open: npt.NDArray[np.bool_] = start + logic.size > (waters if row is None else waters[row])
    if is_open.all():
        return row, start, np.empty(0, np.int64)
    row, start = np.flatnonzero(is_open) if row is None else row[is_open], start[is_open]
    in_time = np.zeros(len(times), bool)
    in_time[row] = True
    return row, start, np.flatnonzero(~in_time)


def _sessions(logic: SessionWindows, arrived: WindowRows) -> tuple[Groups, Ints] | None:
    """Return the sessions of the rows, and the rows that are late; None where rows must be looked at one by one.

    A key has one open session at a time. A row goes into it if a mark has not closed it, and begins a new one if it
    has. So sessions begin where the watermark at a row has reached the latest end so far, in whatever order times come.
    """
    if (arrived.times > arrived.waters).any():
        return None
    held = len(arrived.held)
    items = _by_key(*arrived.codes)
    codes = arrived.codes[0][items]
    times = np.concatenate([arrived.held.starts, arrived.times])[items]
    ends = np.concatenate([arrived.held.ends, arrived.times + logic.gap])[items]
    waters = np.concatenate([np.full(held, BEFORE, np.int64), arrived.waters])[items]
    passed = ends <= waters
    some_passed = bool(passed.any())
    latest = _latest_before(np.where(passed, BEFORE, ends) if some_passed else ends, codes)
    if latest is None:
        return None
    is_open = latest > waters
    late = np.empty(0, np.int64)
    if some_passed:
        if (passed & is_open).any():
            return None  # such a row is late or not, according to when its session began
        late, here = np.sort(items[passed]) - held, ~passed
        items, codes, times, ends, is_open = items[here], codes[here], times[here], ends[here], is_open[here]
    begins = _changes(codes) | ~is_open
    first = np.flatnonzero(begins)
    of = np.cumsum(begins) - 1
    rows = items >= held
    members = (items - held, of) if rows.all() else (items[rows] - held, of[rows])
    if len(first) == 0:
        return Groups(*members, first, first, first), late
    return Groups(*members, items[first], np.minimum.reduceat(times, first), np.maximum.reduceat(ends, first)), late


def _by_key(codes: Ints, below: int) -> Ints:
    """Return the numbers of items, those of a key together, in order."""
    return sorting(codes, below - 1) if below <= 1 << 32 else np.argsort(codes, kind="stable")


def _changes(codes: Ints) -> npt.NDArray[np.bool_]:
    """Tell where another key begins."""
    return np.concatenate([[True], codes[1:] != codes[:-1]])[: len(codes)]


def _latest_before(ends: Ints, codes: Ints) -> Ints | None:
    """Return the latest end of the items of the same key before each, `BEFORE` where there is none."""
    same = codes[1:] == codes[:-1]
    latest = np.full(len(ends), BEFORE, np.int64)
    if not (same & (ends[1:] < ends[:-1])).any():
        latest[1:] = np.where(same, ends[:-1], BEFORE)
        return latest
    there = ends > BEFORE
    low = int(ends[there].min()) - 1
    span = int(ends.max()) - low + 1
    if span * (int(codes[-1]) + 1) >= 1 << 62:
        return None
    # Keys side by side on one line, so that one running maximum serves all; 0 stands for nothing.
    places = np.where(there, ends - low, 0)
    highest = np.maximum.accumulate(codes * span + places)[:-1] - codes[1:] * span
    latest[1:] = np.where(same & (highest > 0), highest + low, BEFORE)
    return latest


def _count_windows(
    node: Node, logic: CountWindows, arrived: WindowRows, suffix: int
) -> tuple[dict[int, Chunk], OpenWindows] | None:
    """Return the rows of windows that are full, and the last window of each key."""
    held, size = len(arrived.held), logic.size
    items = _by_key(*arrived.codes)
    codes = arrived.codes[0][items]
    # An open window stands for its rows; the first item of a key is it, or a row.
    is_row = items >= held
    weights = np.concatenate([arrived.held.ends, np.ones(len(arrived.chunk), np.int64)])[items]
    before = np.cumsum(weights) - weights
    begins = np.flatnonzero(_changes(codes))
    sizes = np.diff(np.append(begins, len(items)))
    among = (before - np.repeat(before[begins], sizes))[is_row]
    of_held = np.repeat(np.where(is_row[begins], -1, items[begins]), sizes)[is_row]
    rows, codes = items[is_row] - held, codes[is_row]
    first = np.flatnonzero(_changes(codes) | (among % size == 0))
    lasts = np.append(first[1:], len(rows)) - 1
    goes_on, at = among[first] % size > 0, of_held[first]
    numbers = np.append(arrived.held.starts, 0)[at] + among[first] // size
    openers = np.where(goes_on, at, held + rows[first])
    counts = among[lasts] % size + 1
    of = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(rows))))
    groups = Groups(rows, of, openers, numbers, numbers)
    inside = fold_members(logic.fold_, arrived, groups)
    if inside is None:
        return None
    which = np.flatnonzero(counts == size)
    which = which[np.argsort(rows[lasts[which]], kind="stable")]
    closing = rows[lasts[which]]
    positions = [*(p[closing] for p in arrived.chunk.positions), *[np.zeros(len(which), np.int64)] * suffix]
    keys, bounds = arrived.keys.take(held + closing), [pa.array(numbers[which])]
    assert isinstance(logic.fold_, AggregateFold)
    made = made_rows(node, logic.fold_, positions, arrived.times[closing], keys, bounds, inside, which)
    if made is None:
        return None
    last = np.flatnonzero(np.append(codes[first][1:] != codes[first][:-1], True))
    is_full = counts[last] == size
    rest = arrived.windows(
        openers[last],
        numbers[last] + is_full,
        np.where(is_full, 0, counts[last]),
        [_some(column, last) for column in inside],
        arrived.times[rows[lasts[last]]],
    )
    untouched = np.setdiff1d(np.arange(held), of_held)
    return {0: made} if len(made) else {}, arrived.held.take(untouched).then(rest)


def _some(column: Column, which: Ints) -> Column:
    return column[0], tuple(part[which] for part in column[1])
