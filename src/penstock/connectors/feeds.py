"""What the driver knows of a source: which rows are new, and when there will be no more."""

from __future__ import annotations

import itertools
import pickle
import queue
import socket
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.paths import Stamp, exists, list_files, open_path, stamp_of
from penstock.connectors.read import Files, Generated, Items, Reader, Socket
from penstock.connectors.retries import retried
from penstock.connectors.splits import Split, blames_content, changed, count_rows, gone
from penstock.errors import SourceError
from penstock.rows.records import RowType

Json = dict[str, Any]


@dataclass(frozen=True)
class Slice:
    """What one source gives to one epoch: splits to read, and where the source stands behind them."""

    splits: tuple[Split, ...]
    offset: Json
    """Enough to find the next rows after a restart."""
    logged: Json
    """Enough to read the same rows again after a crash."""
    rows: int | None
    """How many rows, where that is known."""
    backlog: int | None = None
    """How many rows are known to wait behind this slice."""
    parts: tuple[int, ...] = ()
    """The parts of the source that are known by now, with rows in this slice or not; none where it has one part."""


class Feed(Protocol):
    """A source as the driver sees it."""

    def poll(self, limit: int) -> Slice | None:
        """Return about `limit` new rows, or None where there are none now.

        Sources that do not go on give exactly as many while they have them, text files only where they are counted.
        """

    def replay(self, logged: Json, offset: Json) -> Slice:
        """Return a slice that was logged before a crash."""

    def restore(self, offset: Json) -> None:
        """Go on behind what was committed."""

    def undo(self) -> None:
        """Stand where the last poll began, if one is to be taken back."""

    def exhausted(self) -> bool:
        """Tell whether no more rows will come; asked after a poll that returned fewer than it was asked for."""

    def close(self) -> None:
        """Let go of what is held open."""


class ItemFeed:
    """Rows of a Python iterable."""

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
        return self._slice(start, rows)

    def replay(self, logged: Json, offset: Json) -> Slice:
        self._iterator, self._taken = None, logged["start"]
        found = self.poll(logged["stop"] - logged["start"])
        if found is None or self._taken != logged["stop"]:
            raise SourceError(
                f"source {self._source!r}: the iterable no longer has the rows {logged['start']} to "
                f"{logged['stop']} of an epoch that was begun before the restart"
            )
        return found

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

    def _slice(self, start: int, rows: list[Any]) -> Slice:
        split = Split(0, start, start + len(rows), payload=pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))
        span = {"start": start, "stop": start + len(rows)}
        return Slice((split,), {"taken": start + len(rows)}, span, len(rows))


class GeneratedFeed:
    """Rows made by a function of their numbers, at a rate or as fast as they are taken."""

    def __init__(self, reader: Generated, clock: Callable[[], float]) -> None:
        self._reader, self._clock, self._taken, self._before = reader, clock, 0, 0
        self._began: tuple[float, int] | None = None

    def poll(self, limit: int) -> Slice | None:
        stop, self._before = self._available(limit), self._taken
        if stop <= self._taken:
            return None
        taken = min(stop, self._taken + limit)
        found = self._slice(self._taken, taken, stop - taken if self._reader.rows_per_second else None)
        self._taken = taken
        return found

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


class SocketFeed:
    """Lines from a TCP server. The log keeps the lines themselves: nothing else could bring them back."""

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


