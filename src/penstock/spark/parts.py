"""Sinks inside a task: write one slice of an epoch's rows, in order, where the driver will make them visible."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.csv

from penstock.graph import SinkNode
from penstock.ingress.paths import locate
from penstock.ingress.retries import retried
from penstock.pe.chunk import Chunk
from penstock.pe.failures import Failure
from penstock.pe.part_files import FileWriter, part_name, sink_columns
from penstock.read import FileFormat
from penstock.rows import RowType
from penstock.spark.stages import EpochSpec
from penstock.store.keeper import FRAMES
from penstock.store.objects import sync_file
from penstock.store.publication import staged_name
from penstock.timing import Ticks
from penstock.write import Directory, FrameCallback


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


StateBlock = tuple[str, int, bool, int, int, Ticks | None]
"""(operator, shard, whole, bytes, keys, next timer)."""


@dataclass
class TaskReport:
    """What a task tells the driver; those of all tasks added up are what the epoch did."""

    parts: list[Part] = field(default_factory=list)
    state: list[tuple[str, list[StateBlock]]] = field(default_factory=list)
    marks: dict[str, dict[int, Ticks]] = field(default_factory=dict)
    """The highest mark of each part of a source that had rows."""
    rows_in: dict[str, int] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)
    _: KW_ONLY
    retried: dict[str, int] = field(default_factory=dict)
    timed_out: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    timings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: TaskReport) -> None:
        """Take in what another task tells, or the same one later."""
        self.parts += other.parts
        self.state += other.state
        self.failures += other.failures
        for source, parts in other.marks.items():
            mine = self.marks.setdefault(source, {})
            for part, mark in parts.items():
                mine[part] = max(mark, mine.get(part, mark))
        for name in ("rows_in", "rows_out", "passed_over", "retried", "timed_out"):
            total = getattr(self, name)
            for operator, rows in getattr(other, name).items():
                total[operator] = total.get(operator, 0) + rows


def staging(writer: Directory, epoch: int, fence: int) -> str:
    """Return where an epoch's part files are written before they are made visible."""
    return f"{writer.path}/{staged_name(epoch, fence)}"


def frame_staging(sink: str, epoch: int, fence: int) -> str:
    """Return where an epoch's rows wait for a function of (DataFrame, epoch), below the checkpoint."""
    return f"{FRAMES}/{sink}/epoch={epoch:09d}.{fence}"


def write_part(
    node: SinkNode, number: int, chunks: Callable[[], Iterator[Chunk]], row: RowType | None, spec: EpochSpec
) -> Part:
    """Write one slice of a sink's rows; `chunks` gives them from the beginning each time that it is called."""
    operator = node.operator
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
        where = f"{spec.checkpoint}/{frame_staging(node.name, spec.epoch, spec.fence)}"
        return _write_file(node, number, chunks, row, spec, where, "parquet", True)
    payloads, rows = [], 0
    for chunk in chunks():
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
    node: SinkNode,
    number: int,
    chunks: Callable[[], Iterator[Chunk]],
    row: RowType | None,
    spec: EpochSpec,
    where: str,
    form: FileFormat,
    header: bool,
) -> Part:
    name = part_name(number, form)

    def write() -> Part:
        # Each attempt writes a file of its own; the rename picks one, and they are alike.
        temporary = f".part-{number:05d}.{uuid.uuid4().hex}"
        return _write_once(node, number, chunks(), row, spec, where, temporary, name, form, header)

    return retried(write, f"sink {node.name!r}: writing", f"{where}/{name}")


def _write_once(
    node: SinkNode,
    number: int,
    chunks: Iterator[Chunk],
    row: RowType | None,
    spec: EpochSpec,
    where: str,
    temporary: str,
    name: str,
    form: FileFormat,
    header: bool,
) -> Part:
    system, directory = locate(where)
    temporary, target = f"{directory}/{temporary}", f"{directory}/{name}"
    rows, found = 0, None
    known = _known_schema(node, spec)
    with FileWriter(system, temporary, form, header) as writer:
        for chunk in chunks:
            batch, found = sink_columns(node, chunk, row, known if found is None else found)
            writer.write(batch)
            rows += len(chunk)
    if rows == 0:
        return Part(node.name, number, 0)
    if system.type_name == "local":
        os.replace(temporary, target)
        sync_file(target)  # the name is synced by the driver, once for all parts, before it is used
    else:
        system.move(temporary, target)
    schema = None if row is not None or found is None else found.serialize().to_pybytes()
    return Part(node.name, number, rows, schema=schema)


def _known_schema(node: SinkNode, spec: EpochSpec) -> pa.Schema | None:
    data = spec.sink_schemas.get(node.name)
    return None if data is None else pa.ipc.read_schema(pa.py_buffer(data))
