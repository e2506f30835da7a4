"""Look rows up by key: in a table, or in the latest row of another stream, by position or by time.

A table is an object of its own (`Content`), because it may change while a flow runs: an engine puts the content that
a batch or an epoch sees into the operator, and logs which it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import compress, pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.errors import FlowError, shorten
from penstock.operators.base import Context, Emits, Logic, Position
from penstock.operators.join import values_of
from penstock.operators.stateless import Columnar
from penstock.operators.windows import LATE
from penstock.rows.keys import as_keys, has_null
from penstock.rows.records import Record, Row, RowType, record_class
from penstock.rows.timing import Ticks, TimeKind
from penstock.rows.values import PickledFields, column_values

LookupHow = Literal["left", "inner"]


@dataclass(frozen=True)
class Brought:
    """Which fields of a table come along, and under which names."""

    fields: tuple[str, ...]
    """Of the table."""
    names: tuple[str, ...]
    """What they are called in the result, after the fields of the row."""

    def result_type(self, left: RowType, table: RowType) -> RowType:
        fields = [pa.field(n, table.schema.field(f).type) for f, n in zip(self.fields, self.names, strict=True)]
        return RowType(pa.schema([*(pa.field(f.name, f.type) for f in left.schema), *fields]), "record")


class Content:
    """What a table has at some moment, found by key: at most one row for a key, or for a key and a time."""

    def __init__(
        self, table: pa.Table, on: Sequence[str], as_of: str | None, brought: Sequence[str], name: str
    ) -> None:
        """Read a table; refuse one in which a key has several rows, naming the operator."""
        keys = key_list([table.column(field) for field in on])
        self._columns = [table.column(field).combine_chunks() for field in brought]
        self._times: dict[Any, tuple[list[Any], list[int]]] = {}
        self._rows: dict[Any, int] = {}
        if as_of is None:
            for number, key in enumerate(keys):
                if not has_null(key) and self._rows.setdefault(key, number) != number:
                    raise _twice(name, on, key, self._rows[key], number)
            return
        times = column_values(table.column(as_of))
        held: dict[Any, list[tuple[Any, int]]] = {}
        for number, (key, time) in enumerate(zip(keys, times, strict=True)):
            if not has_null(key) and _is_time(time):
                held.setdefault(key, []).append((time, number))
        for key, entries in held.items():
            entries.sort()
            self._times[key] = [time for time, _ in entries], [number for _, number in entries]
            for (time, one), (following, other) in pairwise(entries):
                if time == following:
                    raise _twice(name, (*on, as_of), (key, time), one, other)

    def find(self, keys: Iterable[Any], times: Iterable[Any] | None) -> list[int | None]:
        """Return the number of the table's row for each key, None where there is none."""
        if times is None:
            return list(map(self._rows.get, keys))
        return [self._latest(key, time) for key, time in zip(keys, times, strict=True)]

    def _latest(self, key: Any, time: Any) -> int | None:
        """Return the row of a key that holds at a time: the latest that is not after it."""
        held = self._times.get(key)
        if held is None or not _is_time(time):
            return None
        place = bisect_right(held[0], time)
        return held[1][place - 1] if place else None

    def rows(self, numbers: pa.Array) -> list[pa.Array]:
        """Return the fields of rows by their numbers; null for a number that is null."""
        return [column.take(numbers) for column in self._columns]


def _is_time(value: Any) -> bool:
    """Tell whether a value can be before or after others: neither null nor NaN can."""
    return value is not None and value == value  # noqa: PLR0124


def _twice(name: str, on: Sequence[str], key: Any, one: int, other: int) -> FlowError:
    return FlowError(
        f"operator {name!r}: rows {one} and {other} of the table (from 0) have the same {', '.join(on)}: "
        f"{shorten(key, 200)}; a lookup finds one row, so keep one of them, add a field to on=, or, if they hold at "
        f"different times, give as_of="
    )


def key_list(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Any]:
    """Return the keys of rows: of one field its value, of several a tuple."""
    if len(columns) == 1:
        return as_keys(column_values(columns[0]))
    return as_keys(list(zip(*map(column_values, columns), strict=True)))


