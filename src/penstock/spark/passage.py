"""Take rows from where they enter a level, or leave a keyed operator, through the operators without memory.

A *passage* has everything that it changes to itself, so several of them can be under way in the threads of one task;
the task takes them in, in order.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from penstock.clock import perf_counter, process_time
from penstock.errors import PenstockError, operator_error
from penstock.kernels.chains import Chain
from penstock.kernels.failures import Failure, Failures, in_columns
from penstock.kernels.row_keys import key_shards
from penstock.kernels.stateless import Outputs, run_stateless, waiting_caller
from penstock.kernels.waiting import shared_window
from penstock.operators.calling import Calling
from penstock.operators.lookup import Lookup
from penstock.operators.stateless import PerRow
from penstock.plan.graph import Edge, KeyedNode, Node, SinkNode
from penstock.rows.chunk import Chunk, Ints
from penstock.spark.envelope import Envelope, Kind, pack
from penstock.spark.measured import Spent, Waited
from penstock.spark.stages import EpochSpec, Stages
from penstock.spark.tables import with_kept


class Waits:
    """The operators of one task that wait."""

    def __init__(self, in_flight: dict[str, int], callings: Mapping[str, Calling], measure: bool = True) -> None:
        """Without `measure` nothing is: of several chunks at once it could not be told whose time it was."""
        self._in_flight, self._callings, self._measure = in_flight, callings, measure
        self.measured: dict[str, Waited] = {}

    def run(self, node: Node, chunk: Chunk, failures: Failures) -> Outputs:
        """Take a chunk through an operator without memory, whether it waits or not."""
        operator, calling = node.operator, self._callings.get(node.name)
        if not isinstance(operator, PerRow) or operator.in_flight is None:
            return run_stateless(node, chunk, failures, calling=calling)
        window = shared_window(operator.is_async, self._in_flight.get(node.name, operator.in_flight))
        if not self._measure:
            return run_stateless(node, chunk, failures, waiting_caller(window), calling)
        wall, cpu, flight = perf_counter(), process_time(), window.seconds()
        made = run_stateless(node, chunk, failures, waiting_caller(window), calling)
        # One chunk is under way at a time, so all of it is this operator's.
        spent = perf_counter() - wall, window.seconds() - flight, process_time() - cpu
        rows, *before = self.measured.get(node.name, (0, 0.0, 0.0, 0.0))
        self.measured[node.name] = rows + len(chunk), before[0] + spent[0], before[1] + spent[1], before[2] + spent[2]
        return made


LEAST_ROWS = 64
"""Rows that are worth a thread of their own."""


class Passage:
    """What rows led to on their way: envelopes, failures, counts and seconds."""

    def __init__(self, stages: Stages, spec: EpochSpec) -> None:
        self._stages, self._plan, self._spec = stages, stages.plan, spec
        self._numbers = {id(edge): number for number, edge in enumerate(stages.edges)}
        self.outbox: list[Envelope] = []
        self.failures = Failures()
        self.rows_in: dict[str, int] = {}
        self.rows_out: dict[str, int] = {}
        self.waits = Waits(spec.in_flight, stages.callings, measure=spec.threads == 1)
        self.spent = Spent()

    def another(self) -> Passage:
        return Passage(self._stages, self._spec)

    def absorb(self, other: Passage) -> None:
        """Take over what another one, which is done, led to."""
        self.outbox += other.outbox
        self.failures.absorb(other.failures)
        for mine, theirs in ((self.rows_in, other.rows_in), (self.rows_out, other.rows_out)):
            for name, rows in theirs.items():
                count(mine, name, rows)
        self.spent.absorb(other.spent, self._spec.threads)

    def take(self, node: Node, port: int, chunk: Chunk) -> None:
        """Take rows through the operators without memory, to where they leave the task."""
        stack = [(node, port, chunk)]
        while stack:
            node, port, chunk = stack.pop()
            count(self.rows_out, node.name, len(chunk))
            for edge in self._plan.graph.outgoing[node.name]:
                if edge.source.index != port:
                    continue
                out = chunk
                if node.name in self._plan.layout.fanouts:
                    out = chunk.extended(np.full(len(chunk), edge.index, np.int64))
                target = self._plan.nodes[edge.target]
                if isinstance(target, (KeyedNode, SinkNode)):  # where rows leave their process
                    with self.spent.on("shuffle"):
                        self._post(edge, target, out)
                    continue
                chain = self._stages.chains.get(target.name)
                fused = None
                if chain is not None:
                    # The operators of a chain take turns row by row, so its time is the first one's.
                    with self.spent.on("user", chain.nodes[0].name):
                        fused = self._run_chain(chain, out)
                if chain is not None and fused is not None:
                    stack.append((chain.nodes[-1], 0, fused))
                    continue
                count(self.rows_in, target.name, len(out))
                width = self._plan.layout.shapes[target.name].width
                with self.spent.on("user", target.name):
                    if isinstance(target.operator, Lookup):
                        target = with_kept(target, self._spec.checkpoint, self._spec.contents)
                    rows = self.waits.run(target, out.widened(width), self.failures)
                stack.extend((target, out_port, made) for out_port, made in rows.items())

    def _run_chain(self, chain: Chain, chunk: Chunk) -> Chunk | None:
        """Take rows through a chain at once; None where a row fails, so that each operator is to be run by itself."""
        found = chain.run(chunk)
        if found is None:
            return None
        made, left = found
        rows = len(chunk)
        for node, out in zip(chain.nodes, left, strict=True):
            count(self.rows_in, node.name, rows)
            if node is not chain.nodes[-1]:  # what leaves the last one is counted where it goes on
                count(self.rows_out, node.name, out)
            rows = out
        return made

    def _post(self, edge: Edge, target: KeyedNode | SinkNode, chunk: Chunk) -> None:
        """Send rows across a shuffle, each to the task of its shard or slice."""
        chunk = chunk.sorted()
        times = chunk.times if target.name in self._plan.timed else None
        source = self._plan.nodes[edge.source.node]
        chunk = in_columns(source, dataclasses.replace(chunk, times=times), self.failures)
        if not len(chunk):
            return
        if isinstance(target, SinkNode):
            bounds = np.array(self._spec.slices[target.name], np.int64)
            slices = np.searchsorted(bounds, chunk.positions[0], "right")
            for number in range(len(bounds) + 1):
                low, high = np.searchsorted(slices, [number, number + 1], "left").tolist()
                if low < high:
                    self._envelope(edge, self._spec.tables[target.name][number], chunk.slice(low, high), None)
            return
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
            self.failures.fatal.append(Failure(node.name, chunk.position(0), problem))
            return
        self.outbox.append(
            Envelope(
                self._stages.stage_of[edge.target],
                task,
                self._numbers[id(edge)],
                Kind.DATA,
                int(chunk.positions[0][0]),
                payload,
            )
        )


class Passages:
    """Take chunks through in the threads of a task, one after the other where there is one thread."""

    def __init__(self, main: Passage, threads: int) -> None:
        self._main, self._threads = main, threads
        self._pool = ThreadPoolExecutor(threads, "penstock-task") if threads > 1 else None
        self._under_way: deque[tuple[Passage, Future[None]]] = deque()

    def take(self, node: Node, port: int, chunk: Chunk) -> None:
        """Take rows on; what they led to is in the main passage when this returns, or later, in order."""
        if self._pool is None:
            self._main.take(node, port, chunk)
            return
        size = max(LEAST_ROWS, -(-len(chunk) // self._threads))
        for start in range(0, len(chunk), size):
            passage = self._main.another()
            part = chunk.slice(start, min(start + size, len(chunk)))
            self._under_way.append((passage, self._pool.submit(passage.take, node, port, part)))
            # Enough to keep the threads busy, and no more: each holds its rows.
            while len(self._under_way) > 2 * self._threads:
                self._settle()

    def finish(self) -> None:
        while self._under_way:
            self._settle()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _settle(self) -> None:
        passage, done = self._under_way.popleft()
        done.result()
        self._main.absorb(passage)


def count(counter: dict[str, int], name: str, rows: int) -> None:
    counter[name] = counter.get(name, 0) + rows
