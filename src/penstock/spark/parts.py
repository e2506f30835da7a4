"""Sinks inside a task: write one slice of an epoch's rows, in order, where the driver will make them visible."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pyarrow as pa

from penstock.connectors.directory import Directory, PartFile
from penstock.connectors.part_files import SinkBatches, format_of, write_parts
from penstock.kernels.failures import Failure
from penstock.plan.graph import SinkNode
from penstock.rows.chunk import Chunk
from penstock.rows.records import RowType
from penstock.rows.timing import Ticks
from penstock.spark.stages import EpochSpec
from penstock.store.keeper import FRAMES
from penstock.store.rolling import staged_name


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
    files: tuple[PartFile, ...] = ()
    """For sinks that are directories, what was written."""


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
    forgotten: dict[str, int] = field(default_factory=dict)
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
        for name in ("rows_in", "rows_out", "passed_over", "retried", "timed_out", "forgotten"):
            total = getattr(self, name)
            for operator, rows in getattr(other, name).items():
                total[operator] = total.get(operator, 0) + rows


def frame_staging(sink: str, epoch: int, fence: int) -> str:
    """Return where an epoch's rows wait for a function of (DataFrame, epoch), below the checkpoint."""
    return f"{FRAMES}/{sink}/epoch={epoch:09d}.{fence}"


def write_part(
    node: SinkNode, number: int, chunks: Callable[[], Iterator[Chunk]], row: RowType | None, spec: EpochSpec
) -> Part:
    """Write one slice of a sink's rows; `chunks` gives them from the beginning each time that it is called."""
    writer = node.operator.writer
    if writer.files is not None:
        where = f"{spec.checkpoint}/{frame_staging(node.name, spec.epoch, spec.fence)}"
        if writer.directory is not None:
            where = f"{writer.directory.path}/{staged_name(spec.epoch, spec.fence)}"
        return _write_files(node, number, chunks, row, spec, writer.files, where)
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


def _write_files(
    node: SinkNode,
    number: int,
    chunks: Callable[[], Iterator[Chunk]],
    row: RowType | None,
    spec: EpochSpec,
    writer: Directory,
    where: str,
) -> Part:
    batches = SinkBatches(node, row, _known_schema(node, spec), writer)
    files = write_parts(node.name, writer, where, number, lambda: batches.read(chunks()))
    rows = sum(file[1] for file in files)
    schema = batches.schema if row is None and rows else None
    kind = 0 if schema is None else format_of(schema)
    return Part(
        node.name,
        number,
        rows,
        schema=None if schema is None else schema.serialize().to_pybytes(),
        files=tuple((name, count, size, kind) for name, count, size in files),
    )


def _known_schema(node: SinkNode, spec: EpochSpec) -> pa.Schema | None:
    data = spec.sink_schemas.get(node.name)
    return None if data is None else pa.ipc.read_schema(pa.py_buffer(data))