@dataclass(frozen=True)
class Lookup(Columnar):
    """Give each row the fields of the row that a table has for its key."""

    on: tuple[tuple[str, str], ...] = ()
    """The fields of the row, and those of the table that are equal to them."""
    as_of: tuple[str, str] | None = None
    """The field of the row, and that of the table, whose latest value that is not after the row's counts."""
    how: LookupHow = "left"
    brought: Brought = Brought((), ())
    returns: RowType | None = None
    _: KW_ONLY
    refresh: float | None = None
    """Seconds after which the table is read again, by the wall clock; None for never."""
    table: Any = None
    """Where the table is read (`connectors/tables.py`); None in workers, which get its content."""
    content: Content | None = field(default=None, compare=False, repr=False)

    @property
    def columns(self) -> list[str]:
        """The fields of the table that matter, each once."""
        times = () if self.as_of is None else (self.as_of[1],)
        return list(dict.fromkeys((*(right for _, right in self.on), *times, *self.brought.fields)))

    def over(self, table: pa.Table, name: str) -> Lookup:
        """Return the operator with a table's content; refuse a table that gives several rows for a key."""
        as_of = None if self.as_of is None else self.as_of[1]
        return replace(self, content=Content(table, [r for _, r in self.on], as_of, self.brought.fields, name))

    def result_type(self) -> RowType | None:
        return self.returns

    def batch(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        assert self.content is not None
        assert self.returns is not None
        keys = key_list([rows.column(left) for left, _ in self.on])
        times = None if self.as_of is None else column_values(rows.column(self.as_of[0]))
        numbers = self.content.find(keys, times)
        index = None
        if self.how == "inner" and None in numbers:
            index = np.array(list(compress(range(len(numbers)), (number is not None for number in numbers))), np.int64)
            rows, numbers = rows.take(pa.array(index)), [number for number in numbers if number is not None]
        columns = [*rows.columns, *self.content.rows(pa.array(numbers, pa.int64()))]
        return pa.RecordBatch.from_arrays(columns, schema=self.returns.schema), index


ROW, TABLE = 0, 1
"""The ports: rows that are looked up, and rows that are found."""
NEVER = (1 << 61, 0)
"""A grid of marks that none but the end crosses."""


@dataclass(frozen=True)
class Beside(PickledFields):
    """Put fields of the row that was found, or nulls, beside those of the row."""

    left: tuple[str, ...]
    table: tuple[str, ...]
    """All fields of the rows that are found."""
    brought: Brought

    def __call__(self, row: Row, match: Row | None) -> Row:
        cls, places = self._made
        # A bare tuple: a record looks whether it is asked for a field or a number.
        there = (None,) * len(self.table) if match is None else tuple(values_of(match, self.table))
        return tuple.__new__(cls, (*values_of(row, self.left), *[there[place] for place in places]))

    @cached_property
    def _made(self) -> tuple[type[Record], list[int]]:
        return record_class((*self.left, *self.brought.names)), [self.table.index(f) for f in self.brought.fields]


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

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
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
        _forget(versions, time)  # rows that still wait have no earlier time
        version = versions[0][2] if versions and versions[0][0] <= time else None
        if version is not None or self.how == "left":
            context.emit(self.combine(row, version), time)
        return state if versions or state[WAITING] else None

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is not None:
            state[WAITING].pop(opened, None)
        return state if state is not None and (state[VERSIONS] or state[WAITING]) else None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return () if state is None else [(time + 1, place) for place, (time, _) in state[WAITING].items()]

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return _result(self.combine, inputs)


def _forget(versions: list[Version], time: Ticks) -> None:
    """Drop the versions before the one that holds at a time."""
    later = bisect_left(versions, (time + 1,))
    if later > 1:
        del versions[: later - 1]


def _result(combine: Beside, inputs: Sequence[RowType | None]) -> RowType | None:
    left, table = inputs
    return None if left is None or table is None else combine.brought.result_type(left, table)
