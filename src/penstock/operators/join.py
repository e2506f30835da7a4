"""Join two keyed streams: inside a window, or rows whose times are close, or that are kept for a time to live.

What a join without windows holds of a key is sorted by time, so that partners are found, and forgotten, without looking
at all of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar, Literal, Protocol

import pyarrow as pa

from penstock.operators.base import Context, Emits, Logic, Position
from penstock.operators.windows import LATE, TimeWindows
from penstock.rows.keys import has_null
from penstock.rows.records import Record, Row, RowType, read_field, record_class
from penstock.rows.timing import FOREVER, Ticks, TimeKind
from penstock.rows.values import PickledFields

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
        null = has_null(context.key)  # equal to no other, so that the row has no partner
        if null and self.how not in (("left", "outer"), ("right", "outer"))[port]:
            return state
        held = dict(state or ())
        # First everything that may fail (the user's function), then the changes.
        for start in starts:
            for entry in held[start][1 - port] if start in held and not null else ():
                self._emit(context, (row, entry[1]) if port == 0 else (entry[1], row), None)
        for start in starts:
            if start not in held:
                held[start] = ([], [], context.position)
                context.timer(start + self.windows.size, context.position)
            partners = () if null else held[start][1 - port]
            held[start][port].append([context.position, row, bool(partners)])
            for entry in partners:
                entry[2] = True
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

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        if self.returns is not None or not isinstance(self.combine, SideBySide):
            return self.returns
        return self.combine.result_type(inputs)


@dataclass(frozen=True)
class SideBySide(PickledFields):
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
        """The class of joined rows, which of the right fields they have, and where the left ones are there."""
        kept = [i for i, name in enumerate(self.right) if name not in self.shared]
        places = [self.right.index(name) if name in self.shared else None for name in self.left]
        return record_class(self.names()), kept, places

    def names(self) -> tuple[str, ...]:
        extra = [name + self.suffix if name in self.left else name for name in self.right if name not in self.shared]
        return (*self.left, *extra)

    def result_type(self, inputs: Sequence[RowType | None]) -> RowType | None:
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


LEFT, RIGHT = 0, 1
GRID = 32
"""Into how many steps a time to live is divided: what is older than it is forgotten at the next one."""


class Reach(Protocol):
    """Say which rows are partners by their times, and how long a row is kept."""

    @property
    def grid(self) -> tuple[Ticks, Ticks] | None:
        """The grid of marks that matter, as `Logic.mark_grid`."""

    @property
    def delay(self) -> Ticks:
        """How far below the watermark a row may be when it is forgotten."""

    @property
    def pause(self) -> Ticks:
        """How long a key may wait until it looks for what is forgotten."""

    def is_late(self, time: Ticks, watermark: Ticks) -> bool:
        """Tell whether a row comes too late for any partner."""

    def partners(self, port: int, time: Ticks, watermark: Ticks) -> tuple[Ticks, Ticks]:
        """Return the first and last time of the other side's rows that a row pairs with."""

    def forgets(self, port: int, time: Ticks) -> Ticks:
        """Return the watermark at which a row is forgotten."""

    def oldest(self, port: int, watermark: Ticks) -> Ticks:
        """Return the earliest time of rows that are not forgotten at a watermark."""


@dataclass(frozen=True)
class Interval:
    """Pair rows for which low <= time of the right one - time of the left one <= high."""

    low: Ticks
    high: Ticks
    grid: ClassVar[None] = None

    @property
    def delay(self) -> Ticks:
        return max(self.high, -self.low, 0)

    @property
    def pause(self) -> Ticks:
        return self.high - self.low

    def is_late(self, time: Ticks, watermark: Ticks) -> bool:
        return time < watermark

    def partners(self, port: int, time: Ticks, watermark: Ticks) -> tuple[Ticks, Ticks]:
        return (time + self.low, time + self.high) if port == LEFT else (time - self.high, time - self.low)

    def forgets(self, port: int, time: Ticks) -> Ticks:
        # One more: a row just that far away is a partner, and comes when the watermark is at its time.
        return time + self.high + 1 if port == LEFT else time - self.low + 1

    def oldest(self, port: int, watermark: Ticks) -> Ticks:
        return watermark - self.high if port == LEFT else watermark + self.low


