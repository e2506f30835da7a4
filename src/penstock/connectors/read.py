"""Say where rows come from. A reader (`interfaces.py`) describes; the engine reads.

The order of a source without `order_by` is its own: for directories the files by modification time and then
name, rows as they stand in the file; for items their index; for a batch DataFrame its partitions and rows; for a
streaming one what Spark's stream tells, such as Kafka's topic, partition and offset; for a socket the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, get_args

import pyarrow as pa

from penstock.annotated import makers
from penstock.connectors.files import Extra, FileFormat, Files, Missing, SinkFiles
from penstock.connectors.frame import Frame
from penstock.connectors.interfaces import Reader
from penstock.connectors.paths import absolute, path_given
from penstock.connectors.sources import Generated, Items, Rate, Socket
from penstock.errors import FlowError
from penstock.operators.base import OnError
from penstock.rows.row_types import OutT, Returned, Schema


class DataFrame(Protocol):
    """A Spark DataFrame, streaming or not."""

    @property
    def isStreaming(self) -> bool:
        """Whether it goes on."""


Readable: TypeAlias = Reader[OutT] | DataFrame | Iterable[Returned[OutT]]
"""What `flow.source` takes: a reader, or what it makes one of."""


def parquet(
    path: str,
    *,
    schema: Schema[OutT] | None = None,
    follow: bool = False,
    extra: Extra = "drop",
    missing: Missing = "null",
    on_error: OnError = "fail",
) -> Files[OutT]:
    """Read a directory (or file) of Parquet; `extra` and `missing` as for JSON, of the columns of a file."""
    where = path_given(path, "ps.read.parquet")
    return _files(where, "parquet", schema, follow, {}, extra=extra, missing=missing, on_error=on_error)


def json(
    path: str,
    *,
    schema: Schema[OutT] | None = None,
    follow: bool = False,
    extra: Extra = "drop",
    missing: Missing = "null",
    on_error: OnError = "fail",
) -> Files[OutT]:
    """Read a directory (or file) of JSON lines.

    A field that the schema does not have is left out, or with `extra="refuse"` makes the row one that cannot be read.
    A field without a value has its default, or null; with `missing="refuse"` it must have a value, unless it is
    declared with a default or with None. What becomes of rows that cannot be read, `on_error` says; that of the source
    counts more.
    """
    return _files(
        path_given(path, "ps.read.json"), "json", schema, follow, {}, extra=extra, missing=missing, on_error=on_error
    )


def csv(
    path: str,
    *,
    schema: Schema[OutT] | None = None,
    follow: bool = False,
    header: bool = True,
    delimiter: str = ",",
    extra: Extra = "drop",
    missing: Missing = "null",
    on_error: OnError = "fail",
) -> Files[OutT]:
    """Read a directory (or file) of CSV; `extra` and `missing` as for JSON, of the columns of a file and their values.

    An empty text is a value.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise FlowError(f'ps.read.csv: delimiter={delimiter!r}; give one character, such as ";"')
    options = {"header": header, "delimiter": delimiter}
    return _files(
        path_given(path, "ps.read.csv"), "csv", schema, follow, options, extra=extra, missing=missing, on_error=on_error
    )


def _files(
    path: str,
    format: FileFormat,
    schema: Schema[OutT] | None,
    follow: bool,
    options: dict[str, Any],
    **rows: Any,
) -> Files[OutT]:
    for option, allowed in (("extra", Extra), ("missing", Missing), ("on_error", OnError)):
        if rows[option] not in get_args(allowed):
            known = " or ".join(f'"{each}"' for each in get_args(allowed))
            raise FlowError(f"ps.read.{format}: {option}={rows[option]!r}; use {known}")
    return Files(path, format, schema, follow, options, **rows)


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
    listing = list_sink(where)
    options = {"header": listing.header if header is None else header, "delimiter": ",", "own": True}
    declared = schema if schema is not None or listing.units.keys() - {""} else listing.schema
    return SinkFiles(where, listing.format, declared, follow, options, by_name=True)  # type: ignore[arg-type]


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
