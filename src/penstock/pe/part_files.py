"""Write rows to part files: Parquet, JSON lines or CSV."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import FlowError, OperatorError
from penstock.graph import Node
from penstock.ingress.retries import remove_quietly
from penstock.pe.chunk import Chunk
from penstock.read import FileFormat
from penstock.row_types import infer_row_type
from penstock.rows import RowType

GROUP_ROWS = 131_072
"""Rows of a row group of Parquet, at least, but for the last one."""


def part_name(number: int, form: FileFormat) -> str:
    """Return the name of the file of a slice."""
    return f"part-{number:05d}.{form}"


def sink_columns(
    node: Node, chunk: Chunk, row: RowType | None, known: pa.Schema | None
) -> tuple[pa.RecordBatch, pa.Schema]:
    """Return a chunk's columns; where the rows are not declared, by the schema that the first rows gave."""
    if row is not None:
        return chunk.get_columns(), row.schema
    rows = chunk.get_rows()
    plain = [_as_dict(item) for item in rows]
    if known is None:
        guess = infer_row_type(plain)
        if guess is None or None in plain:
            raise FlowError(
                f"sink {node.name!r}: rows such as {rows[0]!r} have no fields to write; return dicts, or declare "
                f"the row type with an annotation or schema="
            )
        known = guess.schema
    try:
        return RowType(known, "record").lenient().encode(plain), known
    except Exception as error:
        above = node.inputs[0].node
        raise OperatorError(
            above,
            f"{error}; the type was taken from the first rows that reached sink {node.name!r}, so "
            f"declare it with an annotation or schema=",
            "",
            repr(rows[0]),
        ) from None


def _as_dict(row: Any) -> dict[str, Any] | None:
    if isinstance(row, dict):
        return row
    fields = getattr(row, "_fields", None)
    if fields is not None:
        return dict(zip(fields, row, strict=True))
    return dict(vars(row)) if hasattr(row, "__dataclass_fields__") else None


class FileWriter:
    """Write record batches to one file, which is made with the first of them, and removed again where writing fails.

    So is the directory around it: where there are no rows, nothing is left behind.
    """

    def __init__(self, system: Any, path: str, form: FileFormat, header: bool) -> None:
        self._system, self._path, self._form, self._header = system, path, form, header
        self._out: Any = None
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        """What is to be one row group: many small ones take longer to write, and to read."""
        self._rows = 0

    def __enter__(self) -> FileWriter:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        if self._out is None:
            self._open(batch.schema)
        if self._form == "parquet":
            self._waiting.append(batch)
            self._rows += batch.num_rows
            if self._rows >= GROUP_ROWS:
                self._write_group()
        elif self._form == "csv":
            self._writer.write(batch)
        else:
            self._out.write(_json_lines(batch))

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

    def _open(self, schema: pa.Schema) -> None:
        self._system.create_dir(os.path.dirname(self._path), recursive=True)
        self._out = self._system.open_output_stream(self._path)
        if self._form == "parquet":
            self._writer = pq.ParquetWriter(
                self._out, schema, compression="zstd", compression_level=1, use_dictionary=_dictionary_columns(schema)
            )
        elif self._form == "csv":
            options = pa.csv.WriteOptions(include_header=self._header)
            self._writer = pa.csv.CSVWriter(self._out, schema, write_options=options)

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
