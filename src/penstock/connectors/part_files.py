"""Write rows to part files (Parquet, JSON lines or CSV; of one partition each, where a sink has partitions), and join
these to larger files, in their order."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.connectors.directory import Directory, check_fields, partitions
from penstock.connectors.files import FileFormat
from penstock.connectors.paths import locate, open_path, sync_file
from penstock.connectors.retries import remove_quietly, retried
from penstock.errors import FlowError, OperatorError
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk
from penstock.rows.records import RowType
from penstock.rows.row_types import infer_row_type
from penstock.rows.values import row_fields

GROUP_ROWS = 131_072
"""Rows of a row group of Parquet, at least, except the last one."""
PIECE = 1 << 22
"""Bytes of text that are copied at once."""


def part_name(number: int, form: FileFormat) -> str:
    return f"part-{number:05d}.{form}"


def format_of(schema: pa.Schema) -> int:
    """Return a number that tells the fields of files apart that may be joined from those that may not."""
    return zlib.crc32(str(schema.remove_metadata()).encode())


class SinkBatches:
    """The rows of a sink as columns, and the schema that they turn out to have: where it is not declared, the one that
    is known from before, or else that of the first rows."""

    def __init__(self, node: Node, row: RowType | None, known: pa.Schema | None, writer: Directory) -> None:
        self._node, self._row, self._known, self._writer = node, row, known, writer
        self.schema: pa.Schema | None = None

    def read(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """Return the columns, from the first row on."""
        self.schema = None
        for chunk in chunks:
            yield self.encode(chunk)

    def encode(self, chunk: Chunk) -> pa.RecordBatch:
        schema = self._schema_of(chunk) if self.schema is None else self.schema
        columns = chunk.get_columns() if self._row is not None else self._undeclared(chunk.get_rows(), schema)
        if self.schema is None:
            check_fields(self._node.name, self._writer, columns.schema)
            self.schema = schema
        return columns

    def _schema_of(self, chunk: Chunk) -> pa.Schema:
        if self._row is not None or self._known is not None:
            return self._known if self._row is None else self._row.schema
        rows = chunk.get_rows()
        plain = [row_fields(row) for row in rows]
        guess = None if None in plain else infer_row_type(plain)
        if guess is None:
            raise FlowError(
                f"sink {self._node.name!r}: rows such as {rows[0]!r} have no fields to write; return dicts, or declare "
                f"the row type with an annotation or schema="
            )
        return guess.schema

    def _undeclared(self, rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
        try:
            return RowType(schema, "record").lenient().encode([row_fields(row) for row in rows])
        except Exception as error:
            problem = (
                f"{error}; the type was taken from the first rows that reached sink {self._node.name!r}, so declare it "
                f"with an annotation or schema="
            )
            raise OperatorError(self._node.inputs[0].node, problem, "", repr(rows[0])) from None


def write_parts(
    sink: str, writer: Directory, where: str, number: int, batches: Callable[[], Iterable[pa.RecordBatch]]
) -> list[tuple[str, int, int]]:
    """Write rows to one file, or one for each partition, below a directory; return names, rows and bytes.

    `batches` gives the rows from the beginning each time that it is called. Without rows there is no file.
    """
    name = part_name(number, writer.format)

    def write(label: str, some: Callable[[], Iterable[pa.RecordBatch]]) -> list[tuple[str, int, int]]:
        path = f"{label}/{name}" if label else name
        rows, size = retried(
            lambda: _write_part(f"{where}/{path}", some(), writer), f"sink {sink!r}: writing", f"{where}/{path}"
        )
        return [(path, rows, size)] if rows else []

    if not writer.partition_by:
        return write("", batches)
    labelled = partitions(batches(), writer.partition_by)
    return [file for label, some in labelled for file in write(label, partial(iter, some))]


def _write_part(path: str, batches: Iterable[pa.RecordBatch], writer: Directory) -> tuple[int, int]:
    """Write a file; return its rows and bytes.

    Each attempt writes a file of its own; the rename picks one, and they are alike.
    """
    system, target = locate(path)
    directory, _, name = target.rpartition("/")
    temporary, rows = f"{directory}/.{name.partition('.')[0]}.{uuid.uuid4().hex}", 0
    with FileWriter(system, temporary, writer.format, writer.header) as file:
        for batch in batches:
            file.write(batch)
            rows += batch.num_rows
    if rows == 0:
        return 0, 0
    if system.type_name != "local":
        system.move(temporary, target)
        return rows, int(system.get_file_info(target).size)
    os.replace(temporary, target)
    sync_file(target)  # the name is synced by the driver, once for all parts, before it is used
    return rows, os.stat(target).st_size


class FileWriter:
    """Write record batches to one file, which is made with the first of them, and removed again where writing fails.

    So is the directory around it: where there are no rows, nothing remains.
    """

    def __init__(self, system: Any, path: str, form: FileFormat, header: bool) -> None:
        self._system, self._path, self._form, self._header = system, path, form, header
        self._out: Any = None
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        """What becomes one row group: many small ones take longer to write, and to read."""
        self._rows = 0

    def __enter__(self) -> FileWriter:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        if self._out is None:
            self._open(batch.schema)
        if self._form == "parquet":
            self._waiting.append(batch)
            self._rows += batch.num_rows
            if self._rows >= GROUP_ROWS:
                self._write_group()
        elif self._form == "csv":
            self._write_csv(batch)
        else:
            self._out.write(_json_lines(batch))

    def write_text(self, text: bytes) -> None:
        """Add lines of text, as they are to stand in the file."""
        if self._out is None:
            self._create()
        self._out.write(text)

    def close(self) -> None:
        self._close(failed=False)

    def __exit__(self, kind: object, *_: object) -> None:
        """Close the file; one that failed is removed, because nothing is to see it."""
        try:
            self._close(failed=kind is not None)
        except Exception:
            if kind is None:
                remove_quietly(self._system, self._path)
                raise
        if kind is not None:
            remove_quietly(self._system, self._path)

    def _create(self) -> None:
        self._system.create_dir(os.path.dirname(self._path), recursive=True)
        self._out = self._system.open_output_stream(self._path)

    def _open(self, schema: pa.Schema) -> None:
        self._create()
        if self._form == "parquet":
            self._writer = pq.ParquetWriter(
                self._out, schema, compression="zstd", compression_level=1, use_dictionary=_dictionary_columns(schema)
            )
        elif self._form == "csv":
            options = pa.csv.WriteOptions(include_header=self._header)
            self._writer = pa.csv.CSVWriter(self._out, schema, write_options=options)

    def _write_csv(self, batch: pa.RecordBatch) -> None:
        if len(batch.schema) > 1 or not batch.column(0).null_count:
            self._writer.write(batch)
            return
        # The line of a null would be empty, and readers take an empty line for no row.
        for number, is_null in enumerate(batch.column(0).is_null().to_pylist()):
            self._out.write(b'""\n') if is_null else self._writer.write(batch.slice(number, 1))

    def _write_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows = [], 0

    def _close(self, failed: bool) -> None:
        try:
            if self._writer is not None:
                if self._waiting and not failed:
                    self._write_group()
                self._writer.close()
        finally:
            if self._form == "parquet" and self._writer is not None:
                self._writer.is_open = False  # it would try once more when it is collected, and print what happens
            if self._out is not None:
                self._out.close()


def _dictionary_columns(schema: pa.Schema) -> list[str] | bool:
    """Use dictionaries for text only: numbers of a stream seldom repeat, and trying costs more than it saves."""
    text = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    return text or False


def _json_lines(batch: pa.RecordBatch) -> bytes:
    import json

    encode = json.JSONEncoder(default=_json_value, separators=(",", ":")).encode
    return "".join(encode(row) + "\n" for row in batch.to_pylist()).encode()


def _json_value(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class JoinedFile:
    """A file that other files are added to; they must have the same fields."""

    def __init__(self, path: str, form: FileFormat, header: bool) -> None:
        """Make the file with the first rows. `header` tells whether files of CSV begin with one."""
        self._system, self._path = locate(path)
        self._form, self._header = form, header
        self._writer = FileWriter(self._system, self._path, form, header)
        self._files = 0

    def add(self, source: str) -> None:
        with open_path(source) as file:
            if self._form == "parquet":
                for batch in pq.ParquetFile(file).iter_batches():
                    self._writer.write(batch)
            else:
                self._copy(file)
        self._files += 1

    def _copy(self, file: Any) -> None:
        piece = file.read(PIECE)
        if self._form == "csv" and self._header and self._files:
            piece = after_header(piece)
        while piece:
            self._writer.write_text(piece)
            piece = file.read(PIECE)

    def close(self) -> int:
        """Finish the file, down to the disk; return its bytes."""
        self._writer.close()
        if self._system.type_name == "local":
            sync_file(self._path)  # its name is synced by others
        return int(self._system.get_file_info(self._path).size)

    def abandon(self) -> None:
        with suppress(Exception):
            self._writer.close()
        remove_quietly(self._system, self._path)


def join_files(kept: Mapping[str, Any], path: str) -> JoinedFile:
    """Begin a file that parts of the kind that is kept (format, header) are joined to."""
    return JoinedFile(path, kept["format"], kept["header"])


def after_header(text: bytes) -> bytes:
    """Return what is after the first line of CSV; the names in it may have ends of lines in quotes."""
    quoted = False
    for place, byte in enumerate(text):
        if byte == 0x22:
            quoted = not quoted
        elif byte == 0x0A and not quoted:
            return text[place + 1 :]
    return b""
