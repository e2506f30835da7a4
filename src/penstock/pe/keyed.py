"""Run a keyed operator over ordered groups of rows, shard by shard.

Rows of one shard are taken in order; different shards have nothing in common, so that any process can run any shard.
The tight loop (`Logic.fold`) serves operators that give one row for a row; the general one serves timers, several
ports and any number of rows.
"""

from __future__ import annotations

import dataclasses
import heapq
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from penstock.checks import DEAD_LETTER
from penstock.errors import RowTypeError
from penstock.graph import Node
from penstock.keys import hash_columns, hash_value, hash_values
from penstock.operators.base import Context, Key, Keyed, Logic
from penstock.operators.stateless import SKIPPED
from penstock.pe.chunk import Chunk, Ints, concat, sorting_order
from penstock.pe.failures import Failures
from penstock.pe.hot_keys import HotKeys
from penstock.pe.marks import Steps
from penstock.positions import timed_width
from penstock.rows import Row, RowType, any_getter, column_values
from penstock.timing import BEFORE, FOREVER, Ticks

Position = tuple[int, ...]


@dataclass
class Shard:
    """The state of one shard of one operator, as it is held in memory."""

    states: dict[Any, Any] = field(default_factory=dict)
    timers: list[tuple[Ticks, Position, int, Any]] = field(default_factory=list)
    touched: set[Any] = field(default_factory=set)
    all_touched: bool = False
    """Set once tracking single keys costs more than writing the whole shard."""
    registered: int = 0
    rows: int = 0
    seconds: float = 0.0

    def load_timers(self, logic: Logic) -> None:
        """Build the heap of timers from the states."""
        self.timers = []
        for key, state in self.states.items():
            for fire, opened in logic.timers(state):
                self.register(fire, opened, key)
        heapq.heapify(self.timers)

    def register(self, fire: Ticks, opened: Position, key: Any) -> None:
        """Add a timer."""
        self.registered += 1
        heapq.heappush(self.timers, (fire, opened, self.registered, key))

    def touch(self, keys: Iterable[Any]) -> None:
        """Note keys whose state changed."""
        if not self.all_touched:
            self.touched.update(keys)
            self.all_touched = 2 * len(self.touched) > len(self.states)


class Shards(Protocol):
    """Where shards come from; loading one may read files."""

    def get(self, shard: int) -> Shard:
        """Return a shard, loaded."""

    def due(self, mark: Ticks) -> Iterable[int]:
        """Return the shards that may have timers at or before a mark."""


@dataclass
class _Emitted:
    """Rows that came out of the general loop, in any order."""

    positions: list[Position] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    times: list[Ticks] = field(default_factory=list)


