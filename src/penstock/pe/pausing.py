"""Run a keyed operator so that it can be put aside between two rows, and where it says so: co-routines do at emits."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from penstock.operators.base import Paused
from penstock.pe.chunk import Chunk, Ints
from penstock.pe.keyed import KeyedRunner
from penstock.pe.marks import Steps
from penstock.pe.ports import KeepGoing
from penstock.pe.shards import Position, Shard
from penstock.timing import Ticks

T = TypeVar("T")
InSteps: TypeAlias = Generator[None, KeepGoing, T]
"""Work that stops where there is no more time, and is told how much there is by whoever goes on with it."""


class PausingRunner(KeyedRunner):
    """Run an operator without keys as `KeyedRunner` does, in pieces."""

    def steps(
        self, group: list[tuple[int, Chunk, Ints]], marks: Steps, watermark: Ticks, keep_going: KeepGoing
    ) -> InSteps[dict[int, Chunk]]:
        """Do what `run` does and return the same; stop wherever there is no more time."""
        context = self._context
        context.go_on = keep_going
        self._emitted, self._before = {}, watermark
        found = self._list(group, marks, watermark)
        shard, values, positions = self._shards.get(0), found.mark_values, found.mark_positions
        for i in found.order.tolist():
            water = found.waters[i]
            if shard.timers and shard.timers[0][0] <= water:
                yield from self._fire_in_steps(shard, water, values, positions)
            context.key, context.time, context.watermark = None, found.times[i], water
            context.position = (self._epoch, *found.positions[i])
            context.emitted, context.registered = [], []
            try:
                state = self._logic.on_row(context, shard.states.get(None), found.ports[i], found.rows[i])
                if isinstance(state, Paused):
                    state = yield from self._resumed(state)
            except Exception as error:  # which ends the flow: no other way is offered for these operators
                self._failed(error, found.rows[i], found.positions[i], found.times[i])
                break
            self._settle(shard, None, state)
            if context.emitted:
                self._send((*found.positions[i], *self._zeros))
            if not context.go_on():
                context.go_on = yield
        shard.rows += len(found.rows)
        if values:
            yield from self._fire_in_steps(shard, values[-1], values, positions)
        return {port: self._chunk(port, emitted) for port, emitted in self._emitted.items()}

    def _fire_in_steps(
        self, shard: Shard, until: Ticks, values: list[Ticks], positions: list[Position]
    ) -> InSteps[None]:
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
