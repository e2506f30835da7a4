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
from typing import Protocol

import pyarrow as pa

from penstock.clock import thread_time, waiting_time
from penstock.connectors.directory import Directory, refuse_file, refuse_strangers, sink_directories
from penstock.connectors.interfaces import Delivery, Writer
from penstock.connectors.part_files import SinkBatches, join_files, write_parts
from penstock.connectors.paths import locate
from penstock.connectors.retries import retried
from penstock.errors import FlowError
from penstock.order.primitives import EMPTY
from penstock.plan.graph import Node, SinkNode
from penstock.plan.plan import Plan
from penstock.rows.chunk import Chunk
from penstock.rows.records import Row, RowType
from penstock.store.objects import Json, LocalStore
from penstock.store.publication import Publication, last_visible, rolls_of
from penstock.store.rolling import OWN, Target, retention_of, staged_name
from penstock.threads.batch import Batch, Header
from penstock.threads.meters import Latencies
from penstock.threads.ports import Outputs
from penstock.threads.stations import Group, Station, Surroundings, offer

SINK_LATENCIES = 512
"""Batches whose latency a sink remembers: there may be many sinks."""


class SinkStation(Station):
    """Hand rows to the sink; the one that completes a batch publishes it, and what waited for it."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self.latencies = Latencies(SINK_LATENCIES)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        self.write(header, group[0])
        yield from ()

    def write(self, header: Header, chunk: Chunk | None) -> None:
        """Take the rows of a batch; one thread at a time, and batches come in order."""
        wall, cpu = self.around.clock(), thread_time()
        self.latencies.add(self.around.clock() - header.entered)
        complete = header.finish(self.name, chunk)
        if complete is not EMPTY:
            offer(self.around.published, header.number, (header, complete))
            for taken in self.around.published.drain():
                self.around.publish(taken)
        self.counts.add(
            batches=1,
            rows_in=0 if chunk is None else len(chunk),
            wall=self.around.clock() - wall,
            cpu=thread_time() - cpu,
        )


MOST_BYTES = 64_000_000
"""Rows that are kept in memory before they are written to a hidden file, in bytes."""


class LocalOutputs:
    """The sinks of one run."""

    def __init__(self, engine: str, clock: Callable[[], float] = waiting_time) -> None:
        self.results: dict[str, list[Row]] = {}
        self._engine, self._clock = engine, clock
        self._sinks: dict[str, _Sink] = {}
        self._lock = threading.Lock()

    def add(self, plan: Plan) -> None:
        """Open the sinks of a plan that are not open yet."""
        sink_directories(plan)  # refuses what cannot be
        for node in plan.sinks:
            if node.name not in self._sinks:
                sink = self._open(plan, node)
                with self._lock:
                    self._sinks[node.name] = sink

    def _open(self, plan: Plan, node: SinkNode) -> _Sink:
        writer = node.operator.writer
        if writer.needs_spark:
            raise FlowError(
                f"sink {node.name!r} takes Spark DataFrames; with on={self._engine} use ps.write.parquet(), "
                f"memory(), console() or a callback of (rows, number)"
            )
        if writer.directory is not None:
            declared = plan.row_type(node.inputs[0])
            return _DirectorySink(node, writer.directory, declared, self._clock)
        return _CalledSink(writer, self.results.setdefault(node.name, []) if writer.keeps else None)

    def publish(self, number: int, chunks: Mapping[str, Chunk | None]) -> dict[str, int]:
        """Write a batch; return the rows that each sink got."""
        with self._lock:
            for name, chunk in chunks.items():
                if chunk is not None:
                    self._sinks[name].write(chunk, number)
            self._show_what_is_due()
        return {name: 0 if chunk is None else len(chunk) for name, chunk in chunks.items()}

    def tick(self) -> None:
        """Show what was written a while ago, though nothing new comes."""
        with self._lock:
            self._show_what_is_due()

    def _show_what_is_due(self) -> None:
        for sink in self._sinks.values():
            if sink.is_due():
                sink.appear()

    def close(self) -> None:
        """Make visible what was written."""
        for sink in list(self._sinks.values()):
            sink.appear()


class _Sink(Protocol):
    """An open sink."""

    def write(self, chunk: Chunk, number: int) -> None:
        """Add the rows of a batch."""

    def is_due(self) -> bool:
        """Tell whether there are rows that should be seen by now."""

    def appear(self) -> None:
        """Show what there is."""


class _CalledSink:
    """Hand rows on at once."""

    def __init__(self, writer: Writer, results: list[Row] | None) -> None:
        self._writer, self._results = writer, results

    def write(self, chunk: Chunk, number: int) -> None:
        if self._results is not None:
            self._results.extend(chunk.get_rows())
        self._writer.deliver(Delivery(number, lambda: list(chunk.get_rows())))

    def is_due(self) -> bool:
        return False

    def appear(self) -> None:
        pass


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

    def write(self, chunk: Chunk, number: int) -> None:
        batch = self._columns.encode(chunk)
        self._publication.note(self._name)
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= min(MOST_BYTES, self._writer.full):
            self._write_part()

    def is_due(self) -> bool:
        waiting = self._waiting or ({self._name: {"parts": []}} if self._batches else {})
        return self._publication.has_due(waiting, 0.0)

    def appear(self) -> None:
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
