"""Files of a directory as a source: each is taken once, in the order of modification time and then name."""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.interfaces import Feed, Json, Piece, Reader, Slice, Span, Split, fit_table, nulls
from penstock.connectors.parquet import blames_content, read_parquet, row_group_ends, row_group_spans, unreadable_rows
from penstock.connectors.paths import Found, Stamp, exists, is_damaged, list_files, open_path, open_text, stamp_of
from penstock.connectors.retries import retried, retried_pieces
from penstock.connectors.text import TextRows, Unreadable, first_schema, read_text, refuse_types
from penstock.errors import FlowError, SourceError, StorageError
from penstock.operators.base import OnError
from penstock.rows.records import RowType
from penstock.rows.row_types import RowT_co, Schema, row_type

if TYPE_CHECKING:
    from penstock.store.sink_rows import SinkReader

FileFormat = Literal["parquet", "json", "csv"]
_LOOK_SECONDS = 1.0
"""Seconds between two looks at a sink's directory that is followed."""
Extra = Literal["drop", "refuse"]
Missing = Literal["null", "refuse"]
log = logging.getLogger(__name__)
PASS_OVER = '; repair it, or give the source on_error="skip" or "dead_letter"'


@dataclass(frozen=True)
class Files(Reader[RowT_co]):
    """Files in a directory. `follow` waits for more; otherwise the source ends with what is there."""

    path: str
    format: FileFormat | Literal["text"]
    schema: Schema[RowT_co] | None = None
    follow: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    by_name: bool = False
    """Order files by name alone: for directories whose names were made in order."""
    _: KW_ONLY
    passes_over: bool = False
    """Whether rows that cannot be read are reported and passed over: where `on_error` of the source says so."""
    on_error: OnError = "fail"
    extra: Extra = "drop"
    """Whether fields that the schema does not have are left out, or make a row (CSV, Parquet: a file) unreadable."""
    missing: Missing = "null"
    """Whether fields without a value are null, or make a row unreadable unless they were declared optional."""
    opens = True

    @property
    def strict(self) -> bool:  # type: ignore[override]
        return self.missing == "refuse"

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return self.follow

    @property
    def directory(self) -> str:  # type: ignore[override]
        return self.path

    @property
    def by_columns(self) -> bool:  # type: ignore[override]
        return self.format == "parquet"

    def row_type(self, source: str) -> RowType | None:
        if self.schema is None:
            return row_type(self._infer_schema(source), source)
        declared = row_type(self.schema, source)
        if declared is not None and self.format in ("json", "csv"):
            refuse_types(self.format, declared.schema, source)
        return declared

    def feed(
        self, source: str, clock: Callable[[], float], *, aligned: bool = False, counted: RowType | None = None
    ) -> Feed:
        return FileFeed(self, source, aligned=aligned, counted=counted)

    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        assert row is not None
        declared, given = row, 0
        for piece in retried_pieces(
            lambda: self._read(declared, split, source), f"source {source!r}: reading", str(split.path)
        ):
            given += piece.positions.shape[-1]
            yield piece
        if split.rows is not None and given < split.rows:
            raise _changed(source, split.path, f"of rows {split.start} to {split.stop} it has {given}")

    def passing_over(self) -> Reader:
        return replace(self, passes_over=True)

    def spans(self, path: str | None, field: str, kind: pa.DataType, source: str) -> list[Span]:
        if path is None or self.format != "parquet" or self.passes_over:
            return []  # rows that cannot be read have no values, whatever statistics say
        try:
            what = f"source {source!r}: reading the statistics of"
            return retried(lambda: row_group_spans(path, field, kind), what, path)
        except (pa.ArrowInvalid, StorageError):
            return []  # reading it says what is wrong

    def count(self, row: RowType, path: str, source: str) -> int:
        """Count the rows of a text file, as they are read later."""
        return sum(len(piece.positions) for piece in self._read(row, Split(0, 0, 0, path), source))

    def _read(self, row: RowType, split: Split, source: str) -> Iterator[Piece]:
        assert split.path is not None
        try:
            with self._open(split.path) as file:
                if self.format == "parquet":
                    known = row.names if self.extra == "refuse" else None
                    yield from read_parquet(row, file, split, source, passes_over=self.passes_over, known=known)
                else:
                    yield from self._read_lines(row, file, split)
        except FileNotFoundError:
            raise _gone(source, split.path) from None
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and (self.format != "parquet" or not blames_content(error, split.path)):
                raise
            reason = str(error).splitlines()[0]
            if not self.passes_over:
                raise SourceError(
                    f"source {source!r}: the file {split.path} cannot be read as {self.format}: {reason}{PASS_OVER}"
                ) from None
            # How many rows there would be is not known unless they were counted before.
            stop = split.stop or 1
            yield unreadable_rows(row, split, range(split.start, stop), 0, Unreadable(split.path, reason, ""))

    def _read_lines(self, row: RowType, file: Any, split: Split) -> Iterator[Piece]:
        """Read rows of a text file. Those before the split are read again: nothing else tells where a row begins."""
        at, stop = 0, split.stop or None
        for block in self._rows_of_text(row, file, str(split.path)):
            if block.unreadable and not self.passes_over:
                (why,) = block.unreadable.values()
                raise pa.ArrowInvalid(f"{why.where}: {why.reason}")
            count = block.columns.num_rows
            low, high = max(split.start - at, 0), count if stop is None else min(stop - at, count)
            at += count
            if low < high:
                unreadable = {
                    number - low: Unreadable(f"{split.path}, {why.where}", why.reason, why.text)
                    for number, why in block.unreadable.items()
                    if low <= number < high
                }
                columns, start = block.columns.slice(low, high - low), at - count + low - split.start
                yield Piece(split.positions(start, high - low), columns, None, unreadable=unreadable)
            if stop is not None and at >= stop:
                break

    def _open(self, path: str) -> Any:
        return open_path(path) if self.format == "parquet" else open_text(path)

    def _rows_of_text(self, row: RowType, file: Any, path: str) -> Iterator[TextRows]:
        """Read a text file; one that is compressed and damaged has one row more, which stands for the rest of it."""
        try:
            options = {**self.options, "extra": self.extra, "may_lack": row.may_lack}
            yield from read_text(self.format, options, row.schema, file, lambda table: fit_table(row, table))
        except OSError as error:
            if not is_damaged(error, path):
                raise
            why = Unreadable("the rest of it", str(error).splitlines()[0], "")
            yield TextRows(nulls(row.schema, 1), {0: why})

    def _infer_schema(self, source: str) -> pa.Schema:
        listing = f"source {source!r}: listing"
        listed = retried(lambda: list_files(self.path), listing, self.path)
        files = sorted(listed, key=lambda f: (f.modified, f.path))
        if not files and not retried(lambda: exists(self.path), listing, self.path):
            where = "" if "://" in self.path else f" (looked in {os.getcwd()})"
            raise FlowError(
                f"source {source!r}: there is no directory {self.path!r}{where}; make it, or, to wait for its first "
                f"file with follow=True, give schema="
            )
        if not files:
            raise FlowError(
                f"source {source!r}: there are no files in {self.path!r} to take the schema from; give schema=, "
                f"or put the first file there"
            )
        path = files[0].path
        try:
            with self._open(path) as file:
                if self.format == "parquet":
                    return pq.read_schema(file)
                if self.format == "csv" and not self.options.get("header", True):
                    raise FlowError(f"source {source!r}: a CSV without header needs schema=")
                return first_schema(self.format, self.options, file)
        except (pa.ArrowException, OSError) as error:
            raise FlowError(
                f"source {source!r}: {path} cannot be read as {self.format}: {str(error).splitlines()[0]}; "
                f"give schema=, or repair the file"
            ) from None


