"""Find the time windows of the rows of a chunk, by columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.row_keys import dense
from penstock.kernels.stateless import expansion
from penstock.kernels.window_groups import Groups, Held, WindowRows
from penstock.operators.windows import TimeWindows
from penstock.rows.chunk import Ints


def time_windows(logic: TimeWindows, arrived: WindowRows) -> tuple[Groups, Ints] | None:
    """Return the windows of the rows, and the rows that are late for all of theirs."""
    rows, starts, late = _windows(logic, arrived.times, arrived.waters)
    cells = (starts - starts.min(initial=0)) // logic.every
    width = int(cells.max(initial=0)) + 1
    if width * len(arrived.keys.keys) >= 1 << 62:
        return None  # times so far apart that a key and a window no longer make one number
    of, numbers = dense(arrived.keys.codes[rows] * width + cells)
    first = np.flatnonzero(of > np.maximum.accumulate(np.concatenate([[-1], of])[:-1]))
    codes, found = numbers // width, starts[first]
    return Groups(rows, of, first, codes, found, found + logic.size, held=_held(arrived, codes, found)), late


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


def _held(arrived: WindowRows, codes: Ints, starts: Ints) -> list[Held | None]:
    states = arrived.states()
    if not any(states):
        return [None] * len(codes)
    found = [
        states[code] and states[code].get(start) for code, start in zip(codes.tolist(), starts.tolist(), strict=True)
    ]
    return [window and Held(*window) for window in found]
