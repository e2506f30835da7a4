"""What goes from one level to the next: envelopes, each with one Arrow batch of rows for one task.

One form serves every edge, so that Spark shuffles a few large rows instead of many small ones and never sees the user's
types. An envelope travels as a frame, which is bytes: one record of an RDD, or in a row of a DataFrame with its task.

Where all tasks are on one machine, rows go by a file, of which Spark moves only the name. Through Spark each byte would
be copied half a dozen times and compressed: with a million rows per epoch that was a third of all processor time. A
file is a task's own, so that one that runs twice does no harm; the driver removes all of an epoch together.
"""

from __future__ import annotations

import io
import pickle
import struct
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.kernels.marks import Steps
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.records import RowType

ALIGNED = 64
"""Arrow wants its buffers at multiples of so many bytes."""
LEAST_BYTES = 1 << 16
"""What is shorter goes through Spark, which is no slower then."""


@dataclass(frozen=True)
class FilePart:
    """Where a batch of rows is, as an Arrow stream."""

    path: str
    offset: int
    length: int


class SharedFile:
    """What one task has for others."""

    def __init__(self, directory: str | None) -> None:
        """Without a directory everything goes through Spark."""
        self._path = None if directory is None else f"{directory}/{uuid.uuid4().hex}"
        self._file: Any = None

    def put(self, batch: pa.RecordBatch) -> pa.RecordBatch | FilePart:
        """Write a batch; it comes back if it is short, or cannot be written."""
        if self._path is None or batch.nbytes < LEAST_BYTES:
            return batch
        try:
            if self._file is None:
                self._file = pa.OSFile(self._path, "wb")
            offset = -(-self._file.tell() // ALIGNED) * ALIGNED
            self._file.write(bytes(offset - self._file.tell()))
            with pa.ipc.new_stream(self._file, batch.schema) as writer:
                writer.write_batch(batch)
            return FilePart(self._path, offset, self._file.tell() - offset)
        except OSError:  # no room: Spark may have some elsewhere
            self.close()
            self._path = None
            return batch

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


class RowsLost(Exception):
    """Report rows of another task that are gone: the epoch is to be run again, whatever they were read for."""


class MappedFiles:
    """Files of others, each mapped once."""

    def __init__(self) -> None:
        self._maps: dict[str, Any] = {}

    def read(self, part: FilePart) -> pa.Buffer:
        """Return what was written; it is mapped, not copied."""
        try:
            if part.path not in self._maps:
                self._maps[part.path] = pa.memory_map(part.path, "r")
            found = self._maps[part.path]
            found.seek(part.offset)
            return found.read_buffer(part.length)
        except OSError as error:  # which where a sink's rows are written would count as an error of the sink
            raise RowsLost(f"the rows of another task are gone: {error}; does something tidy up there?") from error


SCHEMA = pa.schema([("task", pa.int32()), ("frame", pa.binary())])
DDL = "task int, frame binary"
_ROWS_KEY = b"penstock.rows"
_HEADER = struct.Struct("<iiiiq8x")
"""Level, target, edge, kind and position; its length keeps the payload aligned."""

_FILE = struct.Struct("<qq")
"""Offset and length of a payload in a file, whose path follows."""

Content: TypeAlias = bytes | pa.Buffer | pa.RecordBatch
Payload: TypeAlias = Content | FilePart
"""Bytes, where they are in a file, or a batch that is written as Arrow IPC when the envelope leaves its process."""


class Kind(IntEnum):
    """What an envelope holds."""

    DATA = 0
    MARK = 1
    REPORT = 2
    WAKE = 3
    """Nothing: it makes sure that the task runs, because Spark does not call Python for a task without rows."""
    FILE = 4
    """Data that is in a file: in frames alone."""


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
    buffer, ends = _joined([part for each in envelopes for part in _parts(each)])
    offsets = pa.py_buffer(np.array(ends[::2], np.int32))
    frames = pa.Array.from_buffers(pa.binary(), len(envelopes), [None, offsets, buffer])
    tasks = pa.array([each.target % next_tasks for each in envelopes], pa.int32())
    return pa.RecordBatch.from_arrays([tasks, frames], schema=SCHEMA)


def _joined(payloads: list[Content]) -> tuple[pa.Buffer, list[int]]:
    """Write payloads one after the other in one buffer: each row is copied once, and memory is asked for once.

    Returns where each of them ends, too, after a 0.
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


def as_buffer(payload: Content) -> pa.Buffer:
    return _joined([payload])[0] if isinstance(payload, pa.RecordBatch) else pa.py_buffer(payload)


def size_of(payload: Content) -> int:
    return int(payload.nbytes) if isinstance(payload, pa.RecordBatch) else len(payload)


def _room(payload: Content) -> int:
    """Return enough bytes for a payload; for a batch its rows, and room for the schema and the padding."""
    if not isinstance(payload, pa.RecordBatch):
        return len(payload)
    schema = payload.schema.serialize()
    return int(pa.ipc.get_record_batch_size(payload)) + len(schema) + 1024


def from_batch(batch: pa.RecordBatch) -> list[Envelope]:
    """Read envelopes; payloads are views into the batch."""
    return [from_frame(frame.as_buffer()) for frame in batch.column(1)]


def _parts(envelope: Envelope) -> tuple[bytes, Content]:
    payload, kind = envelope.payload, envelope.kind
    if isinstance(payload, FilePart):
        payload, kind = _FILE.pack(payload.offset, payload.length) + payload.path.encode(), Kind.FILE
    return _HEADER.pack(envelope.level, envelope.target, envelope.edge, kind, envelope.position), payload


def to_frame(envelope: Envelope) -> memoryview:
    return memoryview(_joined([*_parts(envelope)])[0])


def from_frame(frame: bytes | pa.Buffer) -> Envelope:
    """Read an envelope; its payload is a view of the bytes."""
    level, target, edge, kind, position = _HEADER.unpack_from(frame)
    payload = pa.py_buffer(frame)[_HEADER.size :]
    if kind == Kind.FILE:
        offset, length = _FILE.unpack_from(payload)
        part = FilePart(bytes(payload)[_FILE.size :].decode(), offset, length)
        return Envelope(level, target, edge, Kind.DATA, position, part)
    return Envelope(level, target, edge, Kind(kind), position, payload)


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


def unpack(payload: Content, row: RowType | None) -> tuple[Chunk, Ints | None]:
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


MEMORY_BYTES = 64 << 20

Place = Any
"""A payload in memory, or (offset, length) in the file."""


class Spool:
    """Envelopes of one task. A shuffle delivers in any order, so the first row may come last."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit, self._held = limit, 0
        self._file: IO[bytes] | None = None
        self._map: Any = None
        self._shared = MappedFiles()
        self.data: dict[int, list[tuple[int, Place]]] = {}
        """For each edge, the first position and the place of each run."""
        self.marks: list[tuple[int, bytes]] = []

    def add(self, envelope: Envelope) -> None:
        place: Place = envelope.payload
        if envelope.kind == Kind.MARK:
            self.marks.append((envelope.edge, bytes(place)))
            return
        if envelope.kind == Kind.WAKE:
            return
        if not isinstance(place, FilePart):
            size = size_of(place)
            if self._held + size > self._limit:
                place = self._spill(as_buffer(place))
            else:
                self._held += size
        self.data.setdefault(envelope.edge, []).append((envelope.position, place))

    def seal(self) -> None:
        """Say that all is there; runs can be read from now on."""
        if self._file is not None:
            self._file.flush()
            self._map = pa.memory_map(self._file.name, "r")

    def read(self, place: Place) -> Content:
        """Return a payload; one in a file is mapped, not copied."""
        if isinstance(place, FilePart):
            return self._shared.read(place)
        if not isinstance(place, tuple):
            return place
        offset, length = place
        self._map.seek(offset)
        return self._map.read_buffer(length)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self, payload: Any) -> tuple[int, int]:
        if self._file is None:
            self._file = tempfile.NamedTemporaryFile(prefix="penstock-spool-")  # noqa: SIM115
        offset = -(-self._file.tell() // ALIGNED) * ALIGNED
        self._file.seek(offset)
        self._file.write(payload)
        return offset, len(payload)
