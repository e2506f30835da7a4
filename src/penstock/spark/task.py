"""One task of one level: envelopes in, envelopes out.

Level 0 reads the sources. Every level after it gathers what was sent to it, runs its keyed operators and sinks over
the rows in order, takes what comes out through the operators without memory, and sends it on. Whatever goes wrong in
user code leaves as an error envelope, so that the driver can report the one at the smallest position.
"""

from __future__ import annotations

import gc
import pickle
import time
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError, SourceError
from penstock.graph import Node
from penstock.ingress.splits import Piece, read_split
from penstock.operators.base import Keyed, Sink, Source
from penstock.pe.chunk import Chunk, Ints
from penstock.pe.failures import Failure
from penstock.pe.keyed import KeyedRunner
from penstock.pe.marks import Steps, arrival, closed_ports, closings, crossing, rises, watermark
from penstock.pe.merge import Run, merged
from penstock.pe.pausing import PausingRunner
from penstock.pe.source_rows import end_mark, late_rows, source_chunk
from penstock.sequential import late_row_message
from penstock.spark.envelope import Envelope, Kind, pack_steps, unpack, unpack_steps
from penstock.spark.parts import write_part
from penstock.spark.passage import Passage, Passages, count
from penstock.spark.spec import EpochSpec
from penstock.spark.spent import Spent
from penstock.spark.spool import Spool
from penstock.spark.stages import Stages
from penstock.spark.worker_state import CACHE, FileReader, OperatorShards, write_state


