"""One task of one level: envelopes in, envelopes out.

Level 0 reads the sources. Every level after it gathers what was sent to it, runs its keyed operators and sinks over
the rows in order, takes what comes out through the operators without memory, and sends it on. Whatever goes wrong in
user code is reported, so that the driver can report the one at the smallest position. So does a file
that cannot be read or written although it was tried again (`StorageError`): then the driver runs the epoch again.
"""

from __future__ import annotations

import gc
import pickle
import traceback
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.clock import perf_counter, thread_time
from penstock.connectors.interfaces import Piece, read_split
from penstock.errors import PenstockError, StorageError
from penstock.kernels.failures import Failure
from penstock.kernels.intake import (
    LATE,
    UNREADABLE,
    SourceIntake,
    clock_steps,
    first_late,
    follow,
    one_step,
    part_marks,
    source_steps,
    steps_at,
)
from penstock.kernels.join_states import JoinStates
from penstock.kernels.keyed import KeyedRunner
from penstock.kernels.marks import Steps, arrival, closed_ports, closings, crossing, joined, watermark
from penstock.kernels.merge import CHUNK_ROWS, SortedRun, merged
from penstock.kernels.order import no_time_failure, no_time_letters, untimed
from penstock.kernels.pausing import PausingRunner
from penstock.kernels.running import new_states
from penstock.kernels.state_columns import ColumnStates
from penstock.plan.graph import KeyedNode, Node, SinkNode, SourceNode
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.timing import BEFORE
from penstock.spark.envelope import Envelope, Kind, Spool, pack_steps, unpack, unpack_steps
from penstock.spark.measured import Spent
from penstock.spark.parts import TaskReport, write_part
from penstock.spark.passage import Passage, Passages, count
from penstock.spark.places import FrameRows
from penstock.spark.stages import EpochSpec, Stages
from penstock.spark.worker_state import CACHE, OperatorShards, drop_others, write_state
from penstock.store.state_files import FileReader

