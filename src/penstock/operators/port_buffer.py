"""The rows that wait in one input port of a co-routine: the oldest in memory, and on disk those beyond some number."""

from __future__ import annotations

import pickle
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, Any

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
        """Take the newest row."""
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
        """Take the oldest row out."""
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
        """Return a row by its place, the oldest first."""
        if index < len(self._front):
            return self._front[index]
        assert self._spilled is not None
        block, place = divmod(index - len(self._front), BLOCK)
        return self._back[place] if block >= self._spilled.count else self._spilled.read(block)[place]

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(self.count))

    def clear(self) -> None:
        """Forget all rows, and the files that they are in."""
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
        """Read the oldest block, and forget it."""
        rows, self._known = self.read(0), None
        first = self._segments[0]
        first.taken += 1
        if first.taken == len(first.blocks):
            self._segments.popleft().close()
        self.count -= 1
        return rows

    def read(self, block: int) -> list[Row]:
        """Read a block by its place, the oldest first."""
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
        """Remove the files."""
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
