"""One task of one level: envelopes in, envelopes out.

Level 0 reads the sources. Every level after it gathers what was sent to it, runs its keyed operators and sinks over
the rows in order, takes what comes out through the operators without memory, and sends it on. Whatever goes wrong in
user code leaves as an error envelope, so that the driver can report the one at the smallest position.
"""

from __future__ import annotations

import dataclasses
import gc
import pickle
import time
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError, SourceError, operator_error
from penstock.graph import Edge, Node
from penstock.ingress.splits import Piece, read_split
from penstock.operators.base import Keyed, Sink, Source
from penstock.pe.chains import Chain
from penstock.pe.chunk import Chunk, Ints
from penstock.pe.failures import Failure, Failures
from penstock.pe.fitting import in_columns
from penstock.pe.keyed import KeyedRunner
from penstock.pe.marks import Steps, arrival, crossing, rises, watermark
from penstock.pe.merge import Run, merged
from penstock.pe.row_keys import key_shards
from penstock.pe.source_rows import end_mark, late_rows, source_chunk
from penstock.pe.stateless import run_stateless
from penstock.sequential import late_row_message
from penstock.spark.envelope import Envelope, Kind, pack, pack_steps, unpack, unpack_steps
from penstock.spark.parts import write_part
from penstock.spark.spec import EpochSpec
from penstock.spark.spool import Spool
from penstock.spark.stages import Stages
from penstock.spark.worker_state import CACHE, FileReader, OperatorShards, write_state