class KeyedRunner:
    """Run one keyed operator in one process, for one epoch."""

    def __init__(
        self,
        node: Node,
        width: int,
        epoch: int,
        shards: Shards,
        failures: Failures,
        clock: Callable[[], float] = time.perf_counter,
        hot: HotKeys | None = None,
    ) -> None:
        operator = node.operator
        assert isinstance(operator, Keyed)
        self._hot = hot
        self._node, self._operator, self._logic = node, operator, operator.logic
        self._width, self._epoch, self._shards, self._failures, self._clock = width, epoch, shards, failures, clock
        self._suffix = {"one": 0, "many": 1, "timed": timed_width(width)}[self._logic.emits]
        self._context = Context(node.time or "integer")
        self._emitted: dict[int, _Emitted] = {}
        self._skipped = False
        self._before: Ticks = BEFORE

    def run(self, group: list[tuple[int, Chunk, Ints]], marks: Steps, watermark: Ticks) -> dict[int, Chunk]:
        """Take a group of (port, rows, shard of each row) and the marks among them; return rows by output port.

        The operator's watermark before the group is `watermark`.
        """
        if self._logic.emits == "one":
            if not group:
                return {}
            return self._fold(*_in_order([(chunk, shard) for _, chunk, shard in group], self._width))
        self._emitted = {}
        self._before = watermark
        self._general(group, marks, watermark)
        return {port: self._chunk(port, emitted) for port, emitted in self._emitted.items()}

    # The tight loop ---------------------------------------------------------------------------------------------

    def _fold(self, chunk: Chunk, shards: Ints) -> dict[int, Chunk]:
        order = None if (shards == shards[0]).all() else np.argsort(shards, kind="stable")
        grouped = chunk if order is None else chunk.select(order)
        shards = shards if order is None else shards[order]
        bounds = [*np.flatnonzero(np.concatenate([[True], shards[1:] != shards[:-1]])).tolist(), len(shards)]
        numbers = shards[bounds[:-1]].tolist()
        keys, bad = self._keys(0, grouped)
        rows = grouped.get_rows()
        results: list[Row] = []
        letters: list[tuple[int, Any]] = []
        self._skipped = False
        for number, start, stop in zip(numbers, bounds[:-1], bounds[1:], strict=True):
            shard = self._shards.get(number)
            began = self._clock()
            self._fold_shard(shard, keys, rows, start, stop, bad, grouped, results, letters)
            shard.touch(keys[start:stop])
            if self._hot is not None:
                self._hot.add(number, keys, start, stop)
            shard.rows += stop - start
            shard.seconds += self._clock() - began
        return self._folded(grouped, order, results, letters)

    def _fold_shard(
        self,
        shard: Shard,
        keys: list[Any],
        rows: list[Row],
        start: int,
        stop: int,
        bad: dict[int, Exception],
        grouped: Chunk,
        results: list[Row],
        letters: list[tuple[int, Any]],
    ) -> None:
        """Fold the rows of one shard; `results` grows by one entry a row, `SKIPPED` for a row that failed."""
        # Where a failure ends the flow anyway, outputs are looked at once the rows are done: see `_declared`.
        careful = self._operator.on_error != "fail"
        at = start
        while at < stop:
            until = min((i for i in bad if at <= i < stop), default=stop) if bad else stop
            try:
                if until == at:
                    raise bad[at]
                self._logic.fold(shard.states, keys[at:until], rows[at:until], results, careful)
                at = until
            except Exception as error:
                at = len(results)
                self._skipped = True
                letter = self._failures.report(self._node, error, rows[at], grouped.position(at))
                if self._operator.on_error == "fail":
                    results.extend([SKIPPED] * (stop - at))
                    return
                if letter is not None:
                    letters.append((at, letter))
                results.append(SKIPPED)
                at += 1

    def _folded(
        self, grouped: Chunk, order: Ints | None, results: list[Row], letters: list[tuple[int, Any]]
    ) -> dict[int, Chunk]:
        from penstock.pe.stateless import letters_chunk

        outputs = {}
        results = self._declared(grouped, results)
        made = grouped.replace_rows(results, self._node.types[0])
        made.loose = made.type is not None and made.type.form == "record"
        if self._skipped:
            keep = np.array([i for i, result in enumerate(results) if result is not SKIPPED], np.int64)
            made = made.select(keep).sorted()
        elif order is not None:
            made = _restored(made, order)
        if len(made):
            outputs[0] = made
        if letters:
            port = self._operator.outputs.index("errors")
            outputs[port] = letters_chunk(grouped, letters, len(grouped.positions)).sorted()
        return outputs

    def _declared(self, grouped: Chunk, results: list[Row]) -> list[Row]:
        """Make records of what the function returned for a schema; bare tuples stand for them until they are read."""
        declared = self._node.types[0]
        if declared is None or declared.form != "record" or self._operator.on_error != "fail":
            return results
        record, width = declared.row_class, len(declared.schema)
        if set(map(type, results)) == {tuple} and set(map(len, results)) == {width}:
            return results
        made: list[Row] = []
        for index, result in enumerate(results):
            try:
                made.append(result if result is SKIPPED or type(result) is record else declared.normalize(result))
            except RowTypeError as error:
                self._skipped = True
                self._failures.report(self._node, error, grouped.get_rows()[index], grouped.position(index))
                made.append(SKIPPED)
        return made

    def _keys(self, port: int, chunk: Chunk) -> tuple[list[Any], dict[int, Exception]]:
        """Return the key of each row, and the rows whose key cannot be had, by number."""
        if self._operator.keys is None:
            return [None] * len(chunk), {}
        key = self._operator.keys[port]
        columns = chunk.columns
        if columns is not None and key.fields and all(_exact(columns.schema.field(f).type) for f in key.fields):
            lists = [column_values(columns.column(name)) for name in key.fields]
            return (lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))), {}
        return _read_keys(key, chunk.type, chunk.get_rows())

    # The general loop -------------------------------------------------------------------------------------------

    def _general(self, group: list[tuple[int, Chunk, Ints]], marks: Steps, watermark: Ticks) -> None:
        rows: list[Row] = []
        keys: list[Any] = []
        bad: dict[int, Exception] = {}
        ports: list[int] = []
        for port, chunk, _ in group:
            found, wrong = self._keys(port, chunk)
            bad.update({len(rows) + index: error for index, error in wrong.items()})
            keys.extend(found)
            rows.extend(chunk.get_rows())
            ports.extend([port] * len(chunk))
        count = len(rows)
        widened = [chunk.widened(self._width) for _, chunk, _ in group]
        columns = [
            np.concatenate([c.positions[i] for c in widened]) if widened else np.empty(0, np.int64)
            for i in range(self._width)
        ]
        times = np.concatenate(
            [c.times if c.times is not None else np.zeros(len(c), np.int64) for c in widened] or [np.empty(0, np.int64)]
        )
        shards = np.concatenate([s for _, _, s in group] or [np.empty(0, np.int64)])
        waters = self._watermarks(columns, marks, watermark)
        mark_positions = list(zip(*(p.tolist() for p in marks.positions), strict=True)) if len(marks) else []
        mark_values = marks.values.tolist()
        last = mark_values[-1] if mark_values else watermark

        order = np.lexsort((*reversed(columns), shards)) if count else np.empty(0, np.int64)
        positions = list(zip(*(c.tolist() for c in columns), strict=True))
        time_list, water_list = times.tolist(), waters.tolist()
        seen = set()
        for number, indexes in _by_shard(order, shards):
            shard = self._shards.get(number)
            began = self._clock()
            seen.add(number)
            for i in indexes:
                if shard.timers and shard.timers[0][0] <= water_list[i]:
                    self._fire(shard, water_list[i], mark_values, mark_positions)
                if not self._row(
                    shard, ports[i], rows[i], keys[i], time_list[i], water_list[i], positions[i], bad.get(i)
                ):
                    break
            if self._hot is not None:
                self._hot.add(number, [keys[i] for i in indexes], 0, len(indexes))
            shard.rows += len(indexes)
            shard.seconds += self._clock() - began
        if mark_values:
            for number in {*self._shards.due(last), *seen}:
                self._fire(self._shards.get(number), last, mark_values, mark_positions)

    def _watermarks(self, columns: list[Ints], marks: Steps, watermark: Ticks) -> Ints:
        """Return the watermark in force at each row."""
        if len(marks) == 0:
            return np.full(len(columns[0]), watermark, np.int64)
        levels = np.concatenate([[watermark], marks.values])
        if self._width == 1:
            return levels[np.searchsorted(marks.positions[0], columns[0], "left")]
        both = [np.concatenate([m, c]) for m, c in zip(marks.positions, columns, strict=True)]
        order = np.lexsort(tuple(reversed(both)))
        is_mark = order < len(marks)
        passed = np.cumsum(is_mark)
        result = np.empty(len(columns[0]), np.int64)
        result[order[~is_mark] - len(marks)] = levels[passed[~is_mark]]
        return result

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
            zeros = (0,) * (self._suffix - 1)
            for number, (out, emitted, at) in enumerate(context.emitted):
                suffix = (*zeros, number) if self._suffix else ()
                self._emit(out, emitted, at, (*position, *suffix))
        return True

    def _fire(self, shard: Shard, until: Ticks, values: list[Ticks], positions: list[Position]) -> None:
        """Fire the timers that are due, each at the first mark that reached it."""
        context = self._context
        while shard.timers and shard.timers[0][0] <= until:
            fire, opened, _, key = heapq.heappop(shard.timers)
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
            place = (*positions[mark], fire, *origin)
            try:
                state = self._logic.on_timer(context, shard.states.get(key), fire, opened)
            except Exception as error:
                if not self._failed(error, f"timer of key {key!r}", (*place, 0), context.time):
                    return
                context.registered = []
                self._settle(shard, key, self._logic.expire(shard.states.get(key), fire, opened))
                continue
            self._settle(shard, key, state)
            for number, (out, emitted, at) in enumerate(context.emitted):
                self._emit(out, emitted, at, (*place, number))

    def _settle(self, shard: Shard, key: Any, state: Any) -> None:
        if state is None:
            shard.states.pop(key, None)
        else:
            shard.states[key] = state
        if not shard.all_touched:
            shard.touched.add(key)
        for fire, opened in self._context.registered:
            shard.register(fire, opened, key)

    def _failed(self, error: Exception, row: Row, position: Position, moment: Ticks) -> bool:
        letter = self._failures.report(self._node, error, row, position)
        if letter is not None:
            padded = (*position, *(0,) * (self._width + self._suffix - len(position)))
            self._emit(self._operator.outputs.index("errors"), letter, moment, padded)
        return self._operator.on_error != "fail"

    def _emit(self, port: int, row: Row, moment: Ticks, position: Position) -> None:
        out = self._emitted.setdefault(port, _Emitted())
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