class Task:
    """One task: what it sends accumulates in an outbox, which is emptied as the task goes on."""

    def __init__(self, stages: Stages, spec: EpochSpec, level: int, task: int) -> None:
        self._stages, self._plan, self._spec = stages, stages.plan, spec
        self._level, self._task = level, task
        self._main = Passage(stages, spec)
        self._failures, self._spent = self._main.failures, self._main.spent
        self._passages = Passages(self._main, spec.threads)
        self._load: dict[str, list[tuple[int, int, float]]] = {}
        self._seconds: dict[str, float] = {}
        self._hot_keys: dict[str, dict[int, list[tuple[str, float]]]] = {}

    def run(self, arriving: Iterable[Any]) -> Iterator[list[Envelope]]:
        """Run the task on lists of envelopes; at level 0 on numbers of splits, or batches of a DataFrame's rows."""
        steps = self._read_sources(arriving) if self._level == 0 else self._run_level(arriving)
        try:
            for _ in steps:
                yield from self._flush()
                gc.collect(0)  # automatic collection is off while a task runs: rows are gone by now, so this is quick
            self._passages.finish()
        except PenstockError as error:
            self._send(Kind.ERROR, pickle.dumps(Failure("", (), error)))
        except Exception as error:
            # Not the user's doing, so everything that helps to find it.
            problem = PenstockError(
                f"level {self._level}, task {self._task}: {type(error).__name__}: {error}\n{traceback.format_exc()}"
            )
            self._send(Kind.ERROR, pickle.dumps(Failure("", (), problem)))
        finally:
            self._passages.close()
        for failure in self._failures.fatal:
            self._send(Kind.ERROR, pickle.dumps(failure))
        self._send(Kind.META, pickle.dumps(self._counts()))
        yield from self._flush()

    # Level 0 ----------------------------------------------------------------------------------------------------

    def _read_sources(self, arriving: Iterable[int | pa.RecordBatch]) -> Iterator[None]:
        highest: tuple[int, ...] | None = None
        marks = dict(self._spec.marks)
        if self._task == 0:
            self._main.outbox += [
                Envelope(level, task, -1, Kind.WAKE, 0, b"")
                for level in range(1, self._stages.last + 1)
                for task in range(self._spec.tasks[level])
            ]
        pieces = self._pieces(arriving)
        while True:
            with self._spent.on("read") as reading:
                found = next(pieces, None)
                if found is None:
                    break
                node, piece = found
                reading.operator = node.name
                chunk = source_chunk(self._plan, node, piece, node.name in self._plan.timed)
            assert isinstance(node.operator, Source)
            count(self._main.rows_in, node.name, len(chunk))
            if self._spec.floor is not None and node.operator.order_by:
                chunk = self._divert_late(node, chunk)
            if not len(chunk):
                continue
            if node.operator.order_by:
                top = chunk.position(len(chunk) - 1)[: len(node.operator.order_by)]
                highest = top if highest is None else max(highest, top)
            if chunk.times is not None and node.operator.time is not None:
                marks[node.name] = max(marks[node.name], self._send_marks(node, chunk))
            self._passages.take(node, 0, chunk)
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
            self._passages.take(node, 1, chunk.select(np.flatnonzero(late)))
        return chunk.select(np.flatnonzero(~late))

    def _send_marks(self, node: Node, chunk: Chunk) -> int:
        """Send the marks that the rows of a chunk raise to every task that may fire on them; return the highest."""
        assert isinstance(node.operator, Source)
        assert chunk.times is not None
        times = chunk.times - node.operator.slack
        start = self._spec.marks[node.name]
        index = rises(times, start)
        top = max(start, int(times.max()))
        number = self._plan.sources.index(node)
        for level, grids in self._stages.grids[node.name].items():
            # At an end operators ask for the watermark just before it, which is then needed exactly.
            every = grids is None or self._spec.ends
            some = index if every else index[crossing(times[index], start, grids or ())]
            if len(some):
                positions = [p[some] for p in chunk.positions]
                positions[-1] = positions[-1] - 1  # a mark stands just before its row
                payload = pack_steps(Steps(positions, times[some]))
                self._main.outbox += [
                    Envelope(level, task, number, Kind.MARK, int(positions[0][0]), payload)
                    for task in range(self._spec.tasks[level])
                ]
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
                        self._main.outbox.append(envelope)
                yield
            spool.seal()
            files = FileReader(f"{self._spec.checkpoint}/state")
            shards: dict[str, OperatorShards] = {}
            for node in self._stages.entries(self._level):
                began = time.perf_counter()
                if isinstance(node.operator, Sink):
                    yield from self._run_sink(node, spool)
                else:
                    shards[node.name] = OperatorShards(node, self._spec, self._task, CACHE, files, self._spent)
                    yield from self._run_keyed(node, spool, shards[node.name])
                self._seconds[node.name] = time.perf_counter() - began
            self._load = {name: found.load() for name, found in shards.items()}
            self._hot_keys = {name: found.hot_keys() for name, found in shards.items()}
            self._passages.finish()  # a failure on the way out must keep the state from being written
            if not self._failures.fatal:
                with self._spent.on("state"):
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
                    Run(position, edge.port, _Loader(spool, place, row, self._spent))
                    for position, place in spool.data.get(number, ())
                ]
        return runs

    def _run_keyed(self, node: Node, spool: Spool, shards: OperatorShards) -> Iterator[None]:
        shape = self._plan.layout.shapes[node.name]
        # Processor time: other load on the machine must not make a shard look heavy.
        clock, failures = time.thread_time, self._failures
        kind = PausingRunner if isinstance(node.operator, Keyed) and node.operator.logic.waits else KeyedRunner
        runner = kind(node, shape.width, self._spec.epoch, shards, failures, clock, shards.hot)
        steps = self._steps(spool)
        marks = arrival(shape.marks, steps, self._spec.marks, shape.width)
        closing = closings(shape.ports, steps, self._spec.marks, shape.width)
        if isinstance(runner, PausingRunner):
            runner.closed = closed_ports(shape.ports, self._spec.marks)
        water = watermark(shape.marks, self._spec.marks)
        for group, bound in merged(self._runs(node, spool)):
            now, marks = marks.before(bound)
            if isinstance(runner, PausingRunner):
                runner.closing, closing = closing.before(bound)
            parts = [(port, chunk, _shards(chunk)) for port, chunk in group]
            count(self._main.rows_in, node.name, sum(len(chunk) for _, chunk in group))
            with self._spent.on("user", node.name):
                made = runner.run(parts, now, water)
            for port, out in made.items():
                self._passages.take(node, port, out)
            water = int(now.values[-1]) if len(now) else water
            yield
        if len(marks) or len(closing):
            if isinstance(runner, PausingRunner):
                runner.closing = closing
            with self._spent.on("user", node.name):
                made = runner.run([], marks, water)
            for port, out in made.items():
                self._passages.take(node, port, out)
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
            with self._spent.on("sink", node.name):
                part = write_part(node, number, _ordered(mine), row, self._spec)
            count(self._main.rows_in, node.name, part.rows)
            self._send(Kind.META, pickle.dumps({"part": part}))
            yield

    def _send(self, kind: Kind, payload: bytes) -> None:
        """Send something to the driver."""
        self._main.outbox.append(Envelope(self._stages.last + 1, self._task, -1, kind, 0, payload))

    def _flush(self) -> Iterator[list[Envelope]]:
        if self._main.outbox:
            outbox, self._main.outbox = self._main.outbox, []
            yield outbox

    def _counts(self) -> dict[str, Any]:
        """Return what is the same however often the task is run; timings go another way."""
        main = self._main
        return {"counts": (self._level, self._task, main.rows_in, main.rows_out, main.failures.passed_over)}

    def timings(self) -> dict[str, Any]:
        """Return how long the operators and shards of this task took."""
        return {
            "level": self._level,
            "task": self._task,
            "seconds": self._seconds,
            "load": self._load,
            "hot_keys": self._hot_keys,
            "waits": self._main.waits.measured,
            "parts": self._spent.parts,
            "operators": self._spent.operators,
        }


class _Loader:
    """Load one run from the spool."""

    def __init__(self, spool: Spool, place: Any, row: Any, spent: Spent) -> None:
        self._spool, self._place, self._row, self._spent = spool, place, row, spent

    def __call__(self) -> Chunk:
        with self._spent.on("shuffle"):
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