class Task:
    """One task: what it sends accumulates in an outbox, which is emptied as the task goes on."""

    def __init__(self, stages: Stages, spec: EpochSpec, level: int, task: int) -> None:
        self._stages, self._plan, self._spec = stages, stages.plan, spec
        self._level, self._task = level, task
        self._failures = Failures()
        self._outbox: list[Envelope] = []
        self._numbers = {id(edge): number for number, edge in enumerate(stages.edges)}
        self._rows_in: dict[str, int] = {}
        self._rows_out: dict[str, int] = {}
        self._load: dict[str, list[tuple[int, int, float]]] = {}
        self._seconds: dict[str, float] = {}

    def run(self, arriving: Iterable[Any]) -> Iterator[list[Envelope]]:
        """Run the task on lists of envelopes; at level 0 on numbers of splits, or batches of a DataFrame's rows."""
        steps = self._read_sources(arriving) if self._level == 0 else self._run_level(arriving)
        try:
            for _ in steps:
                yield from self._flush()
                gc.collect(0)  # automatic collection is off while a task runs: rows are gone by now, so this is quick
        except PenstockError as error:
            self._send(Kind.ERROR, pickle.dumps(Failure("", (), error)))
        except Exception as error:
            # Not the user's doing, so everything that helps to find it.
            problem = PenstockError(
                f"level {self._level}, task {self._task}: {type(error).__name__}: {error}\n{traceback.format_exc()}"
            )
            self._send(Kind.ERROR, pickle.dumps(Failure("", (), problem)))
        for failure in self._failures.fatal:
            self._send(Kind.ERROR, pickle.dumps(failure))
        self._send(Kind.META, pickle.dumps(self._counts()))
        yield from self._flush()

    # Level 0 ----------------------------------------------------------------------------------------------------

    def _read_sources(self, arriving: Iterable[int | pa.RecordBatch]) -> Iterator[None]:
        highest: tuple[int, ...] | None = None
        marks = dict(self._spec.marks)
        if self._task == 0:
            self._outbox += [
                Envelope(level, task, -1, Kind.WAKE, 0, b"")
                for level in range(1, self._stages.last + 1)
                for task in range(self._spec.tasks[level])
            ]
        for node, piece in self._pieces(arriving):
            assert isinstance(node.operator, Source)
            chunk = source_chunk(self._plan, node, piece, node.name in self._plan.timed)
            self._count(self._rows_in, node.name, len(chunk))
            if self._spec.floor is not None and node.operator.order_by:
                chunk = self._divert_late(node, chunk)
            if not len(chunk):
                continue
            if node.operator.order_by:
                top = chunk.position(len(chunk) - 1)[: len(node.operator.order_by)]
                highest = top if highest is None else max(highest, top)
            if chunk.times is not None and node.operator.time is not None:
                marks[node.name] = max(marks[node.name], self._send_marks(node, chunk))
            self._through(node, 0, chunk)
            yield
        self._send(Kind.META, pickle.dumps({"marks": marks, "highest": highest}))

    def _pieces(self, arriving: Iterable[int | pa.RecordBatch]) -> Iterator[tuple[Node, Piece]]:
        """Read the rows of this task: from splits that it reads itself, or from a DataFrame's batches."""
        from penstock.spark.frames import frame_pieces

        for each in arriving:
            if isinstance(each, int):
                for source, split in self._spec.splits[each]:
                    node = self._plan.nodes[source]
                    assert isinstance(node.operator, Source)
                    for piece in read_split(node.operator.reader, node.types[0], split, source):
                        yield node, piece
            else:
                yield from frame_pieces(self._plan, each)

    def _divert_late(self, node: Node, chunk: Chunk) -> Chunk:
        assert self._spec.floor is not None
        late = late_rows(chunk, self._spec.floor)
        if not late.any():
            return chunk
        if node.operator.on_error == "fail":
            index = int(np.flatnonzero(late)[0])
            error = SourceError(late_row_message(node.name, chunk.get_rows()[index]))
            self._failures.fatal.append(Failure(node.name, chunk.position(index), error))
        else:
            self._through(node, 1, chunk.select(np.flatnonzero(late)))
        return chunk.select(np.flatnonzero(~late))

    def _send_marks(self, node: Node, chunk: Chunk) -> int:
        """Send the marks that the rows of a chunk raise to every task that may fire on them; return the highest."""
        assert isinstance(node.operator, Source)
        assert chunk.times is not None
        times = chunk.times - node.operator.slack
        start = self._spec.marks[node.name]
        index = rises(times, start)
        top = max(start, int(times.max()))
        grids = self._stages.grids[node.name]
        # At an end operators ask for the watermark just before it, which is then needed exactly.
        if grids is not None and not self._spec.ends:
            index = index[crossing(times[index], start, grids)]
        if len(index):
            positions = [p[index] for p in chunk.positions]
            positions[-1] = positions[-1] - 1  # a mark stands just before its row
            payload = pack_steps(Steps(positions, times[index]))
            number = self._plan.sources.index(node)
            for level in self._stages.mark_levels[node.name]:
                for task in range(self._spec.tasks[level]):
                    self._outbox.append(Envelope(level, task, number, Kind.MARK, int(positions[0][0]), payload))
        return top

    # Higher levels ----------------------------------------------------------------------------------------------

    def _run_level(self, arriving: Iterable[list[Envelope]]) -> Iterator[None]:
        spool = Spool()
        try:
            for envelopes in arriving:
                for envelope in envelopes:
                    if envelope.level == self._level:
                        spool.add(envelope)
                    else:
                        self._outbox.append(envelope)
                yield
            spool.seal()
            files = FileReader(f"{self._spec.checkpoint}/state")
            shards: dict[str, OperatorShards] = {}
            for node in self._stages.entries(self._level):
                began = time.perf_counter()
                if isinstance(node.operator, Sink):
                    yield from self._run_sink(node, spool)
                else:
                    shards[node.name] = OperatorShards(node, self._spec, self._task, CACHE, files)
                    yield from self._run_keyed(node, spool, shards[node.name])
                self._seconds[node.name] = time.perf_counter() - began
            self._load = {name: found.load() for name, found in shards.items()}
            if not self._failures.fatal:
                name, blocks = write_state(f"{self._spec.checkpoint}/state", self._spec.epoch, shards)
                if name is not None:
                    written = [(b.operator, b.shard, b.full, len(b.data), b.keys, b.next_timer) for b in blocks]
                    self._send(Kind.META, pickle.dumps({"state": (name, written)}))
        finally:
            spool.close()

    def _runs(self, node: Node, spool: Spool) -> list[Run]:
        """Return the runs of rows that were sent to an operator."""
        runs = []
        for number, edge in enumerate(self._stages.edges):
            if edge.target == node.name:
                row = self._plan.nodes[edge.source.node].types[edge.source.index]
                runs += [
                    Run(position, edge.port, _Loader(spool, place, row))
                    for position, place in spool.data.get(number, ())
                ]
        return runs

    def _run_keyed(self, node: Node, spool: Spool, shards: OperatorShards) -> Iterator[None]:
        shape = self._plan.layout.shapes[node.name]
        runner = KeyedRunner(node, shape.width, self._spec.epoch, shards, self._failures)
        marks = arrival(shape.marks, self._steps(spool), self._spec.marks, shape.width)
        water = watermark(shape.marks, self._spec.marks)
        for group, bound in merged(self._runs(node, spool)):
            now, marks = marks.before(bound)
            parts = [(port, chunk, _shards(chunk)) for port, chunk in group]
            for port, out in runner.run(parts, now, water).items():
                self._through(node, port, out)
            water = int(now.values[-1]) if len(now) else water
            yield
        if len(marks):
            for port, out in runner.run([], marks, water).items():
                self._through(node, port, out)
            yield

    def _steps(self, spool: Spool) -> dict[str, Steps]:
        """Return the marks of all sources in this epoch, ends included."""
        found: dict[str, list[Steps]] = {}
        for number, payload in spool.marks:
            found.setdefault(self._plan.sources[number].name, []).append(unpack_steps(payload))
        for source in self._spec.ends:
            number = next(i for i, node in enumerate(self._plan.sources) if node.name == source)
            found.setdefault(source, []).append(end_mark(number, self._plan.layout.base))
        return {
            source: Steps(
                [np.concatenate([s.positions[i] for s in parts]) for i in range(len(parts[0].positions))],
                np.concatenate([s.values for s in parts]),
            )
            for source, parts in found.items()
        }

    def _run_sink(self, node: Node, spool: Spool) -> Iterator[None]:
        row = self._plan.nodes[node.inputs[0].node].types[node.inputs[0].index]
        runs = self._runs(node, spool)
        bounds = self._spec.slices[node.name]
        for number, owner in enumerate(self._spec.tables[node.name]):
            if owner != self._task:
                continue
            low = bounds[number - 1] if number else None
            high = bounds[number] if number < len(bounds) else None
            mine = [r for r in runs if (low is None or r.first >= low) and (high is None or r.first < high)]
            part = write_part(node, number, _ordered(mine), row, self._spec)
            self._count(self._rows_in, node.name, part.rows)
            self._send(Kind.META, pickle.dumps({"part": part}))
            yield

    # Between operators ------------------------------------------------------------------------------------------

    def _through(self, node: Node, port: int, chunk: Chunk) -> None:
        """Take rows through the operators without memory, to where they leave the task."""
        stack = [(node, port, chunk)]
        while stack:
            node, port, chunk = stack.pop()
            self._count(self._rows_out, node.name, len(chunk))
            for edge in self._plan.graph.outgoing[node.name]:
                if edge.source.index != port:
                    continue
                out = chunk
                if node.name in self._plan.layout.fanouts:
                    out = chunk.extended(np.full(len(chunk), edge.index, np.int64))
                target = self._plan.nodes[edge.target]
                if self._plan.is_cut(edge):
                    self._post(edge, target, out)
                    continue
                chain = self._stages.chains.get(target.name)
                fused = None if chain is None else self._run_chain(chain, out)
                if chain is not None and fused is not None:
                    stack.append((chain.nodes[-1], 0, fused))
                    continue
                self._count(self._rows_in, target.name, len(out))
                width = self._plan.layout.shapes[target.name].width
                for out_port, made in run_stateless(target, out.widened(width), self._failures).items():
                    stack.append((target, out_port, made))

    def _run_chain(self, chain: Chain, chunk: Chunk) -> Chunk | None:
        """Take rows through a chain at once; None where a row fails, so that each operator is to be run by itself."""
        found = chain.run(chunk)
        if found is None:
            return None
        made, left = found
        rows = len(chunk)
        for node, out in zip(chain.nodes, left, strict=True):
            self._count(self._rows_in, node.name, rows)
            if node is not chain.nodes[-1]:  # what leaves the last one is counted where it goes on
                self._count(self._rows_out, node.name, out)
            rows = out
        return made

    def _post(self, edge: Edge, target: Node, chunk: Chunk) -> None:
        """Send rows across a shuffle, each to the task of its shard or slice."""
        chunk = chunk.sorted()
        times = chunk.times if target.name in self._plan.timed else None
        source = self._plan.nodes[edge.source.node]
        chunk = in_columns(source, dataclasses.replace(chunk, times=times), self._failures)
        if not len(chunk):
            return
        if isinstance(target.operator, Sink):
            bounds = np.array(self._spec.slices[target.name], np.int64)
            slices = np.searchsorted(bounds, chunk.positions[0], "right")
            for number in range(len(bounds) + 1):
                low, high = np.searchsorted(slices, [number, number + 1], "left").tolist()
                if low < high:
                    self._envelope(edge, self._spec.tables[target.name][number], chunk.slice(low, high), None)
            return
        assert isinstance(target.operator, Keyed)
        table = np.array(self._spec.tables[target.name], np.int64)
        keys = target.operator.keys
        shards = np.zeros(len(chunk), np.int64) if keys is None else key_shards(keys[edge.port], chunk, len(table))
        tasks = table[shards]
        if (tasks == tasks[0]).all():
            self._envelope(edge, int(tasks[0]), chunk, shards)
            return
        for task in np.unique(tasks).tolist():
            index = np.flatnonzero(tasks == task)
            self._envelope(edge, task, chunk.select(index), shards[index])

    def _envelope(self, edge: Edge, task: int, chunk: Chunk, shards: Ints | None) -> None:
        try:
            payload = pack(chunk, shards)
        except Exception as error:
            node = self._plan.nodes[edge.source.node]
            problem = operator_error(
                node.name,
                PenstockError(
                    f"its rows cannot be sent on: {error}; declare their type with an annotation or schema=, or return "
                    f"values that can be pickled"
                ),
                chunk.get_rows()[0],
            )
            self._failures.fatal.append(Failure(node.name, chunk.position(0), problem))
            return
        self._outbox.append(
            Envelope(
                self._stages.levels[edge.target],
                task,
                self._numbers[id(edge)],
                Kind.DATA,
                int(chunk.positions[0][0]),
                payload,
            )
        )

    def _send(self, kind: Kind, payload: bytes) -> None:
        """Send something to the driver."""
        self._outbox.append(Envelope(self._stages.last + 1, self._task, -1, kind, 0, payload))

    def _flush(self) -> Iterator[list[Envelope]]:
        if self._outbox:
            outbox, self._outbox = self._outbox, []
            yield outbox

    def _count(self, counter: dict[str, int], name: str, rows: int) -> None:
        counter[name] = counter.get(name, 0) + rows

    def _counts(self) -> dict[str, Any]:
        """Return what is the same however often the task is run; timings go another way."""
        return {"counts": (self._level, self._task, self._rows_in, self._rows_out, self._failures.passed_over)}

    def timings(self) -> dict[str, Any]:
        """Return how long the operators and shards of this task took."""
        return {"level": self._level, "task": self._task, "seconds": self._seconds, "load": self._load}


class _Loader:
    """Load one run from the spool."""

    def __init__(self, spool: Spool, place: Any, row: Any) -> None:
        self._spool, self._place, self._row = spool, place, row

    def __call__(self) -> Chunk:
        chunk, shards = unpack(self._spool.read(self._place), self._row)
        if shards is not None:
            # The shard travels as one more component of the position, so that it is cut and merged with the rows.
            chunk = chunk.extended(shards)
        return chunk


def _shards(chunk: Chunk) -> Ints:
    """Take the shard of each row off its position again."""
    return chunk.positions.pop()


def _ordered(runs: list[Run]) -> Iterator[Chunk]:
    from penstock.pe.chunk import concat

    for group, _ in merged(runs):
        yield concat([chunk for _, chunk in group]).sorted()
