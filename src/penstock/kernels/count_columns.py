"""Take the rows of a chunk into windows of so many rows, by columns; windows that are full leave at their last row."""

from __future__ import annotations

import numpy as np

from penstock.kernels.session_columns import rows_by_key
from penstock.kernels.window_groups import Groups, Held, WindowRows, fold_members, window_rows
from penstock.operators.windows import CountWindows
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.timing import FOREVER


def count_windows(node: Node, logic: CountWindows, arrived: WindowRows, epoch: int, suffix: int) -> Chunk | None:
    """Take all rows in; return the rows of windows that are full, None where rows must be looked at one by one.

    Positions of rows that come out have `suffix` more components than those of rows that go in.
    """
    states = arrived.states()
    held_counts = np.array([0 if state is None else state[1] for state in states], np.int64)
    held_numbers = np.array([0 if state is None else state[2] for state in states], np.int64)
    rows = rows_by_key(arrived.keys.codes, len(states))
    codes = arrived.keys.codes[rows]
    of_key = np.concatenate([[True], codes[1:] != codes[:-1]])
    starts = np.flatnonzero(of_key)
    ordinal = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    among = ordinal + held_counts[codes]
    window = among // logic.size
    begins = of_key | (among % logic.size == 0)
    first = np.flatnonzero(begins)
    lasts = np.append(first[1:], len(rows)) - 1
    which_key, is_full = codes[first], among[lasts] % logic.size == logic.size - 1
    numbers = held_numbers[which_key] + window[first]
    held = [
        Held(states[code][0], states[code][3]) if among_first % logic.size else None
        for code, among_first in zip(which_key.tolist(), among[first].tolist(), strict=True)
    ]
    groups = Groups(rows, np.cumsum(begins) - 1, first, which_key, numbers, numbers, held=held)
    inside = fold_members(logic.fold_, arrived.chunk, groups)
    if inside is None:
        return None
    which = np.flatnonzero(is_full)
    which = which[np.argsort(rows[lasts[which]], kind="stable")]
    closing = rows[lasts[which]]
    zeros = np.zeros(len(which), np.int64)
    positions = [*(p[closing] for p in arrived.chunk.positions), *[zeros] * suffix]
    keys = arrived.keys.of(closing)
    made = window_rows(
        node, logic.fold_, positions, arrived.times[closing], keys, [numbers[which].tolist()], inside, which
    )
    if made is not None:
        _keep(logic, arrived, groups, inside, rows[lasts], among[lasts] % logic.size + 1, epoch)
    return made


def _keep(
    logic: CountWindows,
    arrived: WindowRows,
    groups: Groups,
    inside: list[list[object]],
    last_rows: Ints,
    counts: Ints,
    epoch: int,
) -> None:
    """Put the last window of each key in its state."""
    last = np.flatnonzero(np.append(groups.codes[1:] != groups.codes[:-1], True))
    openers = groups.openers[last]
    for number, code, count, time, place in zip(
        last.tolist(),
        groups.codes[last].tolist(),
        counts[last].tolist(),
        arrived.times[last_rows[last]].tolist(),
        zip(*(p[openers].tolist() for p in arrived.chunk.positions), strict=True),
        strict=True,
    ):
        held, shard, key = groups.held[number], arrived.shard_of_key[code], arrived.keys.keys[code]
        opened = (epoch, *place) if held is None else held.opened
        window = int(groups.starts[number])
        if count == logic.size:
            shard.states[key] = (None, 0, window + 1, opened, time)
        else:
            shard.states[key] = ([column[number] for column in inside], count, window, opened, time)
            if held is None:
                shard.register(FOREVER, opened, key)
        if not shard.all_touched:
            shard.touched.add(key)
