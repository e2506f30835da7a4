"""Event time: rows in its order, and the state of keys that had no row for a time forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.operators.base import Context, Emits, Logic, Position
from penstock.operators.join import Lifetime
from penstock.operators.windows import LATE
from penstock.rows.records import Row, RowType
from penstock.rows.timing import FOREVER, Ticks, TimeKind


class Kept(NamedTuple):
    """What is kept of a key: its state, the latest time of its rows, and the timer that looks whether it is over."""

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
        inner = self.inner.on_row(context, value, port, row)
        if inner is None:
            return None
        if state is not None:
            return Kept(inner, time, state.look, state.opened)
        look = context.timer(self.lifetime.forgets(port, time), context.position)
        return Kept(inner, time, look, context.position)

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
        inner = self.inner.on_timer(context, state.state, fire, opened)
        return None if inner is None else state._replace(state=inner)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        inner = None if state is None else self.inner.expire(state.state, fire, opened)
        return None if inner is None else state._replace(state=inner)

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        if state is None:
            return []
        return [(state.look, state.opened), *self.inner.timers(state.state)]

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.inner.output_type(inputs, time)

    def taken(self) -> list[Any]:
        return self.inner.taken()


@dataclass(frozen=True)
class Sort(Logic):
    """Release rows in time order. Each held row is a timer: it fires when the mark has reached time + slack.

    State: {position of the row: (time, row)}. Marks leave `slack` later than they came, because rows do.
    """

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    slack: Ticks = 0

    @property
    def mark_delay(self) -> Ticks:  # type: ignore[override]
        """Rows leave when the mark is `slack` past them, so the mark that leaves is that much earlier."""
        return self.slack

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        if context.time + self.slack <= context.watermark:
            # Rows of that very time have just left, so this one may follow them; an earlier one may not.
            context.emit(row, port=0 if context.time + self.slack == context.watermark else LATE)
            return state
        held = state if state is not None else {}
        context.timer(context.time + self.slack, context.position)
        # A state that is changed in place costs nothing per row; it is only ever this operator's own.
        held[context.position] = (context.time, row)
        return held

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        time, row = state.pop(opened)
        context.emit(row, time)
        return state or None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(time + self.slack, opened) for opened, (time, _) in (state or {}).items()]

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return inputs[0]
