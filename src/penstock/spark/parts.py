"""Sinks inside a task: write one slice of an epoch's rows, in order, where the driver will make them visible."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import FlowError, OperatorError
from penstock.graph import Node
from penstock.ingress.paths import locate
from penstock.operators.base import Sink
from penstock.pe.chunk import Chunk
from penstock.read import FileFormat
from penstock.rows import RowType, infer_row_type
from penstock.spark.spec import EpochSpec
from penstock.write import Directory, FrameCallback

SUFFIX = {"parquet": "parquet", "json": "json", "csv": "csv"}


@dataclass(frozen=True)
class Part:
    """What a task did for one slice of a sink."""

    sink: str
    slice: int
    rows: int
    payload: bytes | None = None
    """The rows themselves, for sinks on the driver: a list of Arrow streams or pickled lists."""
    schema: bytes | None = None
    """The schema that was found, for rows that are not declared."""


def staging(writer: Directory, epoch: int, fence: int) -> str:
    """Return where an epoch's part files are written before they are made visible."""
    return f"{writer.path}/_penstock/staging/epoch={epoch:09d}.{fence}"


def frame_staging(checkpoint: str, sink: str, epoch: int, fence: int) -> str:
    """Return where an epoch's rows wait for a function of (DataFrame, epoch)."""
    return f"{checkpoint}/frames/{sink}/epoch={epoch:09d}.{fence}"


def part_name(number: int, form: FileFormat) -> str:
    """Return the name of the file of a slice."""
    return f"part-{number:05d}.{SUFFIX[form]}"


def write_part(node: Node, number: int, chunks: Iterator[Chunk], row: RowType | None, spec: EpochSpec) -> Part:
    """Write one slice of a sink's rows."""
    operator = node.operator
    assert isinstance(operator, Sink)
    if isinstance(operator.writer, Directory):
        return _write_file(
            node,
            number,
            chunks,
            row,
            spec,
            staging(operator.writer, spec.epoch, spec.fence),
            operator.writer.format,
            operator.writer.header,
        )
    if isinstance(operator.writer, FrameCallback):
        where = frame_staging(spec.checkpoint, node.name, spec.epoch, spec.fence)
        return _write_file(node, number, chunks, row, spec, where, "parquet", True)
    payloads, rows = [], 0
    for chunk in chunks:
        payloads.append(pickle.dumps(chunk.get_rows()) if row is None else _ipc(chunk.get_columns()))
        rows += len(chunk)
    return Part(node.name, number, rows, pickle.dumps(payloads))


def read_payload(part: Part, row: RowType | None) -> Iterator[list[Any]]:
    """Read the rows of a part that came to the driver."""
    for payload in pickle.loads(part.payload or pickle.dumps([])):
        if row is None:
            yield pickle.loads(payload)
        else:
            yield row.decode(pa.ipc.open_stream(payload).read_next_batch())


def _ipc(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


def _write_file(
    node: Node,
    number: int,
    chunks: Iterator[Chunk],
    row: RowType | None,
    spec: EpochSpec,
    where: str,
    form: FileFormat,
    header: bool,
) -> Part:
    system, directory = locate(where)
    system.create_dir(directory, recursive=True)
    target = f"{directory}/{part_name(number, form)}"
    # Each attempt writes a file of its own; the rename picks one, and they are alike.
    temporary = f"{directory}/.part-{number:05d}.{uuid.uuid4().hex}"
    rows, found = 0, None
    writer: _FileWriter | None = None
    known = _known_schema(node, spec)
    try:
        for chunk in chunks:
            batch, found = _columns(node, chunk, row, known if found is None else found)
            if writer is None:
                writer = _FileWriter(system, temporary, form, batch.schema, header)
            writer.write(batch)
            rows += len(chunk)
    finally:
        if writer is not None:
            writer.close()
    if rows == 0:
        return Part(node.name, number, 0)
    if system.type_name == "local":
        os.replace(temporary, target)
    else:
        system.move(temporary, target)
    schema = None if row is not None or found is None else found.serialize().to_pybytes()
    return Part(node.name, number, rows, schema=schema)


def _known_schema(node: Node, spec: EpochSpec) -> pa.Schema | None:
    data = spec.sink_schemas.get(node.name)
    return None if data is None else pa.ipc.read_schema(pa.py_buffer(data))


def _columns(
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
        return RowType(known, "record").encode(plain), known
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


class _FileWriter:
    """Write record batches to one file."""

    def __init__(self, system: Any, path: str, form: FileFormat, schema: pa.Schema, header: bool) -> None:
        self._form = form
        self._out = system.open_output_stream(path)
        if form == "parquet":
            self._writer: Any = pq.ParquetWriter(
                self._out, schema, compression="zstd", compression_level=1, use_dictionary=_dictionary_columns(schema)
            )
        elif form == "csv":
            self._writer = pa.csv.CSVWriter(self._out, schema, write_options=pa.csv.WriteOptions(include_header=header))
        else:
            self._writer = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._form == "parquet":
            self._writer.write_batch(batch)
        elif self._form == "csv":
            self._writer.write(batch)
        else:
            self._out.write(_json_lines(batch))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
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