COLUMN_ROWS = 524_288
"""Rows that go by columns at once: what each shard costs then counts for little, and they take 20 bytes or so each."""


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
        self._held: dict[str, int] = {}

    def run(self, arriving: Iterable[Any]) -> Iterator[list[Envelope]]:
        """Run the task on lists of envelopes; at level 0 on numbers of splits, or batches of a DataFrame's rows."""
        steps = self._read_sources(arriving) if self._level == 0 else self._run_level(arriving)
        try:
            for _ in steps:
                yield from self._flush()
                gc.collect(0)  # automatic collection is off while a task runs: rows are gone by now, so this is quick
            self._passages.finish()
        except PenstockError as error:
            self._send(TaskReport(failures=[Failure("", (), error)]))
        except OSError as error:
            # No code of the user's raises here: theirs is reported with its operator and row.
            where, what = error.filename or "a file of its own", f"level {self._level}, task {self._task}: using"
            problem = StorageError(what, str(where), 1, f"{type(error).__name__}: {error}")
            self._send(TaskReport(failures=[Failure("", (), problem)]))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # Nothing of a row: what Penstock does wrong, or a function that would end the process. Spark would start
            # another and try again, to the same end. All that helps to find it is said.
            unknown = PenstockError(
                f"level {self._level}, task {self._task}: {type(error).__name__}: {error}\n{traceback.format_exc()}"
            )
            self._send(TaskReport(failures=[Failure("", (), unknown)]))
        finally:
            self._passages.close()
        # Counts go where the rows go, so they are of the run of this task that counts; timings go another way.
        main = self._main
        passed_over, retried, timed_out, forgotten = main.failures.counts
        self._send(
            TaskReport(
                rows_in=main.rows_in,
                rows_out=main.rows_out,
                passed_over=passed_over,
                retried=retried,
                timed_out=timed_out,
                forgotten=forgotten,
                failures=self._failures.fatal,
            )
        )
        yield from self._flush()

    # Level 0 ----------------------------------------------------------------------------------------------------

    def _read_sources(self, arriving: Iterable[int | pa.RecordBatch]) -> Iterator[None]:
        if self._task == 0:
            self._main.outbox += [
                Envelope(level, task, -1, Kind.WAKE, 0, b"")
                for level in range(1, self._stages.last + 1)
                for task in range(self._spec.tasks[level])
            ]
        marks: dict[str, dict[int, int]] = {}
        pieces = self._pieces(arriving)
        while True:
            with self._spent.on("read") as reading:
                found = next(pieces, None)
                if found is None:
                    break
                node, intake, piece = found
                reading.operator = node.name
                arrived = intake.take(piece)
            for port, chunk, parts in arrived.chunks():
                count(self._main.rows_in, node.name, len(chunk))
                if port == LATE and not node.operator.diverts:
                    self._failures.fatal.append(first_late(node, chunk))
                    continue
                if port == UNREADABLE:
                    self._pass_over(node, chunk, len(chunk))
                    continue
                timed, parts_of = self._without_untimed(node, chunk, parts)
                if not len(timed):
                    continue
                if port != LATE:
                    for part, top in self._send_marks(node, timed, parts_of):
                        mine = marks.setdefault(node.name, {})
                        mine[part] = max(top, mine.get(part, top))
                self._passages.take(node, port, timed)
            yield
        self._send(TaskReport(marks=marks))

    def _pieces(self, arriving: Iterable[int | pa.RecordBatch]) -> Iterator[tuple[SourceNode, SourceIntake, Piece]]:
        """Read the rows of this task: from splits that it reads itself, or from a DataFrame's batches."""
        rows = FrameRows(self._plan, self._spec.batches, self._task)
        framed: dict[str, SourceIntake] = {}
        for each in arriving:
            if isinstance(each, int):
                for source, split in self._spec.splits[each]:
                    node = self._plan.source(source)
                    intake = SourceIntake(self._plan, node, None if split.floor is None else {split.part: split.floor})
                    intake.now = self._spec.now
                    for piece in read_split(node.operator.reader, node.types[0], split, source):
                        yield node, intake, piece
            else:
                for node, piece in rows.pieces(each):
                    if node.name not in framed:
                        framed[node.name] = SourceIntake(self._plan, node)
                        framed[node.name].now = self._spec.now
                    yield node, framed[node.name], piece

    def _without_untimed(self, node: SourceNode, chunk: Chunk, parts: Ints | None) -> tuple[Chunk, Ints | None]:
        """Take out rows that have no event time."""
        timed, missing = untimed(node, chunk)
        if len(missing) and node.operator.on_error == "fail":
            self._failures.fatal.append(no_time_failure(node, chunk, int(missing[0])))
        elif len(missing):
            self._pass_over(node, no_time_letters(node, chunk, missing), len(missing))
        return timed, parts if parts is None or not len(missing) else np.delete(parts, missing)

    def _pass_over(self, node: Node, letters: Chunk, count: int) -> None:
        """Go on without rows that cannot be used, and send their dead letters where they are wanted."""
        passed_over = self._failures.passed_over
        passed_over[node.name] = passed_over.get(node.name, 0) + count
        if node.operator.on_error == "dead_letter":
            self._passages.take(node, node.operator.outputs.index("errors"), letters)

    def _send_marks(self, node: SourceNode, chunk: Chunk, parts: Ints | None) -> Iterator[tuple[int, int]]:
        """Send the marks that rows raise to every task that may fire on them; return the highest of each part."""
        marks = self._spec.marks[node.name]
        start = {part: marks.start(part) for part in marks.parts}
        number = self._plan.sources.index(node)
        # Where a source is idle the others' marks are its own, too. At an end operators ask for the watermark just
        # before it. Both need every mark.
        following = any(each.is_idle for each in self._spec.marks.values())
        for part, index, values, top in part_marks(node.operator, chunk, parts, start):
            yield part, top
            grids_of = self._stages.grids[node.name]
            for level in range(1, self._stages.last + 1) if following else grids_of:
                grids = grids_of.get(level)
                every = following or grids is None or self._spec.ends
                some = index if every else index[crossing(values[index], start.get(part, BEFORE), grids or ())]
                if not len(some) and part not in start:
                    some = index[:1]  # all are to know of a part that is new
                if len(some):
                    steps = steps_at(chunk, some, values)
                    payload = pack_steps(part, steps)
                    self._main.outbox += [
                        Envelope(level, task, number, Kind.MARK, int(steps.positions[0][0]), payload)
                        for task in range(self._spec.tasks[level])
                    ]

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
            entries = self._stages.entries(self._level)
            drop_others(CACHE, [node for node in entries if isinstance(node, KeyedNode)], self._spec, self._task)
            for node in entries:
                began = perf_counter()
                if isinstance(node, SinkNode):
                    yield from self._run_sink(node, spool)
                else:
                    shards[node.name] = OperatorShards(node, self._spec, self._task, CACHE, files, self._spent)
                    yield from self._run_keyed(node, spool, shards[node.name])
                self._seconds[node.name] = perf_counter() - began
            self._load = {name: found.load() for name, found in shards.items()}
            self._hot_keys = {name: found.hot_keys() for name, found in shards.items()}
            self._passages.finish()  # a failure on the way out must keep the state from being written
            if not self._failures.fatal:
                with self._spent.on("state"):
                    name, blocks = write_state(self._spec, shards)
                self._held = {name: found.held() for name, found in shards.items()}
                if name is not None:
                    written = [(b.operator, b.shard, b.full, len(b.data), b.keys, b.next_timer) for b in blocks]
                    self._send(TaskReport(state=[(name, written)]))
        finally:
            spool.close()

    def _runs(self, node: Node, spool: Spool) -> list[SortedRun]:
        """Return the runs of rows that were sent to an operator."""
        runs = []
        for number, edge in enumerate(self._stages.edges):
            if edge.target == node.name:
                row = self._plan.row_type(edge.source)
                runs += [
                    SortedRun(position, edge.port, _Loader(spool, place, row, self._spent))
                    for position, place in spool.data.get(number, ())
                ]
        return runs

    def _run_keyed(self, node: KeyedNode, spool: Spool, shards: OperatorShards) -> Iterator[None]:
        shape = self._plan.layout.shapes[node.name]
        # Processor time: other load on the machine must not make a shard look heavy.
        clock, failures = thread_time, self._failures
        given = (node, shape.width, self._spec.epoch, shards, failures, clock)
        runner: KeyedRunner | PausingRunner
        if node.operator.logic.waits:
            runner = PausingRunner(*given, hot=shards.hot)
        else:
            # What leaves the task does so as columns.
            following = {self._stages.stage_of[edge.target] for edge in self._plan.graph.outgoing[node.name]}
            runner = KeyedRunner(*given, hot=shards.hot, as_columns=self._level not in following)
        steps = self._steps(spool)
        waters = self._spec.waters
        marks = arrival(shape.marks, steps, waters, shape.width)
        closing = closings(shape.ports, steps, waters, shape.width)
        if isinstance(runner, PausingRunner):
            runner.closed = closed_ports(shape.ports, waters)
        water = watermark(shape.marks, waters)
        limit = COLUMN_ROWS if isinstance(new_states(node), ColumnStates | JoinStates) else CHUNK_ROWS
        for group, bound in merged(self._runs(node, spool), limit):
            now, marks = marks.before(bound)
            if isinstance(runner, PausingRunner):
                runner.closing, closing = closing.before(bound)
            parts = [(port, chunk, _shards(chunk)) for port, chunk in group]
            count(self._main.rows_in, node.name, sum(len(chunk) for _, chunk in group))
            with self._spent.on("user", node.name):
                made = runner.run(parts, now, water)
            self._take_on(node, made)
            water = int(now.values[-1]) if len(now) else water
            del parts, group[:]
            yield
        if len(marks) or len(closing):
            if isinstance(runner, PausingRunner):
                runner.closing = closing
            with self._spent.on("user", node.name):
                made = runner.run([], marks, water)
            self._take_on(node, made)
            yield

    def _take_on(self, node: Node, made: dict[int, Chunk]) -> None:
        """Take rows on that an operator made, and let them go: the collector looks at all that are still there."""
        for port in list(made):
            self._passages.take(node, port, made.pop(port))

    def _steps(self, spool: Spool) -> dict[str, Steps]:
        """Return the marks of all sources in this epoch, ends included."""
        told: dict[str, dict[int, list[Steps]]] = {}
        for number, payload in spool.marks:
            part, some = unpack_steps(payload)
            told.setdefault(self._plan.sources[number].name, {}).setdefault(part, []).append(some)
        steps: dict[str, Steps] = {}
        firsts = {}
        for number, node in enumerate(self._plan.sources):
            firsts[node.name] = self._plan.layout.before_all(number)
            by_part = {part: _joined(parts) for part, parts in told.get(node.name, {}).items()}
            found = source_steps(self._spec.marks[node.name], by_part, firsts[node.name])
            if found is not None and len(found):
                steps[node.name] = found
        steps = follow(self._spec.marks, steps, firsts)
        for name, position in self._spec.ends.items():
            steps[name] = _joined([*([steps[name]] if name in steps else []), one_step(position)])
        return steps | clock_steps(self._plan, self._spec.now, self._spec.waters, self._spec.ends)

    def _run_sink(self, node: SinkNode, spool: Spool) -> Iterator[None]:
        row = self._plan.row_type(node.inputs[0])
        runs = self._runs(node, spool)
        bounds = self._spec.slices[node.name]
        for number, owner in enumerate(self._spec.tables[node.name]):
            if owner != self._task:
                continue
            low = bounds[number - 1] if number else None
            high = bounds[number] if number < len(bounds) else None
            mine = [r for r in runs if (low is None or r.first >= low) and (high is None or r.first < high)]
            with self._spent.on("sink", node.name):
                part = write_part(node, number, partial(_ordered, mine), row, self._spec)
            count(self._main.rows_in, node.name, part.rows)
            self._send(TaskReport(parts=[part]))
            yield

    def _send(self, report: TaskReport) -> None:
        payload = pickle.dumps(report)
        self._main.outbox.append(Envelope(self._stages.last + 1, self._task, -1, Kind.REPORT, 0, payload))

    def _flush(self) -> Iterator[list[Envelope]]:
        if self._main.outbox:
            outbox, self._main.outbox = self._main.outbox, []
            yield outbox

    def timings(self) -> dict[str, Any]:
        """Return how long the operators and shards of this task took."""
        return {
            "level": self._level,
            "task": self._task,
            "seconds": self._seconds,
            "load": self._load,
            "hot_keys": self._hot_keys,
            "held": self._held,
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


def _joined(steps: list[Steps]) -> Steps:
    found = joined(steps)
    assert found is not None
    return found


def _shards(chunk: Chunk) -> Ints:
    """Take the shard of each row off its position again."""
    return chunk.positions.pop()


def _ordered(runs: list[SortedRun]) -> Iterator[Chunk]:
    from penstock.rows.chunk import concat

    for group, _ in merged(runs):
        yield concat([chunk for _, chunk in group]).sorted()
