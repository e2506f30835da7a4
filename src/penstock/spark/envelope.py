"""What goes from one level to the next: envelopes, each with one Arrow batch of rows for one task.

One form serves every edge, so that Spark shuffles a few large rows instead of many small ones and never sees the user's
types. An envelope is a row of a DataFrame, or a frame: the bytes of one record of an RDD.
"""

from __future__ import annotations

import io
import pickle
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.pe.chunk import Chunk, Ints
from penstock.pe.marks import Steps
from penstock.rows import RowType

SCHEMA = pa.schema(
    [
        ("task", pa.int32()),
        ("level", pa.int32()),
        ("target", pa.int32()),
        ("edge", pa.int32()),
        ("kind", pa.int32()),
        ("position", pa.int64()),
        ("payload", pa.binary()),
    ]
)
DDL = "task int, level int, target int, edge int, kind int, position long, payload binary"
_ROWS_KEY = b"penstock.rows"
_HEADER = struct.Struct("<iiiiq8x")
"""Level, target, edge, kind and position; its length keeps the payload aligned."""

Payload: TypeAlias = bytes | pa.Buffer | pa.RecordBatch
"""Bytes, or a batch that is written as Arrow IPC when the envelope leaves its process."""


class Kind(IntEnum):
    """What an envelope holds."""

    DATA = 0
    MARK = 1
    META = 2
    ERROR = 3
    WAKE = 4
    """Nothing: it makes sure that the task runs, because Spark does not call Python for a task without rows."""


@dataclass(frozen=True)
class Envelope:
    """One row of a shuffle."""

    level: int
    """The level that it is for; one more than the last means the driver."""
    target: int
    """The task of that level."""
    edge: int
    """The edge whose rows these are; for marks the number of the source."""
    kind: Kind
    position: int
    """The first component of the first position, by which a task orders what it gets."""
    payload: Payload


