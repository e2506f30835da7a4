"""How rows come in and leave: a reader describes a source, a writer a sink; engines know nothing else of them.

The driver asks a reader's *feed* for *slices*, which can be logged and taken again. A slice is cut into *splits*, each
of which any process can read, any number of times, in *pieces*.

Rows of a sink are written to files by tasks (`files`), which a commit makes visible (`directory`) or a function takes,
or they come to the driver, in order: to `deliver` before their epoch is committed, so at least once, and to the run's
results (`keeps`) after that, so exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.text import Unreadable
from penstock.errors import SourceError
from penstock.operators.base import OnError
from penstock.rows.records import RowType
from penstock.rows.row_types import RowT_co

if TYPE_CHECKING:
    from penstock.connectors.directory import Directory

BATCH_ROWS = 32_768
"""Rows that are read, and later run, at once: enough to spread the cost of a call, few enough for the cache."""
ROW_BITS = 33
"""A position inside a source is (ordinal of the file or split << ROW_BITS) + row."""

Positions = npt.NDArray[np.int64]
Json = dict[str, Any]


@dataclass(frozen=True)
class Split:
    """A piece of a source. What is used depends on the reader: a file and rows of it, a range, or rows themselves."""

    ordinal: int
    start: int = 0
    stop: int = 0
    path: str | None = None
    payload: bytes | None = None
    """Rows that only the driver has, pickled."""
    place: int | None = None
    """The place of the first row in its source, where that is not told by `ordinal` and `start`."""
    _: KW_ONLY
    part: int = 0
    """The part of the source that all rows are of; see `Piece`."""
    floor: tuple[int, ...] | None = None
    """The highest order_by values of its part before the split: rows below them are late."""

    def to_json(self) -> Json:
        """Describe the split for the log; rows are left out unless nothing else can bring them back."""
        return {"ordinal": self.ordinal, "start": self.start, "stop": self.stop, "path": self.path}

    @property
    def first(self) -> int:
        """The place of the first row in its source."""
        return (self.ordinal << ROW_BITS) + self.start if self.place is None else self.place

    @property
    def rows(self) -> int | None:
        """How many rows there are; None for a file that is not counted."""
        return None if self.path is not None and self.stop == 0 else self.stop - self.start

    def cut(self, start: int, stop: int) -> Split:
        """Return rows `start` to `stop`, counted as those of the split are; only for splits without a payload."""
        assert self.payload is None
        place = None if self.place is None else self.place + start - self.start
        return replace(self, start=start, stop=stop, place=place)

    def positions(self, start: int, count: int) -> Positions:
        """Return the places of rows, counted from the first of the split."""
        return np.arange(self.first + start, self.first + start + count, dtype=np.int64)


@dataclass(frozen=True)
class Slice:
    """What one source gives to one epoch: splits to read, and where the source stands after them."""

    splits: tuple[Split, ...]
    offset: Json
    """Enough to find the next rows after a restart."""
    logged: Json
    """Enough to read the same rows again after a crash."""
    rows: int | None
    """How many rows, where that is known."""
    backlog: int | None = None
    """How many rows are known to wait after this slice."""
    parts: tuple[int, ...] = ()
    """The parts of the source that are known by now, with rows in this slice or not; none where it has one part."""


@dataclass(frozen=True)
class Piece:
    """Rows of a split as they are read: columns, or Python rows where the type is not declared.

    A source has one or more *parts*: what writes at its own pace, such as a partition of Kafka. Each has a watermark,
    and that of the source is the lowest of them. A part is named by any 64-bit number that is the same in every epoch
    and every run (the partition's number; a hash of topic and partition where there are several topics).
    """

    positions: Positions
    """The place of each row in its source: one number per row, or a matrix with one row of numbers per component."""
    columns: pa.RecordBatch | None
    rows: list[Any] | None
    in_order: bool = True
    """Whether the positions are ascending."""
    parts: Positions | None = None
    """The part that each row belongs to; None where all rows are of the part 0, as in a source with one part."""
    unreadable: Mapping[int, Unreadable] = field(default_factory=dict)
    """Rows, by number, that cannot be read and are null in all columns, where the source goes on without them."""


class Feed(ABC):
    """A source as the driver sees it: which rows are new, and when there will be no more."""

    parted: ClassVar[bool] = False
    """Whether it has several parts, which are asked one by one where `order_by` puts all rows in one order."""
    adds_up: ClassVar[bool] = False
    """Whether an offset says only what is new; `full_offset` says all, which is more with every epoch."""

    @abstractmethod
    def poll(self, limit: int) -> Slice | None:
        """Return about `limit` new rows, or None where there are none now.

        Sources that do not go on give exactly as many while they have them, text files only where they are counted.
        """

    @abstractmethod
    def replay(self, logged: Json, offset: Json) -> Slice:
        """Return a slice that was logged before a crash."""

    @abstractmethod
    def restore(self, offset: Json) -> None:
        """Go on after what was committed; called for each offset that was logged, in order."""

    @abstractmethod
    def undo(self) -> None:
        """Go back to where the last poll began."""

    @abstractmethod
    def exhausted(self) -> bool:
        """Tell whether no more rows will come; asked after a poll that returned fewer than it was asked for."""

    def full_offset(self) -> Json:
        """Return an offset that needs no earlier one, where offsets add up."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """Let go of what is held open."""

    def parts(self) -> Mapping[int, Feed]:
        """Return the parts that are known by now, in their order; most sources are one."""
        return {0: self}

    def whole(self, slices: Mapping[int, Slice]) -> Slice:
        """Return what an epoch takes of the source, given what it takes of its parts."""
        return slices[0]

    def part_name(self, part: int) -> str:
        """Return what people call a part."""
        return f"part {part}"


class Reader(ABC, Generic[RowT_co]):
    """Where rows come from. One that is sent to workers must pickle."""

    goes_on: bool = False
    """Whether rows come as time passes: which source has the next one is not known. Others have all rows at hand."""
    has_parts: bool = False
    """Whether it has several watermarks, the lowest being its own: rows may be ahead of it although it has no slack."""
    own_width: int = 1
    """How many numbers tell the place of a row."""
    by_columns: bool = False
    """Whether reading only some columns is less work than reading all."""
    opens: bool = False
    """Whether each split is opened, which takes time: it pays to take many rows at once."""
    needs_spark: bool = False
    directory: str | None = None
    """The path of a directory all of whose files are read."""
    on_error: OnError = "fail"
    """What becomes of rows that cannot be read, unless the source says."""
    corrupt: str | None = None
    """The field in which rows that could not be read have what stands there, where that is told in such a way."""
    strict: bool = False
    """Whether fields must have a value that were declared without None and without a default."""

    @abstractmethod
    def row_type(self, source: str) -> RowType | None:
        """Find the type of the rows before anything runs; None where that is not known."""

    @abstractmethod
    def feed(
        self, source: str, clock: Callable[[], float], *, aligned: bool = False, counted: RowType | None = None
    ) -> Feed:
        """Return what the driver takes slices from; `clock` counts seconds.

        Where there are groups of rows that are decoded together, `aligned` slices end with one, and may have more rows
        than they were asked for. `counted`, the type of the rows, asks for slices that say how many rows they have.
        """

    @abstractmethod
    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        """Read a split in order, in any process."""

    def passing_over(self) -> Reader:
        """Return a reader that reports rows that cannot be read, and goes on; itself where all can be."""
        return self

    def for_workers(self) -> Reader:
        """Return what workers need of it to read splits."""
        return self

    def spans(self, path: str | None, field: str, kind: pa.DataType, source: str) -> list[Span]:
        """Return what is known, without reading, of the values that a field of some type has in a file."""
        return []


@dataclass(frozen=True)
class Span:
    """Rows [start, stop) of a file."""

    start: int
    stop: int
    ends: pa.Array | None
    """The least and the greatest value of the field; None where that is not known, or cannot be trusted."""


def read_split(reader: Reader, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
    for piece in reader.read(row, split, source):
        yield piece if split.part == 0 else replace(piece, parts=np.full(piece.positions.shape[-1], split.part))


def cut_splits(splits: tuple[Split, ...], pieces: int, *, whole: bool = False) -> list[list[Split]]:
    """Divide splits in about equal contiguous groups, one per task, cutting those whose rows are counted if need be."""
    counts = [split.rows for split in splits]
    if None in counts or any(split.payload for split in splits):
        groups: list[list[Split]] = [[] for _ in range(min(pieces, len(splits)))]
        for index, split in enumerate(splits):
            groups[index * len(groups) // len(splits)].append(split)
        return groups
    size = max(1, -(-sum(count or 0 for count in counts) // pieces))
    groups, room = [[]], size
    for split in splits:
        start = split.start
        while start < split.stop:
            stop = split.stop if whole else min(split.stop, start + room)
            groups[-1].append(split.cut(start, stop))
            room -= stop - start
            start = stop
            if room <= 0:
                groups.append([])
                room = size
    return [group for group in groups if group]


def nulls(schema: pa.Schema, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count, kind) for kind in schema.types], schema=schema)


def cast_table(row: RowType, table: pa.Table | pa.RecordBatch, source: str, where: str | None) -> Any:
    """Bring a table to the declared columns and types, or say which does not fit."""
    try:
        return fit_table(row, table)
    except pa.ArrowInvalid as error:
        place = f" in {where}" if where else ""
        raise SourceError(f"source {source!r}{place}: {error}") from None


def fit_table(row: RowType, table: pa.Table | pa.RecordBatch) -> Any:
    """Bring a table to the declared columns and types; raise `pa.ArrowInvalid` where one does not fit."""
    fitting = table if table.schema.equals(row.schema) else _cast(row, table)
    return with_values(row, fitting)


def with_values(row: RowType, table: pa.Table | pa.RecordBatch) -> Any:
    """Fill in defaults; raise `pa.ArrowInvalid` where a field has no value that must have one."""
    for name, value in row.defaults:
        index = table.schema.get_field_index(name)
        if index >= 0 and table.column(index).null_count:
            column, field = table.column(index), table.schema.field(index)
            filled = pc.if_else(column.is_valid(), column, pa.scalar(value, field.type))
            table = table.set_column(index, field, filled)
    for name in table.schema.names if row.required else ():
        if name in row.required and table.column(name).null_count:
            raise pa.ArrowInvalid(f"the field {name!r} has no value, and must have one")
    return table


def _cast(row: RowType, table: pa.Table | pa.RecordBatch) -> Any:
    columns = []
    for wanted in row.schema:
        index = table.schema.get_field_index(wanted.name)
        if index < 0 and wanted.name in row.may_lack:
            columns.append(pa.nulls(table.num_rows, wanted.type))
            continue
        if index < 0:
            raise pa.ArrowInvalid(
                f"there is no column {wanted.name!r}; the columns are {', '.join(table.schema.names)}"
            )
        column = table.column(index)
        try:
            columns.append(
                column
                if column.type == wanted.type
                else column.cast(wanted.type, safe=not pa.types.is_timestamp(wanted.type))
            )
        except pa.ArrowException as error:
            raise pa.ArrowInvalid(
                f"column {wanted.name!r} is of type {column.type} and does not fit {wanted.type}: "
                f"{str(error).splitlines()[0]}"
            ) from None
    make = pa.Table if isinstance(table, pa.Table) else pa.RecordBatch
    return make.from_arrays(columns, schema=row.schema)


@dataclass(frozen=True)
class Delivery:
    """The rows of an epoch, or of a batch in threads, for one sink; there are some."""

    number: int
    rows: Callable[[], list[Any]]
    frame: Callable[[], Any] = lambda: None
    """The rows as a Spark DataFrame, of a writer that has `files`."""
    title: str | None = None


class Writer:
    """Where rows go. One that is sent to workers must pickle."""

    needs_spark: bool = False
    keeps: bool = False
    """Whether the rows are the run's results."""

    @property
    def files(self) -> Directory | None:
        """How tasks write rows to files; None where rows come to the driver."""
        return None

    @property
    def directory(self) -> Directory | None:
        """Where files appear, exactly once, by the commit of their epoch; None where they do not."""
        return None

    def deliver(self, given: Delivery) -> None:
        """Take rows on the driver; again, with the same number, after a crash."""

    def for_workers(self) -> Writer:
        """Return what workers need of it to write."""
        return self


@dataclass(frozen=True)
class Memory(Writer):
    """Keep the rows; read them as `run.results[name]`."""

    keeps = True


@dataclass(frozen=True)
class Console(Writer):
    """Print rows on the driver, at most `limit` per epoch."""

    limit: int = 20

    def deliver(self, given: Delivery) -> None:
        rows = given.rows()
        if given.title is None:
            for row in rows[: self.limit]:
                print(row)
            return
        print(f"{given.title}: {len(rows)} rows")
        for row in rows[: self.limit]:
            print(f"  {row}")
        if len(rows) > self.limit:
            print(f"  ... {len(rows) - self.limit} more")


@dataclass(frozen=True)
class Callback(Writer):
    """Call a function on the driver with each epoch's rows, in order: `function(rows, epoch)`."""

    function: Callable[[list[Any], int], Any]

    def deliver(self, given: Delivery) -> None:
        self.function(given.rows(), given.number)

    def for_workers(self) -> Writer:
        return replace(self, function=_on_the_driver)


@dataclass(frozen=True)
class FrameCallback(Writer):
    """Call a function with each epoch's rows as a Spark DataFrame: `function(dataframe, epoch)`."""

    function: Callable[[Any, int], Any]
    needs_spark = True

    @property
    def files(self) -> Directory:
        from penstock.connectors.directory import Directory

        return Directory("", "parquet")

    def deliver(self, given: Delivery) -> None:
        self.function(given.frame(), given.number)

    def for_workers(self) -> Writer:
        return replace(self, function=_on_the_driver)


def _on_the_driver(rows: Any, epoch: int) -> None:
    raise AssertionError("callbacks are called on the driver only")