@dataclass(frozen=True)
class Lifetime:
    """Pair all rows that are kept: until the watermark is `ttl` past their time, judged on a grid."""

    ttl: Ticks

    @property
    def period(self) -> Ticks:
        """The period of the grid: marks between its points change nothing, and need not be told."""
        return max(1, self.ttl // GRID)

    @property
    def grid(self) -> tuple[Ticks, Ticks]:
        return self.period, 0

    @property
    def delay(self) -> Ticks:
        return self.ttl + self.period

    @property
    def pause(self) -> Ticks:
        return self.period

    def is_late(self, time: Ticks, watermark: Ticks) -> bool:
        return False

    def partners(self, port: int, time: Ticks, watermark: Ticks) -> tuple[Ticks, Ticks]:
        return self.oldest(1 - port, watermark), FOREVER

    def forgets(self, port: int, time: Ticks) -> Ticks:
        return -(-(time + self.ttl) // self.period) * self.period

    def oldest(self, port: int, watermark: Ticks) -> Ticks:
        return watermark // self.period * self.period - self.ttl + 1


Entry = tuple[Ticks, Position, Row]
ALONE, LOOK = 2, 3
"""Places in what is held of a key, `[left, right, alone, look]`, a list because keys are many and most hold one row.

left, right: the entries of each side, ascending; () instead of an empty list. alone: {position: (side, time, row)} of
rows that come out when they are forgotten, unless a partner comes before; None for none. look: the watermark at which
the key looks for what is forgotten, None for none.
"""


@dataclass(frozen=True)
class TimedJoin(Logic):
    """Emit a pair at its later row, matches in the other side's order; rows without a partner when they are forgotten.

    A row that may come out alone has a timer of its own. Forgetting the others shows nowhere, so a key has
    one timer for all of them.
    """

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    ports = 2
    reach: Reach
    combine: Combine | None
    """None where left rows come out as they are: of a semi or anti join."""
    how: str
    returns: RowType | None = None
    sides: tuple[RowType, RowType] | None = None
    """The types of both sides, where they are known."""

    @property
    def mark_grid(self) -> tuple[Ticks, Ticks] | None:  # type: ignore[override]
        """Marks matter where rows are forgotten, or late."""
        return self.reach.grid

    @property
    def mark_delay(self) -> Ticks:  # type: ignore[override]
        """Rows without a partner leave long after their time, and the marks after them."""
        return 0 if self.how in ("inner", "semi") else self.reach.delay

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        reach, time, watermark = self.reach, context.time, context.watermark
        if reach.is_late(time, watermark):
            context.emit(row, port=LATE)
            return state
        null = has_null(context.key)
        met = [] if null or state is None else self._partners(state[1 - port], port, time, watermark)
        forgotten = reach.forgets(port, time)
        gone = forgotten <= watermark
        waits = not met and self.how in (("left", "outer", "anti"), ("right", "outer"))[port]
        # First everything that may fail (the user's function), then the changes.
        if met:
            self._emit_pairs(context, port, row, met)
        elif waits and gone:
            self._emit_alone(context, port, time, row)
        held: Any = [(), (), None, None] if state is None else state
        if met and held[ALONE] is not None:
            for _, position, _ in met:
                held[ALONE].pop(position, None)
        if met and self.combine is None:
            if port == LEFT:
                return _or_nothing(held)
            seen = {position for _, position, _ in met}
            held[LEFT] = [entry for entry in held[LEFT] if entry[1] not in seen]
        if gone:
            return _or_nothing(held)
        if waits:
            if held[ALONE] is None:
                held[ALONE] = {}
            held[ALONE][context.position] = (port, time, row)
            context.timer(forgotten, context.position)
        if null:
            return held if waits else _or_nothing(held)
        if held[port]:
            insort(held[port], (time, context.position, row))  # two positions are never equal, so rows are not compared
        else:
            held[port] = [(time, context.position, row)]
        if held[LOOK] is None or held[LOOK] > forgotten + reach.pause:
            held[LOOK] = context.timer(forgotten, context.position)
        return held

    def _partners(self, entries: Sequence[Entry], port: int, time: Ticks, watermark: Ticks) -> list[Entry]:
        """Return the rows of the other side that a row pairs with, in their order."""
        if not entries:
            return []
        first, last = self.reach.partners(port, time, watermark)
        partners = list(entries[_from(entries, first) : _from(entries, last + 1)])
        if len(partners) > 1:
            partners.sort(key=itemgetter(1))
        return partners

    def _emit_pairs(self, context: Context, port: int, row: Row, met: list[Entry]) -> None:
        if self.combine is not None:
            for time, _, other in met:
                pair = self.combine(row, other) if port == LEFT else self.combine(other, row)
                context.emit(self._normal(pair), max(context.time, time))
        elif self.how == "semi":
            for time, _, other in met[: 1 if port == LEFT else None]:
                context.emit(row if port == LEFT else other, max(context.time, time))

    def _emit_alone(self, context: Context, port: int, time: Ticks, row: Row) -> None:
        if self.combine is not None:
            row = self._normal(self.combine(row, None) if port == LEFT else self.combine(None, row))
        context.emit(row, time)

    def _normal(self, row: Row) -> Row:
        return row if self.returns is None else self.returns.normalize(row)

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is None:
            return None
        waiting = self._waiting(state, fire, opened)
        if waiting is not None:
            self._emit_alone(context, *waiting)
            del state[ALONE][opened]
        if state[LOOK] == fire:
            state[LOOK] = self._forget(state, fire)
            if state[LOOK] is not None:
                # Not by `context.timer`: it may be before the mark that fires now.
                context.registered.append((state[LOOK], opened))
        return _or_nothing(state)

    def _waiting(self, held: Any, fire: Ticks, opened: Position) -> tuple[int, Ticks, Row] | None:
        waiting = None if held[ALONE] is None else held[ALONE].get(opened)
        return None if waiting is None or self.reach.forgets(waiting[0], waiting[1]) != fire else waiting

    def _forget(self, held: Any, fire: Ticks) -> Ticks | None:
        """Drop the rows that are forgotten at a watermark; return when to look again, None if nothing is left."""
        following = []
        for port in (LEFT, RIGHT):
            entries = held[port]
            if not entries:
                continue
            oldest = self.reach.oldest(port, fire)
            if entries[-1][0] < oldest:
                held[port] = ()
                continue
            del entries[: _from(entries, oldest)]
            following.append(self.reach.forgets(port, entries[0][0]))
        return max(min(following), fire + self.reach.pause) if following else None

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is not None and self._waiting(state, fire, opened) is not None:
            del state[ALONE][opened]
        return _or_nothing(state)

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        if state is None:
            return []
        alone = [(self.reach.forgets(port, time), place) for place, (port, time, _) in (state[ALONE] or {}).items()]
        # Nothing comes out when a key looks, so the place of any of its rows serves.
        if state[LOOK] is None:
            return alone
        return [*alone, *((state[LOOK], entry[1]) for entry in (state[LEFT] or state[RIGHT])[:1])]

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        if self.combine is None:
            return inputs[LEFT]
        return self.combine.result_type(inputs) if isinstance(self.combine, SideBySide) else self.returns


def _from(entries: Sequence[Entry], time: Ticks) -> int:
    """Return the number of the first entry that is not before a time."""
    return bisect_left(entries, (time,))


def _or_nothing(held: Any) -> Any:
    return held if held is not None and (held[LEFT] or held[RIGHT] or held[ALONE]) else None
