"""Sources that are no files: values that only the driver has, rows made of their numbers, lines of a socket."""

from __future__ import annotations

import itertools
import pickle
import queue
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors.interfaces import (
    BATCH_ROWS,
    Feed,
    Json,
    Piece,
    Reader,
    Slice,
    Split,
    cast_table,
    nulls,
    with_values,
)
from penstock.connectors.text import Unreadable
from penstock.errors import RowTypeError, SourceError, operator_error, row_text
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


@dataclass(frozen=True)
class Generated(Reader[RowT_co]):
    """Rows made by `function(start, stop) -> table` for a growing range of row numbers."""

    function: Callable[[int, int], pa.Table]
    schema: Schema[RowT_co]
    rows_per_second: float | None = None
    rows: int | None = None
    by_columns = True

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return self.rows_per_second is not None or self.rows is None

    def row_type(self, source: str) -> RowType | None:
        return row_type(self.schema, source)

    def feed(self, source: str, clock: Callable[[], float], **_: Any) -> Feed:
        return GeneratedFeed(self, clock)

    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        assert row is not None
        for start in range(split.start, split.stop, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, split.stop)
            try:
                table = self.function(start, stop)
            except Exception as error:  # the user's function, whatever it reads
                raise operator_error(source, error, range(start, stop)) from None
            if table.num_rows != stop - start:
                raise SourceError(
                    f"source {source!r}: the generator gave {table.num_rows} rows for the row numbers "
                    f"{start} to {stop}; it must give {stop - start}"
                )
            at = start - split.start
            for batch in cast_table(row, table, source, split.path).to_batches():
                if batch.num_rows:
                    yield Piece(split.positions(at, batch.num_rows), batch, None)
                    at += batch.num_rows


@dataclass(frozen=True)
class Rate:
    """Makes rows (timestamp, value): value counts from 0."""

    rows_per_second: float

    def __call__(self, start: int, stop: int) -> pa.Table:
        value = np.arange(start, stop, dtype=np.int64)
        ticks = (value * (1e6 / self.rows_per_second)).astype(np.int64)
        return pa.table({"timestamp": pa.array(ticks, pa.timestamp("us", "UTC")), "value": value})


class GeneratedFeed(Feed):
    def __init__(self, reader: Generated, clock: Callable[[], float]) -> None:
        self._reader, self._clock, self._taken, self._before = reader, clock, 0, 0
        self._began: tuple[float, int] | None = None

    def poll(self, limit: int) -> Slice | None:
        stop, self._before = self._available(limit), self._taken
        if stop <= self._taken:
            return None
        self._taken = min(stop, self._taken + limit)
        backlog = stop - self._taken if self._reader.rows_per_second else None
        return self._slice(self._before, self._taken, backlog)

    def replay(self, logged: Json, offset: Json) -> Slice:
        self._taken = logged["stop"]
        return self._slice(logged["start"], logged["stop"], None)

    def restore(self, offset: Json) -> None:
        self._taken = offset["taken"]

    def undo(self) -> None:
        self._taken = self._before

    def exhausted(self) -> bool:
        return self._reader.rows is not None and self._taken >= self._reader.rows

    def close(self) -> None:
        self._began = None

    def _available(self, limit: int) -> int:
        most = self._taken + limit
        if self._reader.rows_per_second is not None:
            if self._began is None:
                self._began = (self._clock(), self._taken)
            began, first = self._began
            most = first + int((self._clock() - began) * self._reader.rows_per_second)
        return most if self._reader.rows is None else min(most, self._reader.rows)

    def _slice(self, start: int, stop: int, backlog: int | None) -> Slice:
        span = {"start": start, "stop": stop}
        return Slice((Split(0, start, stop),), {"taken": stop}, span, stop - start, backlog)


@dataclass(frozen=True)
class Socket(Reader):
    """Lines of text from a TCP server. What an epoch takes is logged; a crash loses what was only received."""

    host: str
    port: int
    goes_on = True

    def row_type(self, source: str) -> RowType | None:
        return row_type({"value": str}, source)

    def feed(self, source: str, clock: Callable[[], float], **_: Any) -> Feed:
        return SocketFeed(self, source)

    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        return payload_pieces(row, split, source)


class SocketFeed(Feed):
    """Receives lines, in a thread of its own, and takes them."""

    def __init__(self, reader: Socket, source: str) -> None:
        self._reader, self._source, self._taken = reader, source, 0
        self._lines: queue.Queue[str | None] = queue.Queue(maxsize=1_000_000)
        self._socket: socket.socket | None = None
        self._ended = False
        self._last: list[str] = []
        self._undone: list[str] = []

    def poll(self, limit: int) -> Slice | None:
        if self._socket is None and not self._ended:
            self._connect()
        lines, self._undone = self._undone[:limit], self._undone[limit:]
        while len(lines) < limit and not self._ended:
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                break
            if line is None:
                self._ended = True
            else:
                lines.append(line)
        self._last = lines
        return self._slice(self._taken, lines) if lines else None

    def replay(self, logged: Json, offset: Json) -> Slice:
        return self._slice(logged["start"], logged["lines"])

    def restore(self, offset: Json) -> None:
        self._taken = offset["taken"]

    def undo(self) -> None:
        self._undone = [*self._last, *self._undone]
        self._taken, self._last = self._taken - len(self._last), []

    def exhausted(self) -> bool:
        return self._ended and not self._undone

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _slice(self, start: int, lines: list[str]) -> Slice:
        self._taken = start + len(lines)
        rows = pickle.dumps([(line,) for line in lines], pickle.HIGHEST_PROTOCOL)
        split = Split(0, start, self._taken, payload=rows)
        return Slice(
            (split,),
            {"taken": self._taken},
            {"start": start, "lines": lines},
            len(lines),
            self._lines.qsize() + len(self._undone),
        )

    def _connect(self) -> None:
        address = (self._reader.host, self._reader.port)
        try:
            self._socket = socket.create_connection(address, timeout=10)
        except OSError as error:
            raise SourceError(
                f"source {self._source!r}: no server answers at {address[0]}:{address[1]} ({error}); start it first"
            ) from None
        self._socket.settimeout(None)
        threading.Thread(target=self._receive, args=(self._socket,), daemon=True, name="penstock-socket").start()

    def _receive(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("r", encoding="utf-8", errors="replace", newline="\n") as lines:
                for line in lines:
                    self._lines.put(line.rstrip("\r\n"))
        except OSError:
            pass  # closed by us, or by the server: both are the end
        self._lines.put(None)
