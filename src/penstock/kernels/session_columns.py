"""Find the sessions of the rows of a chunk, by columns, where a key has one open session at a time.

A row then goes into the session of its key if a mark has not closed that, and begins a new one if it has. So sessions
begin where the watermark at a row has reached the latest end so far, in whatever order the times come.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.window_groups import Groups, Held, WindowRows
from penstock.operators.windows import SessionWindows
from penstock.rows.chunk import Ints
from penstock.rows.timing import BEFORE


def sessions(logic: SessionWindows, arrived: WindowRows) -> tuple[Groups, Ints] | None:
    """Return the sessions of the rows, and the rows that are late; None where rows must be looked at one by one."""
    states = arrived.states()
    open_now = [state[0] if state else None for state in states]
    if any(state and (len(state) > 1 or state[0].rows is not None) for state in states):
        return None  # begun when rows were still kept
    rows = rows_by_key(arrived.keys.codes, len(states))
    codes, times, waters = arrived.keys.codes[rows], arrived.times[rows], arrived.waters[rows]
    if (times > waters).any():
        return None
    ends = times + logic.gap
    passed = ends <= waters
    latest = _latest_before(np.where(passed, BEFORE, ends), codes)
    if latest is None:
        return None
    held_ends = np.array([BEFORE if session is None else session.end for session in open_now], np.int64)
    is_open = np.maximum(latest, held_ends[codes]) > waters
    if (passed & is_open).any():
        return None  # such a row is late or not, according to when its session began
    late = np.sort(rows[passed])
    if len(late):
        here = ~passed
        rows, codes, times, ends, is_open = rows[here], codes[here], times[here], ends[here], is_open[here]
    of_key = np.concatenate([[True], codes[1:] != codes[:-1]])[: len(codes)]
    begins = of_key | ~is_open
    first = np.flatnonzero(begins)
    if len(first) == 0:
        return Groups(rows, rows, first, first, first, first, held=[]), late
    starts, stops = np.minimum.reduceat(times, first), np.maximum.reduceat(ends, first)
    held: list[Held | None] = [None] * len(first)
    for number in np.flatnonzero(is_open[first]).tolist():
        session = open_now[codes[first[number]]]
        assert session is not None  # what is open before a key's first row
        held[number] = Held(session.inside, session.opened)
        starts[number] = min(session.start, starts[number])
        stops[number] = max(session.end, stops[number])
    return Groups(rows, np.cumsum(begins) - 1, first, codes[first], starts, stops, held=held), late


def rows_by_key(codes: Ints, count: int) -> Ints:
    """Return the numbers of the rows, those of a key together, in order."""
    # NumPy sorts short numbers without comparing them.
    return np.argsort(codes.astype(np.uint16) if count <= 1 << 16 else codes, kind="stable")


def _latest_before(ends: Ints, codes: Ints) -> Ints | None:
    """Return the latest end of the rows of the same key before each row, `BEFORE` where there is none."""
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