def to_batch(envelopes: list[Envelope], next_tasks: int) -> pa.RecordBatch:
    """Write envelopes as a record batch, each addressed to a task of the next level, which may pass it on."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([e.target % next_tasks for e in envelopes], pa.int32()),
            pa.array([e.level for e in envelopes], pa.int32()),
            pa.array([e.target for e in envelopes], pa.int32()),
            pa.array([e.edge for e in envelopes], pa.int32()),
            pa.array([int(e.kind) for e in envelopes], pa.int32()),
            pa.array([e.position for e in envelopes], pa.int64()),
            _payload_column([e.payload for e in envelopes]),
        ],
        schema=SCHEMA,
    )


def _payload_column(payloads: list[Payload]) -> pa.Array:
    buffer, ends = _joined(payloads)
    offsets = pa.py_buffer(np.array(ends, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(payloads), [None, offsets, buffer])


def _joined(payloads: list[Payload]) -> tuple[pa.Buffer, list[int]]:
    """Write payloads one behind the other in one buffer: each row is copied once, and memory is asked for once.

    Returns where each of them ends, too, behind a 0.
    """
    buffer = pa.allocate_buffer(sum(map(_room, payloads)), resizable=True)
    sink = pa.FixedSizeBufferWriter(buffer)
    sink.set_memcopy_threads(1)
    ends = [0]
    for payload in payloads:
        if isinstance(payload, pa.RecordBatch):
            with pa.ipc.new_stream(sink, payload.schema) as writer:
                writer.write_batch(payload)
        else:
            sink.write(payload)
        ends.append(sink.tell())
    return buffer.slice(0, ends[-1]), ends


def as_buffer(payload: Payload) -> pa.Buffer:
    """Return a payload as bytes."""
    return _joined([payload])[0] if isinstance(payload, pa.RecordBatch) else pa.py_buffer(payload)


def size_of(payload: Payload) -> int:
    """Return the bytes of a payload."""
    return int(payload.nbytes) if isinstance(payload, pa.RecordBatch) else len(payload)


def _room(payload: Payload) -> int:
    """Return enough bytes for a payload; for a batch its rows, and room for the schema and the padding."""
    if not isinstance(payload, pa.RecordBatch):
        return len(payload)
    schema = payload.schema.serialize()
    return int(pa.ipc.get_record_batch_size(payload)) + len(schema) + 1024


def from_batch(batch: pa.RecordBatch) -> list[Envelope]:
    """Read envelopes; payloads are views into the batch."""
    _, levels, targets, edges, kinds, positions = (batch.column(i).to_pylist() for i in range(6))
    payloads = batch.column(6)
    return [
        Envelope(level, target, edge, Kind(kind), position, payloads[i].as_buffer())
        for i, (level, target, edge, kind, position) in enumerate(
            zip(levels, targets, edges, kinds, positions, strict=True)
        )
    ]


def to_frame(envelope: Envelope) -> memoryview:
    """Write an envelope as bytes."""
    header = _HEADER.pack(envelope.level, envelope.target, envelope.edge, envelope.kind, envelope.position)
    return memoryview(_joined([header, envelope.payload])[0])


def from_frame(frame: bytes) -> Envelope:
    """Read an envelope; its payload is a view of the bytes."""
    level, target, edge, kind, position = _HEADER.unpack_from(frame)
    return Envelope(level, target, edge, Kind(kind), position, pa.py_buffer(frame)[_HEADER.size :])


def pack(chunk: Chunk, shards: Ints | None) -> pa.RecordBatch:
    """Put a chunk, and the shard of each row where there is one, in one batch."""
    arrays: list[Any] = [pa.array(p) for p in chunk.positions]
    names = [f"p{i}" for i in range(len(arrays))]
    if chunk.times is not None:
        arrays.append(pa.array(chunk.times))
        names.append("time")
    if shards is not None:
        arrays.append(pa.array(shards.astype(np.uint16)))
        names.append("shard")
    metadata = None
    if chunk.type is None:
        metadata = {_ROWS_KEY: pickle_rows(chunk.get_rows())}
    else:
        columns = chunk.get_columns()
        arrays.extend(columns.columns)
        names.extend(f"c{i}" for i in range(columns.num_columns))
    schema = pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)], metadata)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def unpack(payload: Payload, row: RowType | None) -> tuple[Chunk, Ints | None]:
    """Read a chunk and the shards of its rows."""
    batch = payload if isinstance(payload, pa.RecordBatch) else pa.ipc.open_stream(payload).read_next_batch()
    names = batch.schema.names
    width = sum(name.startswith("p") for name in names)
    positions = [batch.column(i).to_numpy() for i in range(width)]
    at = width
    times = shards = None
    if at < len(names) and names[at] == "time":
        times = batch.column(at).to_numpy()
        at += 1
    if at < len(names) and names[at] == "shard":
        shards = batch.column(at).to_numpy().astype(np.int64)
        at += 1
    if row is None:
        rows = pickle.loads((batch.schema.metadata or {})[_ROWS_KEY])
        return Chunk(positions, times, None, None, rows), shards
    columns = pa.RecordBatch.from_arrays(batch.columns[at:], schema=row.schema)
    return Chunk(positions, times, row, columns), shards


def pack_steps(part: int, steps: Steps) -> bytes:
    """Write marks of a part of a source."""
    file = io.BytesIO(struct.pack("<q", part))
    file.seek(8)
    np.save(file, np.stack([*steps.positions, steps.values]), allow_pickle=False)
    return file.getvalue()


def unpack_steps(payload: pa.Buffer | bytes) -> tuple[int, Steps]:
    """Read marks, and the part whose they are."""
    file = io.BytesIO(bytes(payload))
    (part,) = struct.unpack("<q", file.read(8))
    matrix = np.load(file, allow_pickle=False)
    return part, Steps(list(matrix[:-1]), matrix[-1])


def pickle_rows(rows: list[Any]) -> bytes:
    """Pickle rows of no declared type; classes of the main program travel by name, with the shipped flow."""
    return pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
