"""Sinks of a flow that runs in this process: in order, batch by batch.

Directories look as the Spark engine writes them: files that appear whole, once they are large or old enough. Until then
rows wait in memory, and, where there are many, in hidden files. Nothing is kept about the run, so a directory that
holds rows of another one is refused.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.clock import waiting_time
from penstock.connectors.directories import sink_directories
from penstock.connectors.joined_files import join_files
from penstock.connectors.part_files import SinkBatches, write_parts
from penstock.connectors.paths import locate
from penstock.connectors.retries import retried
from penstock.connectors.write import Callback, Console, Directory, FrameCallback, Memory, refuse_file, refuse_strangers
from penstock.errors import FlowError
from penstock.plan.graph import SinkNode
from penstock.plan.plan import Plan
from penstock.rows.chunk import Chunk
from penstock.rows.records import Row, RowType
from penstock.store.documents import Json
from penstock.store.objects import LocalStore
from penstock.store.publication import Publication, last_visible, rolls_of
from penstock.store.retention import retention_of
from penstock.store.rolling import OWN, Target, staged_name

MOST_BYTES = 64_000_000
"""Rows that are kept in memory before they are written to a hidden file, in bytes."""


def writer_of(node: SinkNode) -> Any:
    """Return what a sink's rows go to."""
    return node.operator.writer


class LocalOutputs:
    """The sinks of one run."""

    def __init__(self, engine: str, clock: Callable[[], float] = waiting_time) -> None:
        self.results: dict[str, list[Row]] = {}
        self._engine, self._clock = engine, clock
        self._writers: dict[str, Any] = {}
        self._lock = threading.Lock()

    def add(self, plan: Plan) -> None:
        """Open the sinks of a plan that are not open yet."""
        sink_directories(plan)  # refuses what cannot be
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
    """Collect rows, write them to hidden parts, join these, and rename them into place."""

    def __init__(self, node: SinkNode, writer: Directory, declared: RowType | None, clock: Callable[[], float]) -> None:
        system, path = locate(writer.path)
        if system.type_name != "local":
            raise FlowError(f"sink {node.name!r}: this engine writes to local directories only, not to {writer.path}")
        refuse_file(node.name, writer)
        self._store = LocalStore(path, owner=f"sink {node.name!r}")
        names = self._store.names("", hidden=True)
        refuse_strangers(node.name, writer, names)
        if last_visible(self._store):
            raise FlowError(
                f"sink {node.name!r}: {writer.path} holds the rows of another run, and this engine cannot go on with "
                f"it; remove it, or write elsewhere"
            )
        self._name, self._writer = node.name, replace(writer, path=path)
        self._columns = SinkBatches(node, declared, None, writer)
        # Another run may have found the directory empty at the same time: each writes to places of its own.
        self._run = uuid.uuid4().int >> 66
        self._epoch, self._bytes = 0, 0
        self._batches: list[pa.RecordBatch] = []
        """Rows that are not written yet: a part is written as often as it takes."""
        self._waiting: dict[str, Json] = {}
        self._retention = retention_of(node.name, self._writer)
        self._publication = Publication(
            {path: self._store}, {node.name: Target.of(self._writer)}, join_files, clock=clock
        )

    def write(self, chunk: Chunk) -> None:
        """Add rows."""
        batch = self._columns.encode(chunk)
        self._publication.note(self._name)
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= min(MOST_BYTES, self._writer.full):
            self._write_part()

    def is_due(self) -> bool:
        """Tell whether there are rows that should be seen by now."""
        waiting = self._waiting or ({self._name: {"parts": []}} if self._batches else {})
        return self._publication.has_due(waiting, 0.0)

    def appear(self) -> None:
        """Show what there is."""
        self._write_part()
        staged = self._publication.stage(self._waiting, self._epoch, self._run, None)
        for roll in rolls_of(staged).values():
            retried(partial(self._show, roll), f"sink {self._name!r}: writing", self._writer.path)
            for name in roll["used"]:
                self._store.delete(name)
            if self._retention is not None:
                self._retention.apply(self._store, self._epoch, lambda: None)

    def _write_part(self) -> None:
        if not self._batches:
            return
        self._epoch += 1
        where = f"{self._writer.path}/{staged_name(self._epoch, self._run)}"
        files = write_parts(self._name, self._writer, where, 0, lambda: self._batches)
        kept = {"path": self._writer.path, "format": self._writer.format, "header": self._writer.header}
        self._publication.add(
            self._waiting, self._epoch, self._run, {self._name: (kept, [(*file, 0) for file in files])}
        )
        self._batches, self._bytes = [], 0

    def _show(self, roll: Json) -> None:
        """Give the files their names, none of which may be there: another run would have written it."""
        hidden = [target for _, target in roll["moves"] if target.startswith(OWN)]
        for source, target in roll["moves"]:
            if target not in hidden and self._store.exists(target) and self._store.exists(source):
                raise self._taken(target)
            self._store.move(source, target)
        if roll["target"]:
            try:
                os.rename(self._store.path(roll["source"]), self._store.path(roll["target"]))
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise self._taken(roll["target"]) from None

    def _taken(self, target: str) -> FlowError:
        return FlowError(
            f"sink {self._name!r}: another run writes to {self._writer.path}, and has just written "
            f"{self._store.path(target)}; give each run a directory of its own"
        )
