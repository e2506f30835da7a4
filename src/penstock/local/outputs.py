"""Sinks of a flow that runs in this process: in order, batch by batch.

Directories look as the Spark engine writes them: one sub-directory an epoch, which appears whole. An epoch is then as
many batches as came in a second, or 100,000 rows. Nothing is kept about the run, so a directory that holds rows of
another one is refused.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.clock import monotonic
from penstock.errors import FlowError
from penstock.graph import SinkNode
from penstock.ingress.paths import locate
from penstock.ingress.retries import retried
from penstock.pe.chunk import Chunk
from penstock.pe.part_files import FileWriter, part_name, sink_columns
from penstock.plan import Plan
from penstock.rows import Row, RowType
from penstock.store.objects import LocalStore
from penstock.write import Callback, Console, Directory, FrameCallback, Memory, refuse_file, refuse_strangers

EPOCH_ROWS = 100_000
EPOCH_SECONDS = 1.0


def writer_of(node: SinkNode) -> Any:
    """Return what a sink's rows go to."""
    return node.operator.writer


class LocalOutputs:
    """The sinks of one run."""

    def __init__(self, engine: str, clock: Callable[[], float] = monotonic) -> None:
        self.results: dict[str, list[Row]] = {}
        self._engine, self._clock = engine, clock
        self._writers: dict[str, Any] = {}
        self._lock = threading.Lock()

    def add(self, plan: Plan) -> None:
        """Open the sinks of a plan that are not open yet."""
        for node in plan.sinks:
            if node.name not in self._writers:
                writer = self._open(plan, node)
                with self._lock:
                    self._writers[node.name] = writer
                    if isinstance(writer, Memory):
                        self.results[node.name] = []

    def _open(self, plan: Plan, node: SinkNode) -> Any:
        writer = writer_of(node)
        if isinstance(writer, FrameCallback):
            raise FlowError(
                f"sink {node.name!r} takes Spark DataFrames; with on={self._engine} use ps.write.parquet(), "
                f"memory(), console() or a callback of (rows, number)"
            )
        if isinstance(writer, Directory):
            declared = plan.nodes[node.inputs[0].node].types[node.inputs[0].index]
            return _DirectorySink(node, writer, declared, self._clock)
        return writer

    def publish(self, number: int, chunks: Mapping[str, Chunk | None]) -> dict[str, int]:
        """Write a batch; return the rows that each sink got."""
        with self._lock:
            counts = self._publish(number, chunks)
            self._show_what_is_due()
        return counts

    def tick(self) -> None:
        """Show what was written a while ago, though nothing new comes."""
        with self._lock:
            self._show_what_is_due()

    def _show_what_is_due(self) -> None:
        for writer in self._writers.values():
            if isinstance(writer, _DirectorySink) and writer.is_due():
                writer.appear()

    def _publish(self, number: int, chunks: Mapping[str, Chunk | None]) -> dict[str, int]:
        counts = {}
        for name, chunk in chunks.items():
            counts[name] = 0 if chunk is None else len(chunk)
            if chunk is None:
                continue
            writer = self._writers[name]
            if isinstance(writer, _DirectorySink):
                writer.write(chunk)
            elif isinstance(writer, Memory):
                self.results[name].extend(chunk.get_rows())
            elif isinstance(writer, Callback):
                writer.function(list(chunk.get_rows()), number)
            elif isinstance(writer, Console):
                for row in chunk.get_rows()[: writer.limit]:
                    print(row)
        return counts

    def close(self) -> None:
        """Make visible what was written."""
        for writer in list(self._writers.values()):
            if isinstance(writer, _DirectorySink):
                writer.appear()


class _DirectorySink:
    """Collect the rows of an epoch, write them to a part file, and rename it into place with the epoch's directory."""

    def __init__(self, node: SinkNode, writer: Directory, declared: RowType | None, clock: Callable[[], float]) -> None:
        self._system, self._path = locate(writer.path)
        if self._system.type_name != "local":
            raise FlowError(f"sink {node.name!r}: this engine writes to local directories only, not to {writer.path}")
        refuse_file(node.name, writer)
        names = LocalStore(self._path, owner=f"sink {node.name!r}").names("", hidden=True)
        if any(name.startswith("epoch=") for name in names):
            raise FlowError(
                f"sink {node.name!r}: {writer.path} holds the rows of another run, and this engine cannot go on with "
                f"it; remove it, or write elsewhere"
            )
        refuse_strangers(node.name, writer, names)
        self._node, self._writer, self._declared, self._clock = node, writer, declared, clock
        # Another run may have found the directory empty at the same time: each writes to a place of its own.
        self._staging = f"{self._path}/_penstock/staging/{uuid.uuid4().hex}"
        self._epoch, self._rows, self._began = 0, 0, 0.0
        self._batches: list[pa.RecordBatch] = []
        """The rows of the epoch under way: they are written at its end, as often as it takes."""
        self._schema: pa.Schema | None = None

    def write(self, chunk: Chunk) -> None:
        """Add rows."""
        batch, self._schema = sink_columns(self._node, chunk, self._declared, self._schema)
        if not self._batches:
            self._began = self._clock()
        self._batches.append(batch)
        self._rows += len(chunk)

    def is_due(self) -> bool:
        """Tell whether there are rows that should be seen by now."""
        waited = self._clock() - self._began
        return bool(self._batches) and (self._rows >= EPOCH_ROWS or waited >= EPOCH_SECONDS)

    def appear(self) -> None:
        """Write the epoch's file and show it."""
        if self._batches:
            target = f"{self._path}/epoch={self._epoch + 1:09d}"
            retried(lambda: self._write_epoch(target), f"sink {self._node.name!r}: writing", target)
            self._batches, self._rows, self._epoch = [], 0, self._epoch + 1

    def _write_epoch(self, target: str) -> None:
        form = self._writer.format
        with FileWriter(self._system, f"{self._staging}/{part_name(0, form)}", form, self._writer.header) as file:
            for batch in self._batches:
                file.write(batch)
        try:
            os.rename(self._staging, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise FlowError(
                f"sink {self._node.name!r}: another run writes to {self._writer.path}, and has written {target} just "
                f"now; give each run a directory of its own"
            ) from None
