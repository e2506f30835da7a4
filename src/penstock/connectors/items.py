"""Rows of a Python iterable, which only the driver has: they travel with the splits."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.connectors.reader import BATCH_ROWS, Feed, Json, Piece, Reader, Slice, Split, nulls, with_values
from penstock.connectors.text import Unreadable
from penstock.errors import RowTypeError, SourceError, row_text
from penstock.rows.records import RowType
from penstock.rows.row_types import RowT_co, Schema, infer_row_type, row_type

_SAMPLE = 1000


@dataclass(frozen=True)
class Items(Reader[RowT_co]):
    """A Python iterable. It is read again from its start after a restart, so it must give the same rows."""

    items: Iterable[Any]
    schema: Schema[RowT_co] | None = None
    passes_over: bool = False
    """See `Files`."""

    def row_type(self, source: str) -> RowType | None:
        if self.schema is not None:
            return row_type(self.schema, source)
        return infer_row_type(self.items[:_SAMPLE]) if isinstance(self.items, (list, tuple)) else None

    def feed(self, source: str, clock: Callable[[], float], **_: Any) -> Feed:
        return ItemFeed(self, source)

    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        return payload_pieces(row, split, source, passes_over=self.passes_over)

    def passing_over(self) -> Reader:
        return replace(self, passes_over=True)

    def for_workers(self) -> Reader:
        return replace(self, items=())


class ItemFeed(Feed):
    def __init__(self, reader: Items, source: str) -> None:
        self._reader, self._source, self._taken = reader, source, 0
        self._iterator: Iterator[Any] | None = None
        self._last: list[Any] = []

    def poll(self, limit: int) -> Slice | None:
        if self._iterator is None:
            self._iterator = iter(self._reader.items)
            skipped = sum(1 for _ in itertools.islice(self._iterator, self._taken))
            if skipped < self._taken:
                raise SourceError(
                    f"source {self._source!r}: {self._taken} rows were processed before the restart, but "
                    f"the iterable now has {skipped}; give one that repeats its rows"
                )
        self._last = rows = list(itertools.islice(self._iterator, limit))
        if not rows:
            return None
        start, self._taken = self._taken, self._taken + len(rows)
        split = Split(0, start, self._taken, payload=pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))
        return Slice((split,), {"taken": self._taken}, {"start": start, "stop": self._taken}, len(rows))

    def replay(self, logged: Json, offset: Json) -> Slice:
        self._iterator, self._taken = None, logged["start"]
        again = self.poll(logged["stop"] - logged["start"])
        if again is None or self._taken != logged["stop"]:
            raise SourceError(
                f"source {self._source!r}: the iterable no longer has the rows {logged['start']} to "
                f"{logged['stop']} of an epoch that was begun before the restart"
            )
        return again

    def restore(self, offset: Json) -> None:
        if offset["taken"] != self._taken:  # a replay has brought the iterator there, and one may not iterate twice
            self._iterator, self._taken = None, offset["taken"]

    def undo(self) -> None:
        if self._iterator is not None:
            self._iterator = itertools.chain(self._last, self._iterator)
            self._taken, self._last = self._taken - len(self._last), []

    def exhausted(self) -> bool:
        return True

    def close(self) -> None:
        self._iterator, self._last = None, []


def payload_pieces(row: RowType | None, split: Split, source: str, *, passes_over: bool = False) -> Iterator[Piece]:
    """Read rows that travel with their split."""
    rows = pickle.loads(split.payload or b"")
    for start in range(0, len(rows), BATCH_ROWS):
        part = rows[start : start + BATCH_ROWS]
        positions = split.positions(start, len(part))
        if row is None:
            yield Piece(positions, None, part)
            continue
        unreadable: dict[int, Unreadable] = {}
        try:
            columns = row.encode(part)
        except RowTypeError as error:
            if not passes_over:
                raise SourceError(f"source {source!r}, row {split.start + start + error.index}: {error}") from None
            part, unreadable = _without_misfits(row, part, split.start + start)
            columns = row.encode(part)
        yield Piece(positions, with_values(row, columns), None, unreadable=unreadable)


def _without_misfits(row: RowType, rows: list[Any], first: int) -> tuple[list[Any], dict[int, Unreadable]]:
    """Return rows with nulls instead of those that do not fit their type, and why these do not."""
    fitting, unreadable = list(rows), dict[int, Unreadable]()
    nothing = row.decode(nulls(row.schema, 1))[0]
    for number, value in enumerate(rows):
        try:
            row.encode([value])
        except RowTypeError as error:
            unreadable[number] = Unreadable(f"row {first + number}", str(error), row_text(value))
            fitting[number] = nothing
    return fitting, unreadable
