"""The input ports of a co-routine: the rows that wait in each, on disk beyond some number, and what is waited for."""

from __future__ import annotations

import pickle
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import IO, Any, NamedTuple

from penstock.errors import PenstockError
from penstock.rows.records import Row

IN_MEMORY = 8192
"""Rows of a port that are kept in memory before any goes to disk."""
BLOCK = 1024
"""Rows that are written and read together."""
SEGMENT = 64
"""Blocks of one temporary file: a file is let go as soon as its last block is read, so that space comes back."""


class PortBuffer:
    """A queue of rows with bounded memory."""

    __slots__ = ("_back", "_front", "_spilled", "count")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.count = 0
        """How many rows wait; an attribute, because every wait asks for it."""
        self._front: deque[Row] = deque()
        """The oldest rows; never empty while there are some."""
        self._spilled: _Spilled | None = None
        self._back: list[Row] = []
        """The newest, where older ones are on disk: less than a block."""
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        self.count += 1
        if self._spilled is None:
            if len(self._front) < IN_MEMORY:
                self._front.append(row)
                return
            self._spilled = _Spilled()
        self._back.append(row)
        if len(self._back) == BLOCK:
            self._spilled.push(self._back)
            self._back = []

    def popleft(self) -> Row:
        row = self._front.popleft()
        self.count -= 1
        if self._spilled is not None and not self._front:
            if self._spilled.count:
                self._front.extend(self._spilled.pop())
            else:
                self._spilled.close()
                self._front.extend(self._back)
                self._spilled, self._back = None, []
        return row

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Row:
        if index < len(self._front):
            return self._front[index]
        assert self._spilled is not None
        block, place = divmod(index - len(self._front), BLOCK)
        return self._back[place] if block >= self._spilled.count else self._spilled.read(block)[place]

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(self.count))

    def clear(self) -> None:
        if self._spilled is not None:
            self._spilled.close()
        self.count, self._spilled, self._back = 0, None, []
        self._front.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return PortBuffer, (list(self),)


class _Spilled:
    """Blocks of rows in temporary files, first in first out."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        self._known: tuple[int, list[Row]] | None = None
        """The block that was read last, by its place: rows that are looked at one by one are read once."""
        self.count = 0

    def push(self, rows: list[Row]) -> None:
        """Write a block of rows; what cannot be pickled stays in memory."""
        if not self._segments or self._segments[-1].is_full():
            self._segments.append(_Segment())
        self._segments[-1].write(rows)
        self.count += 1

    def pop(self) -> list[Row]:
        rows, self._known = self.read(0), None
        first = self._segments[0]
        first.taken += 1
        if first.taken == len(first.blocks):
            self._segments.popleft().close()
        self.count -= 1
        return rows

    def read(self, block: int) -> list[Row]:
        if self._known is None or self._known[0] != block:
            place = block
            for segment in self._segments:
                inside = len(segment.blocks) - segment.taken
                if place < inside:
                    self._known = block, segment.read(segment.taken + place)
                    break
                place -= inside
        assert self._known is not None
        return self._known[1]

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
        self._segments.clear()


class _Segment:
    """One temporary file of blocks."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="penstock-port-")  # noqa: SIM115 (lives on)
        self.blocks: list[tuple[int, int] | list[Row]] = []
        """Where each block begins, and its bytes; the rows themselves where they cannot be pickled."""
        self.taken = 0

    def is_full(self) -> bool:
        return len(self.blocks) == SEGMENT

    def write(self, rows: list[Row]) -> None:
        try:
            data = pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
        except Exception:  # rows of this process alone are no reason to fail: they are where they were before
            self.blocks.append(rows)
            return
        start = self._file.seek(0, 2)
        self._file.write(data)
        self.blocks.append((start, len(data)))

    def read(self, number: int) -> list[Row]:
        block = self.blocks[number]
        if isinstance(block, list):
            return block
        self._file.seek(block[0])
        rows: list[Row] = pickle.loads(self._file.read(block[1]))
        return rows

    def close(self) -> None:
        self._file.close()


class Wait(NamedTuple):
    """What a co-routine waits for: a number of rows in all of some ports, or in any of them."""

    every: bool
    counts: tuple[tuple[int, int], ...]

    def satisfied(self, pending: Sequence[PortBuffer]) -> bool:
        every = self.every
        for port, count in self.counts:  # a loop, because generators take twice the time of it
            if (pending[port].count >= count) is not every:
                return not every
        return every

    def hopeless(self, pending: Sequence[PortBuffer], closed: Collection[int]) -> bool:
        """Tell whether the rows that are missing can never come, because their ports are closed."""
        missing = [port in closed for port, count in self.counts if pending[port].count < count]
        return any(missing) if self.every else all(missing)

    def __str__(self) -> str:
        counts = ", ".join(f"{port}: {count}" for port, count in self.counts)
        return f"wait_for_{'all' if self.every else 'any'}({{{counts}}})"


@lru_cache(maxsize=1024)
def checked_wait(every: bool, counts: tuple[tuple[int, int], ...], ports: int, most: int) -> Wait:
    """Make a wait, and refuse one for ports that are not there, or for rows that a port can never hold."""
    wait = Wait(every, counts)
    if not counts or any(count < 1 for _, count in counts):
        raise PenstockError(f"{wait} must name at least one port, and at least one row for each")
    for port, count in counts:
        if not 0 <= port < ports:
            raise PenstockError(no_port(port, ports))
        if count > most:
            raise PenstockError(
                f"{wait} needs {count} rows in port {port}, and max_pending={most} is the most that a port holds; give "
                f"operate() a larger max_pending="
            )
    return wait


def no_port(port: int, ports: int) -> str:
    return f"there is no input port {port}; the operator has {ports}, counted from 0"
