"""Look rows up in the latest row of their key that another stream has: by position, or by time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.operators.join import values_of
from penstock.operators.lookup import Brought, LookupHow
from penstock.operators.windows import LATE
from penstock.rows.keys import has_null
from penstock.rows.records import Record, Row, RowType, record_class
from penstock.rows.timing import Ticks, TimeKind

ROW, TABLE = 0, 1
"""The ports: rows that are looked up, and rows that are found."""
NEVER = (1 << 61, 0)
"""A grid of marks that none but the end crosses."""


@dataclass(frozen=True)
class Beside:
    """Put fields of the row that was found, or nulls, beside those of the row."""

    left: tuple[str, ...]
    table: tuple[str, ...]
    """All fields of the rows that are found."""
    brought: Brought

    def __call__(self, row: Row, found: Row | None) -> Row:
        cls, places = self._made
        # A bare tuple: a record looks whether it is asked for a field or a number.
        there = (None,) * len(self.table) if found is None else tuple(values_of(found, self.table))
        return tuple.__new__(cls, (*values_of(row, self.left), *[there[place] for place in places]))

    @cached_property
    def _made(self) -> tuple[type[Record], list[int]]:
        return record_class((*self.left, *self.brought.names)), [self.table.index(f) for f in self.brought.fields]

    def __reduce__(self) -> tuple[Any, ...]:
        return Beside, (self.left, self.table, self.brought)  # the class of rows is made anew


@dataclass(frozen=True)
class Latest(Logic):
    """Find the latest row of the key by position. State: that row, in a tuple, because it may be None."""

    emits: ClassVar[Emits] = "timed"
    ports = 2
    mark_grid: ClassVar[tuple[Ticks, Ticks]] = NEVER  # type: ignore[misc]
    combine: Beside
    how: LookupHow

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        if port == TABLE:
            return None if has_null(context.key) else (row,)
        if state is not None or self.how == "left":
            context.emit(self.combine(row, None if state is None else state[0]))
        return state

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        return _result(self.combine, inputs)


Version = tuple[Ticks, Position, Row]
VERSIONS, WAITING = 0, 1
"""Places in what is held of a key, `[versions, waiting]`.

versions: (time, position, row) of the rows that may still be found, ascending. waiting: {position: (time, row)} of rows
that are looked up once the watermark is past their time.
"""


@dataclass(frozen=True)
class LatestAsOf(Logic):
    """Find the latest row of the key by time, the last by position of several; a row waits until that is known."""

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    ports = 2
    combine: Beside
    how: LookupHow

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        if context.time < context.watermark:
            context.emit(row, port=LATE)
            return state
        null = has_null(context.key)
        if null and (port == TABLE or self.how == "inner"):
            return state
        held: Any = [[], {}] if state is None else state
        if port == ROW:
            held[WAITING][context.position] = (context.time, row)
            # One more: what has the same time may come as long as the watermark is at it.
            context.timer(context.time + 1, context.position)
            return held
        insort(held[VERSIONS], (context.time, context.position, row))  # positions differ, so rows are not compared
        oldest = min((time for time, _ in held[WAITING].values()), default=context.watermark)
        _forget(held[VERSIONS], min(oldest, context.watermark))
        return held

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        waits = None if state is None else state[WAITING].get(opened)
        if waits is None or waits[0] + 1 != fire:
            return state  # of another logic, around this one
        time, row = waits
        del state[WAITING][opened]
        versions = state[VERSIONS]
        _forget(versions, time)  # whoever still waits has no earlier time
        found = versions[0][2] if versions and versions[0][0] <= time else None
        if found is not None or self.how == "left":
            context.emit(self.combine(row, found), time)
        return state if versions or state[WAITING] else None

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is not None:
            state[WAITING].pop(opened, None)
        return state if state is not None and (state[VERSIONS] or state[WAITING]) else None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return () if state is None else [(time + 1, place) for place, (time, _) in state[WAITING].items()]

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        return _result(self.combine, inputs)


def _forget(versions: list[Version], time: Ticks) -> None:
    """Drop the versions before the one that holds at a time."""
    later = bisect_left(versions, (time + 1,))
    if later > 1:
        del versions[: later - 1]


def _result(combine: Beside, inputs: Sequence[RowType | None]) -> RowType | None:
    left, table = inputs
    return None if left is None or table is None else combine.brought.result_type(left, table)
