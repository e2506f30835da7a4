"""Event-time order: hold rows back until the watermark, less a slack, has passed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.operators.windows import LATE
from penstock.rows.records import Row, RowType
from penstock.rows.timing import Ticks, TimeKind


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
        """Rows leave when the mark is `slack` past them, so the mark behind is that much earlier."""
        return self.slack

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        if context.time + self.slack <= context.watermark:
            # Rows of that very time have just left, so this one may follow them; an earlier one may not.
            context.emit(row, port=0 if context.time + self.slack == context.watermark else LATE)
            return state
        held = state if state is not None else {}
        context.timer(context.time + self.slack, context.position)
        # A state that is changed in place costs nothing a row; it is only ever this operator's own.
        held[context.position] = (context.time, row)
        return held

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        time, row = state.pop(opened)
        context.emit(row, time)
        return state or None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(time + self.slack, opened) for opened, (time, _) in (state or {}).items()]

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        return inputs[0]
