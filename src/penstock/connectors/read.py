"""Say where rows come from. A reader describes; the engine reads.

A reader that `goes_on` has rows that come with time: nobody knows which source has the next one. All others have every
row at hand, so that several of them can take turns. One that `has_parts` has several watermarks, and its own is the
lowest: a row may be ahead of it even where the source has no slack.

The order of a source without `order_by` is its own: for directories the files by modification time and then
name, rows as they stand in the file; for items their index; for a batch DataFrame its partitions and rows; for a
streaming one what Spark's stream tells, such as Kafka's topic, partition and offset; for a socket the order of arrival.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias

import pyarrow as pa

from penstock.connectors.paths import absolute, path_given
from penstock.connectors.text import refuse_types
from penstock.errors import FlowError
from penstock.public import makers
from penstock.rows.records import RowType
from penstock.rows.row_types import OutT, Returned, RowT_co, Schema, infer_row_type, row_type

if TYPE_CHECKING:
    from penstock.store.sink_rows import SinkReader

FileFormat = Literal["parquet", "json", "csv"]
_SAMPLE = 1000
_LOOK_SECONDS = 1.0
"""How often one who follows a sink's directory looks."""


@dataclass(frozen=True)
class Files(Generic[RowT_co]):
    """Files in a directory. `follow` waits for more; otherwise the source ends with what is there."""

    has_parts: ClassVar[bool] = False
    path: str
    format: FileFormat | Literal["text"]
    schema: Schema[RowT_co] | None = None
    follow: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    by_name: bool = False
    """Order files by name alone: for directories whose names were made in order."""
    _: KW_ONLY
    passes_over: bool = False
    """Whether rows that cannot be read are told of and passed over; the source says so by `on_error`."""

    @property
    def goes_on(self) -> bool:
        """Tell whether rows come with time."""
        return self.follow


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
        found = [pa.Table.from_batches([batch]) for batch in replace(self, follow=False).batches()]
        return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})

    def to_pandas(self) -> Any:
        """Return all that is committed as a pandas DataFrame."""
        return self.table().to_pandas()

    def check(self, name: str) -> None:
        """Refuse a directory whose order or fields its names would have to tell."""
        from penstock.store.sink_rows import list_sink

        if any(list_sink(self.path).units.keys() - {""}):
            raise FlowError(
                f"source {name!r}: {self.path} has partitions, which have an order each and none together; read one "
                f"of them with ps.read.{self.format}(), with order_by="
            )


@dataclass(frozen=True)
class Items(Generic[RowT_co]):
    """A Python iterable. It is read again from its start after a restart, so it must give the same rows."""

    has_parts: ClassVar[bool] = False
    items: Iterable[Any]
    schema: Schema[RowT_co] | None = None
    passes_over: bool = False
    """See `Files`."""

    @property
    def goes_on(self) -> bool:
        """Tell whether rows come with time."""
        return False


@dataclass(frozen=True)
class Generated(Generic[RowT_co]):
    """Rows made by `function(start, stop) -> table` for a growing range of row numbers."""

    has_parts: ClassVar[bool] = False
    function: Callable[[int, int], pa.Table]
    schema: Schema[RowT_co]
    rows_per_second: float | None = None
    rows: int | None = None

    @property
    def goes_on(self) -> bool:
        """Tell whether rows come with time, at a rate or for ever."""
        return self.rows_per_second is not None or self.rows is None


@dataclass(frozen=True)
class Socket:
    """Lines of text from a TCP server. What an epoch takes is logged; a crash loses what was only received."""

    has_parts: ClassVar[bool] = False
    host: str
    port: int

    @property
    def goes_on(self) -> bool:
        """Tell whether rows come with time."""
        return True


@dataclass(frozen=True)
class Frame:
    """A Spark DataFrame: a streaming one is followed, a batch one is read once, in epochs."""

    frame: Any

    @property
    def streaming(self) -> bool:
        """Tell whether the DataFrame is a streaming one."""
        return bool(self.frame.isStreaming)

    @property
    def goes_on(self) -> bool:
        """Tell whether rows come with time."""
        return self.streaming

    @cached_property
    def places(self) -> Any:
        """Return how the rows of a streaming DataFrame are ordered."""
        from penstock.spark.places import find_places

        return find_places(self.frame)

    def collect(self) -> pa.Table:
        """Bring all rows of a batch DataFrame here."""
        return self.frame.toArrow()

    @property
    def has_parts(self) -> bool:
        """Tell whether rows are of several parts: partitions of Kafka."""
        return self.streaming and self.places.kind == "kafka"

    @property
    def own_width(self) -> int:
        """Return how many numbers tell a row's place; a batch DataFrame is read from files, where one will do."""
        return int(self.places.width) if self.streaming else 1


Reader = Files | Items | Generated | Socket | Frame


class DataFrame(Protocol):
    """A Spark DataFrame, of whichever kind."""

    @property
    def isStreaming(self) -> bool:
        """Whether it goes on."""


Readable: TypeAlias = (
    Files[OutT] | Items[OutT] | Generated[OutT] | Socket | Frame | DataFrame | Iterable[Returned[OutT]]
)
"""What `flow.source` takes: a reader, or what it makes one of."""


def parquet(path: str, *, schema: Schema[OutT] | None = None, follow: bool = False) -> Files[OutT]:
    """Read a directory (or file) of Parquet."""
    return Files(path_given(path, "ps.read.parquet"), "parquet", schema, follow)


