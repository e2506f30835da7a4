"""Run a keyed operator with timers, or with several ports, row by row: what its rows mean is `Logic.on_row`."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.clock import perf_counter
from penstock.flow.checks import DEAD_LETTER
from penstock.kernels.failures import Failures
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import row_keys
from penstock.kernels.shards import HotKeys, Position, Shard, Shards
from penstock.operators.aggregate_values import ahead
from penstock.operators.base import Context
from penstock.plan.graph import KeyedNode
from penstock.plan.positions import timed_width
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.records import Row
from penstock.rows.timing import BEFORE, FOREVER, Ticks

Group = list[tuple[int, Chunk, Ints]]
"""Rows of some input ports, with the shard of each."""


@dataclass
class _Emitted:
    """Rows that came out of the general loop, in any order."""

    positions: list[Position] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    times: list[Ticks] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class RowList:
    """The rows of a group, port after port, as lists; and the marks among them."""

    order: Ints
    """The numbers of the rows, shard by shard, in order of their positions."""
    shards: Ints
    ports: list[int]
    rows: list[Row]
    keys: list[Any]
    bad_keys: dict[int, Exception]
    times: list[Ticks]
    waters: list[Ticks]
    """The watermark in force at each row."""
    positions: list[Position]
    mark_values: list[Ticks]
    mark_positions: list[Ints]


class TimedRows:
    """Run the rows of one keyed operator one by one, in the order of rows and timers, for one epoch."""

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
    ) -> None:
        operator = node.operator
        self._hot = hot
        self._node, self._operator, self._logic = node, operator, operator.logic
        self._width, self._epoch, self._shards, self._failures, self._clock = width, epoch, shards, failures, clock
        self._suffix = timed_width(width)
        self._zeros = (0,) * (self._suffix - 1)
        """What is between the position of a row and the number of what it emits."""
        self._context = Context(node.time or "integer")
        self._emitted: dict[int, _Emitted] = {}
        self._before: Ticks = BEFORE

    def run(self, group: Group, marks: Steps, watermark: Ticks) -> dict[int, Chunk]:
        """Take rows and the marks among them, the watermark before them given; return rows by output port."""
        self._emitted, self._before = {}, watermark
        if not group:
            self._fire_due(marks)
            return self._made()
        given = self._list(group, marks, watermark)
        with ahead(self._logic.taken(), given.rows):
            self._row_by_row(given, marks)
        return self._made()

    def _row_by_row(self, given: RowList, marks: Steps) -> None:
        ports, rows, keys, bad = given.ports, given.rows, given.keys, given.bad_keys
        times, waters, positions = given.times, given.waters, given.positions
        for number, indexes in _by_shard(given.order, given.shards):
            shard = self._shards.get(number)
            began = self._clock()
            for i in indexes:
                if shard.timers and shard.timers[0][0] <= waters[i]:
                    self._fire(shard, waters[i], given.mark_values, given.mark_positions)
                if not self._row(shard, ports[i], rows[i], keys[i], times[i], waters[i], positions[i], bad.get(i)):
                    break
            if self._hot is not None:
                self._hot.add(number, [keys[i] for i in indexes], 0, len(indexes))
            shard.rows += len(indexes)
            shard.seconds += self._clock() - began
        self._fire_due(marks)

    def _list(self, group: Group, marks: Steps, watermark: Ticks) -> RowList:
        """List the rows of a group, and what is to be known of each."""
        rows: list[Row] = []
        keys: list[Any] = []
        bad: dict[int, Exception] = {}
        ports: list[int] = []
        for port, chunk, _ in group:
            found, wrong = row_keys(self._operator, port, chunk)
            bad.update({len(rows) + index: error for index, error in wrong.items()})
            keys.extend(found)
            rows.extend(chunk.get_rows())
            ports.extend([port] * len(chunk))
        widened = [chunk.widened(self._width) for _, chunk, _ in group]
        columns = [
            np.concatenate([c.positions[i] for c in widened]) if widened else np.empty(0, np.int64)
            for i in range(self._width)
        ]
        times = np.concatenate(
            [c.times if c.times is not None else np.zeros(len(c), np.int64) for c in widened] or [np.empty(0, np.int64)]
        )
        shards = np.concatenate([s for _, _, s in group] or [np.empty(0, np.int64)])
        waters = watermarks_at(columns, marks, watermark)
        mark_values = marks.values.tolist()

        order = np.lexsort((*reversed(columns), shards)) if rows else np.empty(0, np.int64)
        positions = list(zip(*(c.tolist() for c in columns), strict=True))
        return RowList(
            order=order,
            shards=shards,
            ports=ports,
            rows=rows,
            keys=keys,
            bad_keys=bad,
            times=times.tolist(),
            waters=waters.tolist(),
            positions=positions,
            mark_values=mark_values,
            mark_positions=marks.positions,
        )

    def _fire_due(self, marks: Steps) -> None:
        """Fire what the marks of a group reach."""
        due = set(self._shards.due(int(marks.values[-1]))) if len(marks) else ()
        if due:
            values = marks.values.tolist()
            for number in due:
                self._fire(self._shards.get(number), values[-1], values, marks.positions)

    def _row(
        self,
        shard: Shard,
        port: int,
        row: Row,
        key: Any,
        moment: Ticks,
        watermark: Ticks,
        position: Position,
        wrong_key: Exception | None,
    ) -> bool:
        """Take one row; return False where the flow has failed and the shard need not go on."""
        context = self._context
        context.key, context.time, context.watermark = key, moment, watermark
        context.position = (self._epoch, *position)
        context.emitted, context.registered = [], []
        try:
            if wrong_key is not None:
                raise wrong_key
            state = self._logic.on_row(context, shard.states.get(key), port, row)
        except Exception as error:
            return self._failed(error, row, position, moment)
        self._settle(shard, key, state)
        if context.emitted:
            begin = (*position, *self._zeros)
            for number, (out, emitted, at) in enumerate(context.emitted):  # `_send`, without the call: rows are many
                self._emit(out, emitted, at, (*begin, number))
        return True

    def _fire(self, shard: Shard, until: Ticks, values: list[Ticks], positions: list[Ints]) -> None:
        """Fire the timers that are due, each at the first mark that reached it."""
        context = self._context
        for fire, opened, key, place in self._due(shard, until, values, positions):
            try:
                state = self._logic.on_timer(context, shard.states.get(key), fire, opened)
            except Exception as error:
                if not self._failed(error, f"timer of key {key!r}", (*place, 0), context.time):
                    return
                context.registered = []
                self._settle(shard, key, self._logic.expire(shard.states.get(key), fire, opened))
                continue
            self._settle(shard, key, state)
            self._send(place)

    def _due(
        self, shard: Shard, until: Ticks, values: list[Ticks], positions: list[Ints]
    ) -> Iterator[tuple[Ticks, Position, Any, Position]]:
        """Take the timers that are due, with the context as it is for each; tell what goes off, of which key, where."""
        context = self._context
        while shard.timers and shard.timers[0][0] <= until:
            fire, opened, _, key = heapq.heappop(shard.timers)
            if shard.timers and shard.timers[0][:2] == (fire, opened) and shard.timers[0][3] == key:
                continue  # set twice
            if fire <= self._before:
                # Of a window that has moved since: what was due at an earlier mark has fired there.
                later = self._logic.moved(shard.states.get(key), opened)
                if later is not None and later > self._before:
                    shard.register(later, opened, key)
                continue
            mark = bisect_left(values, fire)
            context.key, context.position, context.watermark = key, opened, values[mark]
            # What is left at the end has the time of the watermark just before it.
            context.time = fire if fire < FOREVER else values[mark - 1] if mark else self._before
            context.emitted, context.registered = [], []
            # The opening position may be of a plan with other widths: cut or padded, its order is kept by its epoch.
            origin = (*opened, *(0,) * self._width)[: self._width + 1]
            place = (*[int(component[mark]) for component in positions], fire, *origin)
            yield fire, opened, key, place

    def _settle(self, shard: Shard, key: Any, state: Any) -> None:
        if state is None:
            shard.states.pop(key, None)
        else:
            shard.states[key] = state
        if not shard.all_touched:
            shard.touched.add(key)
        for fire, opened in self._context.registered:
            shard.register(fire, opened, key)

    def _send(self, begin: Position) -> None:
        """Take what was emitted for one row or timer, at positions that begin as this one."""
        for number, (out, row, at) in enumerate(self._context.emitted):
            self._emit(out, row, at, (*begin, number))

    def _failed(self, error: Exception, row: Row, position: Position, moment: Ticks) -> bool:
        letter = self._failures.report(self._node, error, row, position)
        if letter is not None:
            padded = (*position, *(0,) * (self._width + self._suffix - len(position)))
            self._emit(self._operator.outputs.index("errors"), letter, moment, padded)
        return self._operator.on_error != "fail"

    def _emit(self, port: int, row: Row, moment: Ticks, position: Position) -> None:
        out = self._emitted.get(port)
        if out is None:
            out = self._emitted[port] = _Emitted()
        out.positions.append(position)
        out.rows.append(row)
        out.times.append(moment)

    def _chunk(self, port: int, emitted: _Emitted) -> Chunk:
        matrix = np.array(emitted.positions, np.int64)
        positions = [np.ascontiguousarray(matrix[:, i]) for i in range(matrix.shape[1])]
        declared = self._node.types[port]
        is_letter = self._operator.outputs[port] == "errors"
        chunk = Chunk(
            positions, np.array(emitted.times, np.int64), DEAD_LETTER if is_letter else declared, None, emitted.rows
        )
        return chunk.sorted()

    def _made(self) -> dict[int, Chunk]:
        self._failures.forget(self._node, self._context.forgotten)
        self._context.forgotten = 0
        return {port: self._chunk(port, emitted) for port, emitted in self._emitted.items()}


def watermarks_at(columns: list[Ints], marks: Steps, watermark: Ticks) -> Ints:
    """Return the watermark in force at each row."""
    if len(marks) == 0:
        return np.full(len(columns[0]), watermark, np.int64)
    *above, last = zip(marks.positions, columns, strict=True)
    if len(marks) == len(last[1]) and (last[0] + 1 == last[1]).all() and all((m == c).all() for m, c in above):
        return marks.values  # each row raises it
    levels = np.concatenate([[watermark], marks.values])
    if len(columns) == 1:
        return levels[np.searchsorted(marks.positions[0], columns[0], "left")]
    both = [np.concatenate([m, c]) for m, c in zip(marks.positions, columns, strict=True)]
    order = np.lexsort(tuple(reversed(both)))
    is_mark = order < len(marks)
    passed = np.cumsum(is_mark)
    result = np.empty(len(columns[0]), np.int64)
    result[order[~is_mark] - len(marks)] = levels[passed[~is_mark]]
    return result


def _by_shard(order: Ints, shards: Ints) -> Iterable[tuple[int, list[int]]]:
    """Yield each shard with the numbers of its rows, in order."""
    if len(order) == 0:
        return
    sorted_shards = shards[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_shards[1:] != sorted_shards[:-1]]))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(sorted_shards[start]), order[start:stop].tolist()