def _in_order(parts: list[tuple[Chunk, Ints]], width: int) -> tuple[Chunk, Ints]:
    """Put the parts of a group in one chunk, rows in order."""
    chunk = concat([part.widened(width) for part, _ in parts])
    shards = np.concatenate([shard for _, shard in parts]) if len(parts) > 1 else parts[0][1]
    order = sorting_order(chunk.positions)
    return (chunk, shards) if order is None else (chunk.select(order), shards[order])


def _restored(chunk: Chunk, order: Ints) -> Chunk:
    """Undo a reordering: row i goes back to place order[i]. The rows themselves wait until they are asked for."""
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order), dtype=np.int64)
    times = None if chunk.times is None else chunk.times[inverse]
    return dataclasses.replace(chunk, positions=[p[inverse] for p in chunk.positions], times=times, pending=inverse)


def _by_shard(order: Ints, shards: Ints) -> Iterable[tuple[int, list[int]]]:
    """Yield each shard with the numbers of its rows, in order."""
    if len(order) == 0:
        return
    sorted_shards = shards[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_shards[1:] != sorted_shards[:-1]]))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(sorted_shards[start]), order[start:stop].tolist()


def _exact(kind: Any) -> bool:
    """Tell whether every value of a type is a good key, so that values need no check."""
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_binary(kind)
    )


