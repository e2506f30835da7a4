"""Join two keyed streams inside a window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import pyarrow as pa

from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.operators.windows import LATE, TimeWindows
from penstock.rows.keys import has_null
from penstock.rows.records import Record, Row, RowType, read_field, record_class
from penstock.rows.timing import Ticks, TimeKind

How = Literal["inner", "left", "right", "outer", "semi", "anti"]
Combine = Callable[[Any, Any], Row]
"""Of a left and a right row; None stands for the one that is missing."""


@dataclass(frozen=True)
class Join(Logic):
    """Emit a pair at its later row, matches in the other side's order; rows without a partner at the close.

    State: {window start: ([left], [right], position of the opening row)}, each side a list of
    [position, row, has met a partner].
    """

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    ports = 2
    windows: TimeWindows
    combine: Combine
    how: How
    returns: RowType | None = None

    @property
    def mark_grid(self) -> tuple[Ticks, Ticks]:  # type: ignore[override]
        """Windows close on their own grid only."""
        return self.windows.mark_grid

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        starts = [s for s in self.windows.starts(context.time) if s + self.windows.size > context.watermark]
        if not starts:
            context.emit(row, port=LATE)
            return state
        if has_null(context.key):
            return self._alone(context, state, port, row, starts)
        held = dict(state or ())
        # First everything that may fail (the user's function), then the changes.
        for start in starts:
            for entry in held[start][1 - port] if start in held else ():
                self._emit(context, (row, entry[1]) if port == 0 else (entry[1], row), None)
        for start in starts:
            if start not in held:
                held[start] = ([], [], context.position)
                context.timer(start + self.windows.size, context.position)
            partners = held[start][1 - port]
            held[start][port].append([context.position, row, bool(partners)])
            for entry in partners:
                entry[2] = True
        return held

    def _alone(self, context: Context, state: Any, port: int, row: Row, starts: list[Ticks]) -> Any:
        """Take a row whose key is null, and so equal to no other: it waits for the close, where anybody waits."""
        if self.how not in (("left", "outer"), ("right", "outer"))[port]:
            return state
        held = dict(state or ())
        for start in starts:
            if start not in held:
                held[start] = ([], [], context.position)
                context.timer(start + self.windows.size, context.position)
            held[start][port].append([context.position, row, False])
        return held

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        left, right, _ = state[fire - self.windows.size]
        alone = []
        if self.how in ("left", "outer"):
            alone += [(position, (row, None)) for position, row, met in left if not met]
        if self.how in ("right", "outer"):
            alone += [(position, (None, row)) for position, row, met in right if not met]
        for _, pair in sorted(alone, key=lambda item: item[0]):
            self._emit(context, pair, fire - 1)
        return self.expire(state, fire, opened)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        return {start: held for start, held in state.items() if start + self.windows.size != fire} or None

    def _emit(self, context: Context, pair: tuple[Row | None, Row | None], time: Ticks | None) -> None:
        result = self.combine(*pair)
        context.emit(result if self.returns is None else self.returns.normalize(result), time)

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(start + self.windows.size, opened) for start, (_, _, opened) in (state or {}).items()]

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        if self.returns is not None or not isinstance(self.combine, SideBySide):
            return self.returns
        return self.combine.result_type(inputs)

    def functions(self) -> list[Any]:
        return [self.combine]


@dataclass(frozen=True)
class SideBySide:
    """Put the fields of both rows in one record; a name that both have gets the suffix on the right."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    shared: tuple[str, ...]
    """Fields of the key, which are equal on both sides and appear once."""
    suffix: str = "_right"

    def __call__(self, left: Row | None, right: Row | None) -> Row:
        cls, kept, shared = self._made
        # A bare tuple: a record looks whether it is asked for a field or a number.
        there = tuple(values_of(right, self.right)) if right is not None else (None,) * len(self.right)
        if left is not None:
            values = values_of(left, self.left)
        else:
            values = tuple(None if place is None else there[place] for place in shared)
        return tuple.__new__(cls, (*values, *[there[i] for i in kept]))

    @cached_property
    def _made(self) -> tuple[type[Record], list[int], list[int | None]]:
        """Return the class of joined rows, which of the right fields they have, and where the left ones are there."""
        kept = [i for i, name in enumerate(self.right) if name not in self.shared]
        places = [self.right.index(name) if name in self.shared else None for name in self.left]
        return record_class(self.names()), kept, places

    def __reduce__(self) -> tuple[Any, ...]:
        return SideBySide, (self.left, self.right, self.shared, self.suffix)  # the class of rows is made anew

    def names(self) -> tuple[str, ...]:
        """Return the fields of the joined row."""
        extra = [name + self.suffix if name in self.left else name for name in self.right if name not in self.shared]
        return (*self.left, *extra)

    def result_type(self, inputs: Sequence[RowType | None]) -> RowType | None:
        """Tell the type of the joined rows."""
        left, right = inputs
        if left is None or right is None:
            return None
        kinds = [*(f.type for f in left.schema), *(f.type for f in right.schema if f.name not in self.shared)]
        return RowType(pa.schema(list(zip(self.names(), kinds, strict=True))), "record")


def values_of(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """Return the values of a row's fields; of a tuple as it is, because it has them all in order."""
    if isinstance(row, tuple):
        return row
    return tuple(read_field(row, name) for name in names)
