"""Lines of text from a TCP server. The log keeps the lines themselves: nothing else could bring them back."""

from __future__ import annotations

import pickle
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.connectors.items import payload_pieces
from penstock.connectors.reader import Feed, Json, Piece, Reader, Slice, Split
from penstock.errors import SourceError
from penstock.rows.records import RowType
from penstock.rows.row_types import row_type


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