def _read_keys(key: Key, row: RowType | None, rows: list[Row]) -> tuple[list[Any], dict[int, Exception]]:
    read = key.function or (row.getter(key.fields) if row is not None else any_getter(key.fields))
    try:
        keys = list(map(read, rows))
        if len(keys) == len(rows):
            hash_values(keys)
            return keys, {}
    except Exception:
        pass  # found again below, row by row
    keys, bad = [], {}
    for index, item in enumerate(rows):
        try:
            found = read(item)
            hash_values([found])
            keys.append(found)
        except Exception as error:
            keys.append(None)
            bad[index] = error
    return keys, bad


def key_shards(key: Key, chunk: Chunk, count: int) -> Ints:
    """Return the shard of each row, of so many."""
    if count == 1:
        return np.zeros(len(chunk), np.int64)
    shards: Ints = (_hashes(key, chunk) % np.uint64(count)).astype(np.int64)
    return shards


def _hashes(key: Key, chunk: Chunk) -> Any:
    """Hash the key of each row; a row whose key cannot be had goes to shard 0, where it fails."""
    try:
        if key.fields and chunk.type is not None and chunk.type.form != "scalar":
            columns = chunk.get_columns()
            return hash_columns([columns.column(name) for name in key.fields])
        read = key.function or any_getter(key.fields)
        return hash_values(list(map(read, chunk.get_rows())))
    except Exception:
        return np.fromiter((_hash_or_zero(key, row) for row in chunk.get_rows()), np.uint64, len(chunk))


def _hash_or_zero(key: Key, row: Any) -> int:
    try:
        return hash_value(key.function(row) if key.function else any_getter(key.fields)(row))
    except Exception:
        return 0