def json(path: str, *, schema: Schema[OutT] | None = None, follow: bool = False) -> Files[OutT]:
    """Read a directory (or file) of JSON lines."""
    return Files(path_given(path, "ps.read.json"), "json", schema, follow)


def csv(
    path: str, *, schema: Schema[OutT] | None = None, follow: bool = False, header: bool = True, delimiter: str = ","
) -> Files[OutT]:
    """Read a directory (or file) of CSV."""
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise FlowError(f'ps.read.csv: delimiter={delimiter!r}; give one character, such as ";"')
    return Files(path_given(path, "ps.read.csv"), "csv", schema, follow, {"header": header, "delimiter": delimiter})


def text(path: str, *, follow: bool = False) -> Files:
    """Read a directory (or file) of lines of text; a row has the one field `value`, as Spark's text files have."""
    return Files(path_given(path, "ps.read.text"), "text", {"value": str}, follow)


def sink(
    path: str, *, schema: Schema[OutT] | None = None, follow: bool = False, header: bool | None = None
) -> SinkFiles[OutT]:
    """Read the directory of a sink: exactly what is committed, in order.

    As the source of a flow it gives the files that are visible. Read by itself (iterate over it, `table()`,
    `to_pandas()`, `batches()`) it also gives the rows that are committed and wait to be part of a file. `header` says
    whether files of CSV have one, where the directory does not tell.
    """
    from penstock.store.sink_rows import list_sink

    where = absolute(path_given(path, "ps.read.sink"))
    found = list_sink(where)
    options = {"header": found.header if header is None else header, "delimiter": ",", "own": True}
    declared = schema if schema is not None or found.units.keys() - {""} else found.schema
    return SinkFiles(where, found.format, declared, follow, options, by_name=True)  # type: ignore[arg-type]


def items(values: Iterable[Returned[OutT]], *, schema: Schema[OutT] | None = None) -> Items[OutT]:
    """Read a Python iterable: for tests and first steps."""
    return Items(values, schema)


def generate(
    function: Callable[[int, int], pa.Table],
    *,
    schema: Schema[OutT],
    rows_per_second: float | None = None,
    rows: int | None = None,
) -> Generated[OutT]:
    """Make rows by a function of the row numbers [start, stop); it must be deterministic.

    Without `rows_per_second` rows are made as fast as they are processed; without `rows` the source never
    ends.
    """
    return Generated(function, schema, rows_per_second, rows)


def rate(rows_per_second: float, *, rows: int | None = None) -> Generated:
    """Make rows (timestamp, value) at a steady rate: value counts from 0."""
    schema = {"timestamp": pa.timestamp("us", "UTC"), "value": pa.int64()}
    return Generated(_Rate(rows_per_second), schema, rows_per_second, rows)


@dataclass(frozen=True)
class _Rate:
    rows_per_second: float

    def __call__(self, start: int, stop: int) -> pa.Table:
        import numpy as np

        value = np.arange(start, stop, dtype=np.int64)
        ticks = (value * (1e6 / self.rows_per_second)).astype(np.int64)
        return pa.table({"timestamp": pa.array(ticks, pa.timestamp("us", "UTC")), "value": value})


def socket(host: str, port: int) -> Socket:
    """Read lines of text from a TCP server; a row has the one field `value`."""
    return Socket(host, port)


def frame(dataframe: Any) -> Frame:
    """Read a Spark DataFrame, streaming or batch."""
    if type(dataframe).__module__.startswith("pyspark.sql.connect"):
        raise TypeError(
            "the DataFrame is one of Spark Connect, which reaches neither Spark's context nor its workers; make it "
            "with a session of SparkSession.builder.master(...) instead of .remote(...), and unset SPARK_REMOTE"
        )
    return Frame(dataframe)


def as_reader(value: Any) -> Reader:
    """Take a reader as it is; wrap a DataFrame or an iterable."""
    if isinstance(value, (Files, Items, Generated, Socket, Frame)):
        return value
    if hasattr(value, "isStreaming"):
        return frame(value)
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return Items(value)
    raise TypeError(
        f"{value!r} is no source; use ps.read.parquet(...), json, csv, text, items, generate, rate, socket, "
        f"frame, a Spark DataFrame or an iterable"
    )


def reader_type(reader: Reader, name: str) -> RowType | None:
    """Find the row type of a source, before anything runs."""
    if isinstance(reader, SinkFiles):
        reader.check(name)
    if isinstance(reader, Socket):
        return row_type({"value": str}, name)
    if isinstance(reader, Frame):
        from penstock.spark.frames import frame_schema

        return row_type(frame_schema(reader.frame), name)
    if reader.schema is not None:
        declared = row_type(reader.schema, name)
        if declared is not None and isinstance(reader, Files) and reader.format in ("json", "csv"):
            refuse_types(reader.format, declared.schema, name)
        return declared
    if isinstance(reader, Files):
        from penstock.connectors.schemas import infer_schema

        return row_type(infer_schema(reader, name), name)
    if isinstance(reader, Items) and isinstance(reader.items, (list, tuple)):
        return infer_row_type(reader.items[:_SAMPLE])
    return None


def __dir__() -> list[str]:
    return makers(globals(), "Files|SinkFiles|Items|Generated|Socket|Frame")
