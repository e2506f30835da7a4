"""Run a keyed operator over ordered groups of rows, shard by shard.

Rows of one shard are taken in order; different shards have nothing in common, so that any process can run any shard.
There are three ways, which come to the same: by columns (`column_kernels.py`), for what is declared; by tight loops
(`folding.py`), for functions without timers; and row by row (`timed_rows.py`), for all others, and for what columns
leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.clock import perf_counter
from penstock.kernels.column_kernels import ColumnKernel, can_sieve, column_kernel, sieved
from penstock.kernels.failures import Failures
from penstock.kernels.folding import Folding
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import ByColumns
from penstock.kernels.shards import HotKeys, Shards, settle, shard_order
from penstock.kernels.timed_rows import Group, TimedRows, watermarks_at
from penstock.operators.join import Join, TimedJoin
from penstock.operators.scan import Aggregate
from penstock.plan.graph import KeyedNode
from penstock.rows.chunk import Chunk, Ints, concat, sorted_together
from penstock.rows.timing import Ticks

FEW_ROWS = 32
"""What a group of as many costs by columns, it costs row by row too."""
AS_MANY = 3
"""Running aggregates are less to do for a row than windows are: there it is so many times as many."""


class KeyedRunner:
    """Run one keyed operator in one process, for one epoch."""

    def __init__(
        self,
        node: KeyedNode,
        width: int,
        epoch: int,
        shards: Shards,
        failures: Failures,
        clock: Callable[[], float] = perf_counter,
        *,
        hot: HotKeys | None = None,
        as_columns: bool = False,
        shared: bool = False,
    ) -> None:
        """Make it; with `as_columns` what comes out goes on as columns, so that rows need not be made of it.

        What is `shared` is read by others, too: rows are made once for all of them.
        """
        self._as_columns, self._shared = as_columns, shared
        self._node, self._logic, self._width = node, node.operator.logic, width
        self._shards, self._failures, self._clock, self._hot = shards, failures, clock, hot
        self._columns: ColumnKernel | None = column_kernel(node, width, epoch, shards)
        self._timed = None
        if self._logic.emits == "timed":
            self._timed = TimedRows(node, width, epoch, shards, failures, clock, hot=hot)

    def run(self, group: Group, marks: Steps, watermark: Ticks) -> dict[int, Chunk]:
        """Take a group of (port, rows, shard of each row) and the marks among them; return rows by output port.

        The operator's watermark before the group is `watermark`.
        """
        began = self._clock()
        if self._timed is not None and self._node.operator.by_arrival:
            group = [(port, self._arrived(chunk, marks, watermark), shards) for port, chunk, shards in group]
        made = self._by_columns(group, marks, watermark)
        if made is not None:
            self._account(made, self._clock() - began)
        else:
            settle(self._shards)
        if self._timed is None:
            return self._folded(group) if made is None else made.outputs
        if made is None:
            return self._timed.run(group, marks, watermark)
        outputs = made.outputs
        if made.rest or len(marks):  # marks fire what is left of states that rows had made before
            for port, chunk in self._timed.run(made.rest, marks, watermark).items():
                outputs[port] = self._joined(outputs[port], chunk) if port in outputs else chunk
        return outputs

    def _arrived(self, chunk: Chunk, marks: Steps, watermark: Ticks) -> Chunk:
        """Give rows the time of day as their time: it is the watermark of an operator that goes by it."""
        return replace(chunk, times=watermarks_at(chunk.widened(self._width).positions, marks, watermark))

    def _joined(self, by_columns: Chunk, by_rows: Chunk) -> Chunk:
        more = by_rows.only_columns() if isinstance(self._logic, Join) else by_rows  # its values were columns before
        return concat([by_columns, more]).sorted()

    def _by_columns(self, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
        """Take what rows can be taken by columns; None where none can, and nothing has changed then."""
        few = FEW_ROWS * (AS_MANY if isinstance(self._logic, Aggregate) else 1)
        is_few = not isinstance(self._logic, TimedJoin) and sum(len(chunk) for _, chunk, _ in group) <= few
        return None if self._columns is None or is_few else self._columns(group, marks, watermark)

    def _folded(self, group: Group) -> dict[int, Chunk]:
        """Take rows by tight loops."""
        if not group:
            return {}
        chunk, shards = sorted_together([(chunk, of) for _, chunk, of in group], self._width)
        if can_sieve(self._logic) and len(chunk) > FEW_ROWS:
            return self._sieved(chunk, shards)
        return self._fold(chunk, shards)

    def _fold(self, chunk: Chunk, shards: Ints) -> dict[int, Chunk]:
        if self._shared:
            chunk.get_rows()
        folding = Folding(self._node, self._shards, self._failures, self._clock, self._hot, as_columns=self._as_columns)
        return folding.run(chunk, shards)

    def _sieved(self, chunk: Chunk, shards: Ints) -> dict[int, Chunk]:
        """Take the rows that may change something one by one, and count the others."""
        made: list[dict[int, Chunk]] = []
        began = self._clock()
        for taken, left in sieved(self._node, chunk, shards, self._shards):
            self._account(left, self._clock() - began)
            made.append(self._fold(chunk.select(taken), shards[taken]) if len(taken) else {})
            began = self._clock()
        if not made:
            return self._fold(chunk, shards)
        ports = {port for each in made for port in each}
        return {port: concat([each[port] for each in made if port in each]) for port in ports}

    def _account(self, made: ByColumns, seconds: float) -> None:
        """Say what each shard had of the rows that were taken by columns."""
        keys, shards = made.keys, made.shards
        found = None if self._hot is None else keys()
        by_shard = None if found is None else found.take(shard_order(shards))
        counts = np.bincount(shards)
        ends = np.cumsum(counts).tolist()
        for number in np.flatnonzero(counts).tolist():
            shard, count = self._shards.get(number), int(counts[number])
            shard.rows += count
            shard.seconds += count * seconds / len(shards)
            if self._hot is not None and by_shard is not None:
                self._hot.add(number, by_shard, ends[number] - count, ends[number])
