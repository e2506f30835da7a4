"""Forget the state of a key that had no row for a time: any logic with a time to live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.operators.timed_join import Lifetime
from penstock.rows.records import Row, RowType
from penstock.rows.timing import FOREVER, Ticks, TimeKind


class Kept(NamedTuple):
    """What is kept of a key: its state, the latest time of its rows, and the timer that looks whether it is time."""

    state: Any
    time: Ticks
    look: Ticks
    opened: Position


@dataclass(frozen=True)
class Expiring(Logic):
    """Run a logic whose keys are forgotten once the watermark is `ttl` past the latest time of their rows.

    A key has one timer, which is set again where it finds that rows have come meanwhile.
    """

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    inner: Logic
    lifetime: Lifetime
    renews: bool = True
    """Whether each row counts, or only the one that the state began with."""

    @property
    def ports(self) -> int:  # type: ignore[override]
        return self.inner.ports

    @property
    def mark_grid(self) -> tuple[Ticks, Ticks] | None:  # type: ignore[override]
        """The logic's own timers may be due at any mark."""
        return None if self.inner.emits == "timed" else self.lifetime.grid

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        time, value = context.time, None
        if state is not None and state.time >= self.lifetime.oldest(port, context.watermark):
            value, time = state.state, max(state.time, time) if self.renews else state.time
        made = self.inner.on_row(context, value, port, row)
        if made is None:
            return None
        if state is not None:
            return Kept(made, time, state.look, state.opened)
        look = context.timer(self.lifetime.forgets(port, time), context.position)
        return Kept(made, time, look, context.position)

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is None:
            return None
        if fire == FOREVER and state.time < self.lifetime.oldest(0, context.time):
            return None
        if (fire, opened) == (state.look, state.opened) and context.watermark < FOREVER:
            look = self.lifetime.forgets(0, state.time)
            if look <= fire:
                return None
            # Not by `context.timer`: it may be before the mark that fires now.
            context.registered.append((look, opened))
            state = state._replace(look=look)
        made = self.inner.on_timer(context, state.state, fire, opened)
        return None if made is None else state._replace(state=made)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        made = None if state is None else self.inner.expire(state.state, fire, opened)
        return None if made is None else state._replace(state=made)

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        if state is None:
            return []
        return [(state.look, state.opened), *self.inner.timers(state.state)]

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        return self.inner.output_type(inputs, keys, time)

    def functions(self) -> list[Any]:
        return self.inner.functions()

    def taken(self) -> list[Any]:
        return self.inner.taken()
