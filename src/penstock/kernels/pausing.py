"""Run an operator that waits for rows of its ports, such as a co-routine.

It can be put aside between two rows, and where it says so, as co-routines do at emits. And it is told when a port
closes before the others, at the place among the rows where the last source above the port has ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from penstock.kernels.marks import Steps
from penstock.kernels.shards import Position, Shard
from penstock.kernels.timed_rows import Group, RowList, TimedRows
from penstock.operators.base import Paused
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.timing import FOREVER, Ticks

T = TypeVar("T")
InSteps: TypeAlias = Generator[None, Callable[[], bool], T]
"""Work that stops where there is no more time, and is told how much there is by the worker that goes on with it."""


class PausingRunner(TimedRows):
    """Run an operator without keys as `TimedRows` does, in pieces, and close its ports."""

    keeps_frames = False
    """Whether the operator's state stays in this process for good."""
    closed: frozenset[int] = frozenset()
    """The ports that are closed by now."""
    closing: Steps | None = None
    """Those that close among the rows of the next group: where, and which."""

    def run(self, group: Group, marks: Steps, watermark: Ticks) -> dict[int, Chunk]:
        began = self._clock()
        try:
            next(self.steps(group, marks, watermark, None))
        except StopIteration as done:
            if group:
                self._shards.get(0).seconds += self._clock() - began
            made: dict[int, Chunk] = done.value
            return made
        raise AssertionError("an operator stops that has as much time as it takes")

    def steps(
        self, group: Group, marks: Steps, watermark: Ticks, keep_going: Callable[[], bool] | None
    ) -> InSteps[dict[int, Chunk]]:
        """Do what `run` does and return the same; stop wherever there is no more time."""
        self._emitted, self._before = {}, watermark
        self._context.go_on, self._context.closed = keep_going, self.closed
        self._context.keeps_frames = self.keeps_frames
        found = self._list(group, marks, watermark)
        # Only where the operator's state is can it be told anything; a process without it has no business with it.
        if found.rows or 0 in self._shards.due(FOREVER):
            yield from self._run_in_steps(self._shards.get(0), found)
        if self.closing is not None:
            self.closed |= frozenset(self.closing.values.tolist())
            self.closing = None
        return self._made()

    def _run_in_steps(self, shard: Shard, found: RowList) -> InSteps[None]:
        """Take rows, closing ports and marks in their order."""
        context, values, positions = self._context, found.mark_values, found.mark_positions
        ports: list[int] = []
        places: list[Position] = []
        marks: list[Position] = []
        if self.closing is not None:
            ports, places, marks = self.closing.values.tolist(), _tuples(self.closing.positions), _tuples(positions)
        passed = 0
        for i in found.order.tolist():
            position, water = found.positions[i], found.waters[i]
            while passed < len(ports) and places[passed] < position:
                if not (yield from self._close_in_steps(shard, ports[passed], places[passed], values, marks)):
                    return
                passed += 1
            if shard.timers and shard.timers[0][0] <= water:
                yield from self._fire_in_steps(shard, water, values, positions)
            context.key, context.time, context.watermark = None, found.times[i], water
            context.position = (self._epoch, *position)
            context.emitted, context.registered = [], []
            try:
                state = self._logic.on_row(context, shard.states.get(None), found.ports[i], found.rows[i])
                if isinstance(state, Paused):
                    state = yield from self._resumed(state)
            except Exception as error:  # which ends the flow: no other way is offered for these operators
                self._failed(error, found.rows[i], position, found.times[i])
                break
            self._settle(shard, None, state)
            if context.emitted:
                self._send((*position, *self._zeros))
            if context.go_on is not None and not context.go_on():
                context.go_on = yield
        shard.rows += len(found.rows)
        if self._hot is not None and found.rows:
            self._hot.add(0, found.keys, 0, len(found.rows))
        for port, place in zip(ports[passed:], places[passed:], strict=True):
            if not (yield from self._close_in_steps(shard, port, place, values, marks)):
                return
        if values:
            yield from self._fire_in_steps(shard, values[-1], values, positions)

    def _close_in_steps(
        self, shard: Shard, port: int, place: Position, values: list[Ticks], marks: list[Position]
    ) -> InSteps[bool]:
        """Close a port; return whether nothing failed."""
        context, mark = self._context, bisect_left(marks, place)
        context.closed |= {port}
        context.key, context.time = None, values[mark - 1] if mark else self._before
        context.emitted, context.registered = [], []
        begin = (*place, FOREVER, *(0,) * (self._width + 1))
        try:
            state = self._logic.on_close(context, shard.states.get(None), port)
            if isinstance(state, Paused):
                state = yield from self._resumed(state)
        except Exception as error:
            return self._failed(error, f"end of input port {port}", (*begin, 0), context.time)
        self._settle(shard, None, state)
        self._send(begin)
        return True

    def _fire_in_steps(self, shard: Shard, until: Ticks, values: list[Ticks], positions: list[Ints]) -> InSteps[None]:
        context = self._context
        for fire, opened, key, place in self._due(shard, until, values, positions):
            try:
                state = self._logic.on_timer(context, shard.states.get(key), fire, opened)
                if isinstance(state, Paused):
                    state = yield from self._resumed(state)
            except Exception as error:
                self._failed(error, f"timer of key {key!r}", (*place, 0), context.time)
                return
            self._settle(shard, key, state)
            self._send(place)

    def _resumed(self, state: Any) -> InSteps[Any]:
        """Stop, and resume what has paused, until it is through; return the new state."""
        while isinstance(state, Paused):
            try:
                self._context.go_on = yield
            except GeneratorExit:
                state.drop()
                raise
            state = state.resume()
        return state


def _tuples(positions: list[Ints]) -> list[Position]:
    return list(zip(*(component.tolist() for component in positions), strict=True))