class FileFeed:
    """Files of a directory: each is taken once, in the order of modification time and then name.

    `aligned` slices end with a row group, and may have more rows than they were asked for: what is cut inside of one
    is decoded twice. With the type of the rows, `counted`, text files are counted when they are first seen, and cut by
    row like Parquet; otherwise they are taken whole.
    """

    def __init__(self, reader: Files, source: str, *, aligned: bool = False, counted: RowType | None = None) -> None:
        self._reader, self._source, self._aligned, self._counted = reader, source, aligned, counted
        self._seen: set[str] = set()
        self._waiting: list[tuple[str, list[int] | None]] = []
        """Files that were listed and not yet taken, with the rows up to the end of each row group where they are known.
        """
        self._next_row = 0
        """Where in the first waiting file the next slice begins."""
        self._began: str | None = None
        self._known: dict[str, int] = {}
        """The rows of the text file that was begun: it is not counted again."""
        self._stamps: dict[str, Stamp] = {}
        """What tells files that wait, or were begun, from others that take their names."""
        self._before: tuple[list[tuple[str, list[int] | None]], int] = ([], 0)

    def poll(self, limit: int) -> Slice | None:
        if not self._waiting:
            self._list()
        self._before = (list(self._waiting), self._next_row)
        if not self._waiting:
            return None
        splits: list[Split] = []
        left = limit
        ordinal = 0
        while self._waiting and left > 0:
            path, ends = self._waiting[0]
            if ends is None:
                splits.append(Split(ordinal, 0, 0, path))
                # A text file is taken whole, because its rows cannot be counted without reading it.
                left -= max(1, limit // 8)
                self._take_first()
            else:
                stop = min(ends[-1], self._next_row + left)
                if self._aligned:
                    stop = ends[bisect_left(ends, stop)]
                splits.append(Split(ordinal, self._next_row, stop, path))
                left -= stop - self._next_row
                self._next_row = stop
                if stop == ends[-1]:
                    self._take_first()
            ordinal += 1
        rows = _counted_rows(splits)
        backlog = sum(ends[-1] for _, ends in self._waiting if ends) - self._next_row
        stamps = {split.path: self._stamps[split.path] for split in splits if split.path in self._stamps}
        logged = {"splits": [s.to_json() for s in splits], "stamps": stamps}
        return Slice(tuple(splits), self._offset(splits), logged, rows, backlog)

    def replay(self, logged: Json, offset: Json) -> Slice:
        for path, known in logged.get("stamps", {}).items():
            now = retried(lambda path=path: stamp_of(path), f"source {self._source!r}: looking at", path)  # type: ignore[misc]
            self._check(path, known, now or known)  # one that is gone is reported where it is read
        splits = tuple(Split(**split) for split in logged["splits"])
        return Slice(splits, offset, logged, _counted_rows(splits))

    def undo(self) -> None:
        self._waiting, self._next_row = self._before
        self._seen.difference_update(path for path, _ in self._waiting)

    def restore(self, offset: Json) -> None:
        """Take in one committed offset; called for each that was logged, in order."""
        self._seen.update(offset.get("seen", ()))
        self._seen.update(offset["taken"])
        partial = offset.get("partial")
        self._waiting, self._next_row, self._began = [], 0, None
        if partial:
            self._began, self._next_row = partial["path"], partial["row"]
            self._known = {partial["path"]: partial["rows"]} if "rows" in partial else {}
            self._stamps = {partial["path"]: partial["stamp"]} if "stamp" in partial else {}
            self._seen.discard(self._began)

    def full_offset(self) -> Json:
        """Return an offset that needs no earlier one."""
        return {"seen": sorted(self._seen), "taken": [], **self._partial()}

    def exhausted(self) -> bool:
        return not self._reader.follow and not self._waiting

    def close(self) -> None:
        self._waiting = []

    def _offset(self, splits: list[Split]) -> Json:
        return {"taken": [s.path for s in splits if s.path in self._seen], **self._partial()}

    def _partial(self) -> Json:
        """Tell which file was begun and not finished."""
        if not self._next_row:
            return {}
        path, ends = self._waiting[0] if self._waiting else (str(self._began), None)
        known: Json = {} if path not in self._stamps else {"stamp": self._stamps[path]}
        if path in self._known:
            known["rows"] = self._known[path]
        elif ends is not None and self._reader.format != "parquet":
            known["rows"] = ends[-1]
        return {"partial": {"path": path, "row": self._next_row, **known}}

    def _check(self, path: str, known: Stamp, now: Stamp) -> None:
        """Refuse a file of another size or time than the one of which rows were taken, or are to be taken again."""
        if known != now:
            raise changed(self._source, path, f"its size and time were {known}, and are {now}")

    def _take_first(self) -> None:
        path, _ = self._waiting.pop(0)
        self._seen.add(path)
        self._next_row = 0

    def _list(self) -> None:
        where, listing = self._reader.path, f"source {self._source!r}: listing"
        if not retried(lambda: exists(where), listing, where):
            if self._reader.follow:
                return
            raise SourceError(f"source {self._source!r}: there is no file or directory {where}")
        listed = retried(lambda: list_files(where), listing, where)
        found = [file for file in listed if file.path not in self._seen]
        if self._began is not None and all(file.path != self._began for file in found):
            raise SourceError(
                f"source {self._source!r}: the file {self._began} is gone, of which {self._next_row} rows were "
                f"processed; restore it, or start with a new checkpoint"
            )
        stamps = {file.path: file.stamp for file in found}
        if self._began in self._stamps:
            self._check(self._began, self._stamps[self._began], stamps[self._began])
        self._stamps = stamps
        # A file that an earlier epoch began comes first, whatever its time.
        found.sort(key=lambda f: (f.path != self._began, 0 if self._reader.by_name else f.modified, f.path))
        self._waiting = [(file.path, self._row_groups(file.path)) for file in found]
        # Files without rows are not looked at again.
        self._seen.update(path for path, ends in self._waiting if ends is not None and not sum(ends))
        self._waiting = [(path, ends) for path, ends in self._waiting if path not in self._seen]
        self._began = None

    def _row_groups(self, path: str) -> list[int] | None:
        if self._reader.format != "parquet":
            if self._counted is None:
                return None
            rows = self._known.get(path)
            return [count_rows(self._reader, self._counted, path, self._source) if rows is None else rows]
        try:
            return retried(lambda: _count_row_groups(path, self._source), f"source {self._source!r}: reading", path)
        except pa.ArrowInvalid as error:
            if self._reader.passes_over:
                return [1]  # reading it says what is wrong, in the place of its first row
            raise SourceError(
                f"source {self._source!r}: the file {path} cannot be read as parquet: "
                f"{str(error).splitlines()[0]}; remove it, or write it elsewhere and move it in when it is "
                f"complete"
            ) from None


def _count_row_groups(path: str, source: str) -> list[int]:
    """Return the rows up to the end of each row group of a Parquet file."""
    try:
        with open_path(path) as file:
            metadata = pq.ParquetFile(file).metadata
    except FileNotFoundError:
        raise gone(source, path) from None
    except OSError as error:
        if blames_content(error, path):
            raise pa.ArrowInvalid(str(error)) from None
        raise
    groups = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    return list(itertools.accumulate(groups))


def _counted_rows(splits: Iterable[Split]) -> int | None:
    """Return the rows of splits, None where some are not counted."""
    counts = [split.rows for split in splits]
    return None if None in counts else sum(count or 0 for count in counts)


def make_feed(
    reader: Reader,
    source: str,
    clock: Callable[[], float],
    *,
    aligned: bool = False,
    counted: RowType | None = None,
) -> Feed:
    """Make the feed of a reader that the driver reads itself; `aligned` and `counted` are for files."""
    if isinstance(reader, Items):
        return ItemFeed(reader, source)
    if isinstance(reader, Generated):
        return GeneratedFeed(reader, clock)
    if isinstance(reader, Socket):
        return SocketFeed(reader, source)
    if isinstance(reader, Files):
        return FileFeed(reader, source, aligned=aligned, counted=counted)
    raise TypeError(f"source {source!r}: {reader!r} is fed by Spark")
