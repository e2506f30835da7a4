"""Merge sorted runs by position, in chunks of bounded size, opening each run as late as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from penstock.rows.chunk import Chunk

CHUNK_ROWS = 131_072


@dataclass(frozen=True)
class SortedRun:
    """Rows in the order of their positions, not yet loaded."""

    first: int
    """The first component of the first row's position."""
    port: int
    load: Callable[[], Chunk]


@dataclass
class _Open:
    port: int
    chunk: Chunk
    at: int = 0

    @property
    def first(self) -> int:
        return int(self.chunk.positions[0][self.at])

    def __len__(self) -> int:
        return len(self.chunk) - self.at


Group = list[tuple[int, Chunk]]


def merged(runs: list[SortedRun], limit: int = CHUNK_ROWS) -> Iterator[tuple[Group, int | None]]:
    """Yield groups of (port, chunk) that together hold all rows before a bound; the last bound is None.

    Rows of one group may overlap and are to be sorted; rows of different groups never do. The bound is the first
    component that the next group's rows begin at or above, so that marks before it can be taken too. Short runs are
    taken together: what a group costs by itself, and what is still open at its end, then counts for less.
    """
    waiting = sorted(runs, key=lambda run: run.first)
    opened: list[_Open] = []
    taken = 0
    while opened or taken < len(waiting):
        while taken < len(waiting) and sum(map(len, opened)) < limit:
            opened.append(_open(waiting[taken]))
            taken += 1
        bound = waiting[taken].first if taken < len(waiting) else None
        lowest = min(run.first for run in opened)
        if bound is not None and bound <= lowest:
            opened.append(_open(waiting[taken]))
            taken += 1
            continue
        bound = _capped(opened, bound, lowest, limit)
        group: Group = []
        for run in opened:
            keys = run.chunk.positions[0]
            stop = len(keys) if bound is None else int(np.searchsorted(keys, bound, "left"))
            if stop > run.at:
                whole = run.at == 0 and stop == len(keys)
                group.append((run.port, run.chunk if whole else run.chunk.slice(run.at, stop)))
                run.at = stop
        opened = [run for run in opened if len(run)]
        yield group, bound if opened or taken < len(waiting) else None


def _open(run: SortedRun) -> _Open:
    return _Open(run.port, run.load())


def _capped(opened: list[_Open], bound: int | None, lowest: int, limit: int) -> int | None:
    """Lower the bound so that a group stays small, but never so far that it would be empty."""
    if sum(map(len, opened)) <= 2 * limit:
        return bound
    share = max(1024, limit // len(opened))
    for run in opened:
        keys = run.chunk.positions[0]
        if len(run) > 2 * share:
            candidate = max(int(keys[run.at + share]), lowest + 1)
            bound = candidate if bound is None else min(bound, candidate)
    return bound
