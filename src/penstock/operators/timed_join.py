"""Join two keyed streams without windows: rows whose times are close, or that are kept for a time to live.

What is held of a key is sorted by time, so that partners are found, and forgotten, without looking at all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Protocol

from penstock.keys import has_null
from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.operators.join import Combine, SideBySide
from penstock.operators.windows import LATE
from penstock.rows import Row, RowType
from penstock.timing import FOREVER, Ticks, TimeKind

LEFT, RIGHT = 0, 1
GRID = 32
"""Into how many steps a time to live is divided: what is older than it is forgotten at the next one."""


class Reach(Protocol):
    """Say which rows are partners by their times, and how long a row is kept."""

    @property
    def grid(self) -> tuple[Ticks, Ticks] | None:
        """Return the grid of marks that matter, as `Logic.mark_grid`."""

    @property
    def delay(self) -> Ticks:
        """Return how far below the watermark a row may be when it is forgotten."""

    @property
    def pause(self) -> Ticks:
        """Return how long a key may wait until it looks for what is forgotten."""

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
        """Return the period of the grid: marks between its points change nothing, and need not be told."""
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


class _Entry(NamedTuple):
    position: Position
    time: Ticks
    row: Row


class _Held(NamedTuple):
    """What is held of a key."""

    times: tuple[list[Ticks], list[Ticks]]
    """The times of each side's rows, ascending."""
    entries: tuple[list[_Entry], list[_Entry]]
    """The rows, at the same places."""
    alone: dict[Position, tuple[int, Ticks, Row]]
    """Rows (side, time, row) that come out when they are forgotten, unless a partner comes before."""
    look: tuple[Ticks, Position] | None
    """The timer at which the key looks for what is forgotten."""


@dataclass(frozen=True)
class TimedJoin(Logic):
    """Emit a pair at its later row, matches in the other side's order; rows without a partner when they are forgotten.

    A row that may come out alone has a timer of its own. To forget the others is nothing that anybody sees, so that a
    key has one timer for all of them.
    """

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    ports = 2
    reach: Reach
    combine: Combine | None
    """None where left rows come out as they are: of a semi or anti join."""
    how: str
    returns: RowType | None = None

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
        met = [] if null or state is None else self._partners(state, port, time, watermark)
        forgotten = reach.forgets(port, time)
        gone = forgotten <= watermark
        waits = not met and self.how in (("left", "outer", "anti"), ("right", "outer"))[port]
        # First everything that may fail (the user's function), then the changes.
        self._emit_pairs(context, port, row, met)
        if waits and gone:
            self._emit_alone(context, port, time, row)
        once = self.combine is None
        held = state or _Held(([], []), ([], []), {}, None)
        for entry in met:
            held.alone.pop(entry.position, None)
        if met and once and port == RIGHT:
            self._drop(held, {entry.position for entry in met})
        if gone or (met and once and port == LEFT):
            return _or_nothing(held)
        if waits:
            held.alone[context.position] = (port, time, row)
            context.timer(forgotten, context.position)
        if null:
            return _or_nothing(held)
        place = bisect_right(held.times[port], time)
        held.times[port].insert(place, time)
        held.entries[port].insert(place, _Entry(context.position, time, row))
        if held.look is None or held.look[0] > forgotten + reach.pause:
            held = held._replace(look=(context.timer(forgotten, context.position), context.position))
        return held

    def _partners(self, held: _Held, port: int, time: Ticks, watermark: Ticks) -> list[_Entry]:
        """Return the rows of the other side that a row pairs with, in their order."""
        first, last = self.reach.partners(port, time, watermark)
        times = held.times[1 - port]
        found = held.entries[1 - port][bisect_left(times, first) : bisect_right(times, last)]
        if len(found) > 1:
            found.sort(key=itemgetter(0))
        return found

    def _drop(self, held: _Held, positions: set[Position]) -> None:
        """Forget left rows that have met their first partner."""
        kept = [entry for entry in held.entries[LEFT] if entry.position not in positions]
        held.entries[LEFT][:] = kept
        held.times[LEFT][:] = [entry.time for entry in kept]

    def _emit_pairs(self, context: Context, port: int, row: Row, met: list[_Entry]) -> None:
        if self.combine is not None:
            for entry in met:
                made = self.combine(row, entry.row) if port == LEFT else self.combine(entry.row, row)
                context.emit(self._normal(made), max(context.time, entry.time))
        elif self.how == "semi":
            for entry in met[: 1 if port == LEFT else None]:
                context.emit(row if port == LEFT else entry.row, max(context.time, entry.time))

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
            del state.alone[opened]
        if state.look == (fire, opened):
            state = state._replace(look=self._forget(state, fire, opened))
            if state.look is not None:
                # Not by `context.timer`: it may be before the mark that fires now.
                context.registered.append(state.look)
        return _or_nothing(state)

    def _waiting(self, held: _Held, fire: Ticks, opened: Position) -> tuple[int, Ticks, Row] | None:
        found = held.alone.get(opened)
        return None if found is None or self.reach.forgets(found[0], found[1]) != fire else found

    def _forget(self, held: _Held, fire: Ticks, opened: Position) -> tuple[Ticks, Position] | None:
        """Drop the rows that are forgotten at a watermark; return when to look again, None if nothing is left."""
        following = []
        for port in (LEFT, RIGHT):
            count = bisect_left(held.times[port], self.reach.oldest(port, fire))
            del held.times[port][:count], held.entries[port][:count]
            following += [self.reach.forgets(port, time) for time in held.times[port][:1]]
        return (max(min(following), fire + self.reach.pause), opened) if following else None

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is not None and self._waiting(state, fire, opened) is not None:
            del state.alone[opened]
        return _or_nothing(state)

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        if state is None:
            return []
        alone = [(self.reach.forgets(port, time), position) for position, (port, time, _) in state.alone.items()]
        return [*alone, *([] if state.look is None else [state.look])]

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        if self.combine is None:
            return inputs[LEFT]
        return self.combine.result_type(inputs) if isinstance(self.combine, SideBySide) else self.returns

    def functions(self) -> list[Any]:
        return [] if self.combine is None else [self.combine]


def _or_nothing(held: _Held | None) -> _Held | None:
    """Return what is held of a key, None where that is nothing."""
    return held if held is not None and (held.times[LEFT] or held.times[RIGHT] or held.alone) else None
