"""Say where rows come from. A reader (`reader.py`) describes; the engine reads.

The order of a source without `order_by` is its own: for directories the files by modification time and then
name, rows as they stand in the file; for items their index; for a batch DataFrame its partitions and rows; for a
streaming one what Spark's stream tells, such as Kafka's topic, partition and offset; for a socket the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from penstock.connectors.files import Files, SinkFiles
from penstock.connectors.frame import Frame
from penstock.connectors.generated import Generated, Rate
from penstock.connectors.items import Items
from penstock.connectors.paths import absolute, path_given
from penstock.connectors.reader import Reader
from penstock.connectors.socket import Socket
from penstock.errors import FlowError
from penstock.public import makers
from penstock.rows.row_types import OutT, Returned, Schema


class DataFrame(Protocol):
    """A Spark DataFrame, of whichever kind."""

    @property
    def isStreaming(self) -> bool:
        """Whether it goes on."""


Readable: TypeAlias = Reader[OutT] | DataFrame | Iterable[Returned[OutT]]
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
    return Generated(Rate(rows_per_second), schema, rows_per_second, rows)


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
    if isinstance(value, Reader):
        return value
    if hasattr(value, "isStreaming"):
        return frame(value)
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return Items(value)
    raise TypeError(
        f"{value!r} is no source; use ps.read.parquet(...), json, csv, text, items, generate, rate, socket, "
        f"frame, a Spark DataFrame or an iterable"
    )


def __dir__() -> list[str]:
    return makers(globals(), "Files|SinkFiles|Items|Generated|Socket|Frame")
