"""Run a keyed operator without timers by tight loops: `Logic.fold` (one row for a row), `Logic.fold_many` (any number).

What rows come to goes to one list; how far it got tells which row failed, and how many rows each row became gives
their positions at the end, in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import RowTypeError
from penstock.kernels.failures import Failures
from penstock.kernels.row_keys import row_keys
from penstock.kernels.shards import HotKeys, Shard, Shards, shard_order
from penstock.kernels.stateless import expansion, letters_chunk
from penstock.operators.aggregate_values import ahead
from penstock.operators.stateless import SKIPPED
from penstock.plan.graph import KeyedNode
from penstock.rows.chunk import Chunk, FlatRows, Ints, Unread
from penstock.rows.records import Row
from penstock.rows.values import MISFITS


class Folding:
    """Run one keyed operator over one chunk, its rows in order."""

    def __init__(
        self,
        node: KeyedNode,
        shards: Shards,
        failures: Failures,
        clock: Callable[[], float],
        hot: HotKeys | None = None,
        *,
        as_columns: bool = False,
    ) -> None:
        """Make it; with `as_columns` what comes out goes on as columns, so that rows need not be made of it."""
        operator = node.operator
        self._hot = hot
        self._node, self._operator, self._shards, self._failures, self._clock = node, operator, shards, failures, clock
        self._many = operator.logic.emits == "many"
        flat = operator.logic.flat_rows(as_columns) if operator.on_error == "fail" else None
        self._results: list[Row] = [] if flat is None else flat
        self._coming: Iterator[Row] | None = None
        """Rows that are made as they are taken; None where they are all there."""
        self._counts: list[int] = []
        """How many results each row has, where it may be any number."""
        self._letters: list[tuple[int, Any]] = []
        self._skipped = False
        self._loose = True
        """Whether there may be bare tuples that stand for records."""

    def run(self, chunk: Chunk, shards: Ints) -> dict[int, Chunk]:
        """Take the rows, each with its shard; return the rows of each output port."""
        order, grouped, bounds = None, chunk, [0, len(chunk)]
        if not (shards == shards[0]).all():
            order = shard_order(shards)
            grouped, shards = chunk.select(order), shards[order]
            bounds = [*np.flatnonzero(np.concatenate([[True], shards[1:] != shards[:-1]])).tolist(), len(shards)]
        numbers = shards[bounds[:-1]].tolist()
        values: dict[str, list[Any]] = {}
        keys, bad = row_keys(self._operator, 0, grouped, values)
        logic = self._operator.logic
        if logic.takes_once and grouped.rows is None and not bad and not logic.taken() and not _can_change(grouped):
            # A row that is made when it is taken is gone before the next one: 100,000 at once fit no cache.
            self._coming, _ = grouped.iterate_rows(values)
        with ahead(logic.taken(), [] if self._coming is not None else grouped.get_rows()):
            for number, start, stop in zip(numbers, bounds[:-1], bounds[1:], strict=True):
                shard = self._shards.get(number)
                began = self._clock()
                self._shard(shard, keys, start, stop, bad, grouped)
                shard.touch(keys, start, stop)
                shard.forget(keys, start, stop)
                if self._hot is not None:
                    self._hot.add(number, keys, start, stop)
                shard.rows += stop - start
                shard.seconds += self._clock() - began
        made = self._made_many(grouped, order) if self._many else self._made_one(chunk, grouped, order)
        outputs = {0: made} if len(made) else {}
        if self._letters:
            port = self._operator.outputs.index("errors")
            width = len(grouped.positions) + self._many
            outputs[port] = letters_chunk(grouped, self._letters, width).sorted()
        return outputs

    def _shard(
        self, shard: Shard, keys: list[Any], start: int, stop: int, bad: dict[int, Exception], grouped: Chunk
    ) -> None:
        """Fold the rows of one shard; each row has a result (`SKIPPED` if it failed), or a count (0 if it failed)."""
        # Where a failure ends the flow anyway, lengths of tuples are looked at once the rows are done: see `_declared`.
        careful = self._operator.on_error != "fail"
        logic, many, results = self._operator.logic, self._many, self._results
        done: list[Any] = self._counts if many else results
        nothing: Any = 0 if many else SKIPPED
        at = start
        while at < stop:
            until = min((i for i in bad if at <= i < stop), default=stop) if bad else stop
            try:
                if until == at:
                    raise bad[at]
                coming = self._coming
                rows: Any = grouped.get_rows()[at:until] if coming is None else islice(coming, until - at)
                some = keys if until - at == len(keys) else keys[at:until]
                if many:
                    logic.fold_many(shard.states, some, rows, results, self._counts, careful)
                else:
                    logic.fold(shard.states, some, rows, results, careful)
                at = until
            except Exception as error:
                if isinstance(results, FlatRows):
                    results.to_rows()
                at = len(done)
                self._skipped, self._coming = True, None
                letter = self._failures.report(self._node, error, grouped.get_rows()[at], grouped.position(at))
                if self._operator.on_error == "fail":
                    done.extend([nothing] * (stop - at))
                    return
                if letter is not None:
                    self._letters.append((at, letter))
                done.append(nothing)
                at += 1

    def _made_one(self, chunk: Chunk, grouped: Chunk, order: Ints | None) -> Chunk:
        inverse = None
        if order is not None:
            inverse = np.empty(len(order), np.int64)
            inverse[order] = np.arange(len(order), dtype=np.int64)
        flat = self._results
        if isinstance(flat, FlatRows) and flat.width and flat.for_columns:
            try:
                columns = flat.columns()
            except MISFITS:
                flat.to_rows()  # which one it is can be told of rows
            else:
                columns = columns if inverse is None else columns.take(pa.array(inverse))
                return Chunk(chunk.positions, chunk.times, self._node.types[0], columns)
        results, _ = self._declared(grouped, None)
        made = self._chunk(grouped.positions, grouped.times, results)
        if self._skipped:
            keep = np.array([i for i, result in enumerate(results) if result is not SKIPPED], np.int64)
            return made.select(keep).sorted()
        return made if inverse is None else made.reordered(inverse)

    def _made_many(self, grouped: Chunk, order: Ints | None) -> Chunk:
        index, emission = expansion(np.array(self._counts, np.int64))
        results, wrong = self._declared(grouped, index)
        times = None if grouped.times is None else grouped.times[index]
        made = self._chunk([*(p[index] for p in grouped.positions), emission], times, results)
        if wrong:  # nothing of such a row comes out
            return made.select(np.flatnonzero(~np.isin(index, wrong))).sorted()
        # By the place of the row among all, results of one row as they are.
        return made if order is None else made.reordered(np.argsort(order[index], kind="stable"))

    def _chunk(self, positions: list[Ints], times: Ints | None, results: list[Row]) -> Chunk:
        declared = self._node.types[0]
        loose = self._loose and declared is not None and declared.form == "record"
        return Chunk(positions, times, declared, None, Unread(results, loose) if loose else results)

    def _declared(self, grouped: Chunk, index: Ints | None) -> tuple[list[Row], list[int]]:
        """Make records of what the function returned for a schema; bare tuples stand for them until they are read.

        Also return the rows with a result that does not fit. `index` tells the row of each result, if not its own.
        """
        results = self._results
        wrong: list[int] = []
        declared = self._node.types[0]
        has_values = isinstance(results, FlatRows) and results.width  # of which none is missing
        if has_values or declared is None or declared.form != "record" or self._operator.on_error != "fail":
            return results, wrong
        record, width = declared.row_class, len(declared.schema)
        # All are tuples of the values by now: only the lengths of bare ones are still to be looked at.
        if not self._skipped and set(map(len, results)) <= {width}:
            self._loose = set(map(type, results)) != {record}
            return results, wrong
        made: list[Row] = []
        for number, result in enumerate(results):
            try:
                made.append(result if result is SKIPPED or type(result) is record else declared.normalize(result))
            except RowTypeError as error:
                self._skipped = True
                row = number if index is None else int(index[number])
                wrong.append(row)
                self._failures.report(self._node, error, grouped.get_rows()[row], grouped.position(row))
                made.append(SKIPPED)
        return made, wrong


def _can_change(chunk: Chunk) -> bool:
    """Tell whether a function may change its row: if it fails then, the row is shown as it has become."""
    return chunk.type is None or chunk.type.can_change