@dataclass(frozen=True)
class SinkFiles(Files[RowT_co]):
    """The directory of a sink.

    As a source it has the visible files, in order. Read by itself it has all that is committed: iterate over it for
    dicts, or take `batches()`, `table()` or `to_pandas()`.
    """

    def reader(self) -> SinkReader:
        """Return what gives each row once, and, asked again, those that were committed since."""
        from penstock.store.sink_rows import SinkReader

        declared = None if self.schema is None else row_type(self.schema, self.path)
        return SinkReader(
            self.path, header=self.options.get("header"), schema=None if declared is None else declared.schema
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return what is committed, in order; with `follow`, also what is committed later, without an end."""
        reader = self.reader()
        while True:
            yield from reader.read()
            if not self.follow:
                return
            time.sleep(_LOOK_SECONDS)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            yield from batch.to_pylist()

    def table(self) -> pa.Table:
        """Return all that is committed as an Arrow table."""
        tables = [pa.Table.from_batches([batch]) for batch in replace(self, follow=False).batches()]
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def to_pandas(self) -> Any:
        """Return all that is committed as a pandas DataFrame."""
        return self.table().to_pandas()

    def row_type(self, source: str) -> RowType | None:
        """Refuse a directory whose order or fields its names would have to tell."""
        from penstock.store.sink_rows import list_sink

        if any(list_sink(self.path).units.keys() - {""}):
            raise FlowError(
                f"source {source!r}: {self.path} has partitions, which have an order each and none together; read one "
                f"of them with ps.read.{self.format}(), with order_by="
            )
        return super().row_type(source)


class FileFeed(Feed):
    """Takes the files of a directory.

    `aligned` slices end with a row group, and may have more rows than they were asked for: what is cut inside of one
    is decoded twice. With the type of the rows, `counted`, text files are counted when they are first seen, and cut by
    row like Parquet; otherwise they are taken whole.
    """

    adds_up = True

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
        self._done: dict[str, Stamp] = {}
        """The same of those that were taken, as far as this process knows."""
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
        return {"seen": sorted(self._seen), "taken": [], **self._partial()}

    def exhausted(self) -> bool:
        return not self._reader.follow and not self._waiting

    def close(self) -> None:
        self._waiting = []

    def _offset(self, splits: list[Split]) -> Json:
        return {"taken": [s.path for s in splits if s.path in self._seen], **self._partial()}

    def _partial(self) -> Json:
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
            raise _changed(self._source, path, f"its size and time were {known}, and are {now}")

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
        self._tell_changed(listed)
        files = [file for file in listed if file.path not in self._seen]
        if self._began is not None and all(file.path != self._began for file in files):
            raise SourceError(
                f"source {self._source!r}: the file {self._began} is gone, of which {self._next_row} rows were "
                f"processed; restore it, or start with a new checkpoint"
            )
        stamps = {file.path: file.stamp for file in files}
        if self._began in self._stamps:
            self._check(self._began, self._stamps[self._began], stamps[self._began])
        self._stamps = stamps
        # A file that an earlier epoch began comes first, whatever its time.
        files.sort(key=lambda f: (f.path != self._began, 0 if self._reader.by_name else f.modified, f.path))
        self._waiting = [(file.path, self._row_groups(file.path)) for file in files]
        # Files without rows are not looked at again.
        self._seen.update(path for path, ends in self._waiting if ends is not None and not sum(ends))
        self._waiting = [(path, ends) for path, ends in self._waiting if path not in self._seen]
        self._began = None

    def _tell_changed(self, listed: Iterable[Found]) -> None:
        """Warn of files that were written to after their rows were taken: what was added is never read."""
        before, self._done = self._done, {file.path: file.stamp for file in listed if file.path in self._seen}
        for path, stamp in self._done.items():
            if before.get(path, self._stamps.get(path, stamp)) != stamp:
                log.warning(
                    "source %r: the file %s has changed after its rows were taken, and is not read again; write new "
                    "rows to a new file, elsewhere, and move it in when it is complete",
                    self._source,
                    path,
                )

    def _row_groups(self, path: str) -> list[int] | None:
        if self._reader.format != "parquet":
            if self._counted is None:
                return None
            if path not in self._known:
                kind, what = self._counted, f"source {self._source!r}: counting the rows of"
                return [retried(lambda: self._reader.count(kind, path, self._source), what, path)]
            return [self._known[path]]
        try:
            return retried(lambda: self._ends(path), f"source {self._source!r}: reading", path)
        except pa.ArrowInvalid as error:
            if self._reader.passes_over:
                return [1]  # reading it says what is wrong, in the place of its first row
            raise SourceError(
                f"source {self._source!r}: the file {path} cannot be read as parquet: "
                f"{str(error).splitlines()[0]}; remove it, or write it elsewhere and move it in when it is "
                f"complete"
            ) from None

    def _ends(self, path: str) -> list[int]:
        try:
            return row_group_ends(path)
        except FileNotFoundError:
            raise _gone(self._source, path) from None


def _counted_rows(splits: Iterable[Split]) -> int | None:
    counts = [split.rows for split in splits]
    return None if None in counts else sum(count or 0 for count in counts)


def _changed(source: str, path: str | None, how: str) -> SourceError:
    return SourceError(
        f"source {source!r}: the file {path} has changed since its rows were counted: {how}; put it back as it was, "
        f"or start with a new checkpoint"
    )


def _gone(source: str, path: str) -> SourceError:
    return SourceError(
        f"source {source!r}: the file {path} is gone; it was there when the epoch was planned, so restore it, or start "
        f"with a new checkpoint"
    )
