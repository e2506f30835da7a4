"""Windows: tumbling, sliding, session and count, for each key or for the whole stream.

A time window closes when the watermark reaches its end; a row whose windows have all closed leaves on the
`late` port. What happens inside a window is a `Fold`, so that each window kind is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import FlowError
from penstock.operators.aggregates import Aggregation
from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.operators.scan import aggregate_type
from penstock.rows import Row, RowType, record_class
from penstock.timing import FOREVER, Duration, Ticks, TimeKind, same_unit, ticks, time_type

LATE = 1
"""The output port of rows that came after their window had closed."""


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size, side by side."""

    size: Duration
    offset: Duration = 0


@dataclass(frozen=True)
class Sliding:
    """Windows of one size, a new one every `every`."""

    size: Duration
    every: Duration
    offset: Duration = 0


@dataclass(frozen=True)
class Session:
    """Windows that end when no row came for `gap`."""

    gap: Duration


@dataclass(frozen=True)
class Count:
    """Windows of `size` rows."""

    size: int


WindowSpec = Tumbling | Sliding | Session | Count


def as_spec(spec: WindowSpec | Duration) -> WindowSpec:
    """Return windows as they are described; a size alone tumbles."""
    return spec if isinstance(spec, WindowSpec) else Tumbling(spec)


class Window(NamedTuple):
    """Name a window for the user: its key, and its bounds (for count windows: its number, and None)."""

    key: Any
    start: Any
    end: Any


class Fold(Protocol):
    """What happens inside a window: rows go in one by one, one row comes out at the close."""

    def add(self, state: Any, row: Row) -> Any:
        """Take a row in; `state` is None for the first."""

    def close(self, state: Any, window: Window) -> Row:
        """Return the window's row."""

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        """Tell the type of the window's row."""

    def functions(self) -> list[Any]:
        """List the user's functions."""


@dataclass(frozen=True)
class AggregateFold:
    """Emit (key, window bounds, aggregates)."""

    aggregation: Aggregation
    key: Key | None
    bounds: tuple[str, ...]

    def add(self, state: Any, row: Row) -> Any:
        return self.aggregation.step(state, row)

    def close(self, state: Any, window: Window) -> Row:
        names = self.key.names if self.key else ()
        values = self.key.values(window.key) if self.key else ()
        bounds = (window.start, window.end)[: len(self.bounds)]
        cls = record_class((*names, *self.bounds, *self.aggregation.names))
        return tuple.__new__(cls, (*values, *bounds, *self.aggregation.results(state)))

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return aggregate_type(self.aggregation, self.key, row, bounds)

    def functions(self) -> list[Any]:
        return self.aggregation.functions()


@dataclass(frozen=True)
class ReduceFold:
    """Emit the rows of the window combined by a function, beginning with the first."""

    function: Callable[[Any, Row], Any]
    returns: RowType | None

    def add(self, state: Any, row: Row) -> Any:
        value = row if state is None else self.function(state, row)
        return value if self.returns is None else self.returns.normalize(value)

    def close(self, state: Any, window: Window) -> Row:
        return state

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return self.returns or row

    def functions(self) -> list[Any]:
        return [self.function]


@dataclass(frozen=True)
class ApplyFold:
    """Emit what `function(window, rows)` returns for all rows of the window."""

    function: Callable[[Window, list[Row]], Row]
    returns: RowType | None

    def add(self, state: Any, row: Row) -> Any:
        if state is None:
            return [row]
        state.append(row)  # cannot fail, so a row that fails elsewhere still changes nothing
        return state

    def close(self, state: Any, window: Window) -> Row:
        result = self.function(window, list(state))
        return result if self.returns is None else self.returns.normalize(result)

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return self.returns

    def functions(self) -> list[Any]:
        return [self.function]


@dataclass(frozen=True)
class Windowed(Logic):
    """Base of the window logics."""

    fold_: Fold
    key: Key | None

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        return self.fold_.result_type(inputs[0], self.key, self.bounds(time))

    def bounds(self, time: TimeKind) -> list[pa.Field]:
        """Return the fields that name the window in its row."""
        return [pa.field("window_start", time_type(time)), pa.field("window_end", time_type(time))]

    def functions(self) -> list[Any]:
        return self.fold_.functions()


@dataclass(frozen=True)
class TimeWindows(Windowed):
    """Tumbling and sliding windows. State: {start: (fold state, position of the opening row)}."""

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    size: Ticks = 0
    every: Ticks = 0
    offset: Ticks = 0

    @property
    def mark_grid(self) -> tuple[Ticks, Ticks]:  # type: ignore[override]
        """Windows end at offset + size + n * every, so other marks change nothing."""
        return self.every, (self.offset + self.size) % self.every

    def starts(self, time: Ticks) -> Iterable[Ticks]:
        """List the starts of the windows that a time falls in, earliest first."""
        last = time - (time - self.offset) % self.every
        first = last - ((self.size - 1 - (time - last)) // self.every) * self.every
        return range(first, last + 1, self.every)

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        windows = dict(state or ())
        late = True
        for start in self.starts(context.time):
            if start + self.size <= context.watermark:
                continue
            late = False
            inside, opened = windows.get(start, (None, context.position))
            if start not in windows:
                context.timer(start + self.size, opened)
            windows[start] = (self.fold_.add(inside, row), opened)
        if late:
            context.emit(row, port=LATE)
        return windows or None

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        # At the end of the source every open window closes, each at its own end.
        start = fire - self.size
        inside, _ = state[start]
        window = Window(context.key, context.show(start), context.show(fire))
        context.emit(self.fold_.close(inside, window), fire - 1)
        return self.expire(state, fire, opened)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        return {start: held for start, held in state.items() if start + self.size != fire} or None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(start + self.size, opened) for start, (_, opened) in (state or {}).items()]


class _Session(NamedTuple):
    start: Ticks
    end: Ticks
    rows: list[tuple[Position, Row]]
    inside: Any
    """The fold of the rows."""

    @property
    def opened(self) -> Position:
        return self.rows[0][0]


@dataclass(frozen=True)
class SessionWindows(Windowed):
    """Session windows. State: the open sessions with their rows, because a row between two joins them.

    Rows whose times are `gap` apart or more are in different sessions, in whatever order they come. A session has one
    timer, set when it opens: where it has grown by then, the timer is set again for its new end.
    """

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    gap: Ticks = 0

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        sessions: tuple[_Session, ...] = state or ()
        start, end = context.time, context.time + self.gap
        if len(sessions) == 1 and sessions[0].start <= start < sessions[0].end:
            # Nearly every row: it goes into the one session that is open. The timer that waits will find it grown.
            first, last, rows, inside = sessions[0]
            inside = self.fold_.add(inside, row)
            rows.append((context.position, row))
            return (_Session(first, max(last, end), rows, inside),)
        met = [s for s in sessions if s.start < end and start < s.end]
        if not met and end <= context.watermark:
            context.emit(row, port=LATE)
            return state
        if not met:
            joined = _Session(start, end, [(context.position, row)], self.fold_.add(None, row))
        elif len(met) == 1:
            (one,) = met
            inside = self.fold_.add(one.inside, row)
            one.rows.append((context.position, row))
            joined = _Session(min(start, one.start), max(end, one.end), one.rows, inside)
        else:
            # Rows fold in their order, so those of sessions that become one fold again from the start.
            rows, inside = sorted((pair for s in met for pair in s.rows), key=lambda pair: pair[0]), None
            for held in (*(held for _, held in rows), row):
                inside = self.fold_.add(inside, held)
            rows.append((context.position, row))
            joined = _Session(min(start, *(s.start for s in met)), max(end, *(s.end for s in met)), rows, inside)
        if not met:
            context.timer(joined.end, joined.opened)
        if len(met) == len(sessions):
            return (joined,)
        return (*(s for s in sessions if not any(s is m for m in met)), joined)

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        for session in state or ():
            if session.opened != opened:
                continue
            if session.end > fire:
                # It has grown since. Not by `context.timer`: its end may be behind the mark that fires now.
                context.registered.append((session.end, opened))
            else:
                window = Window(context.key, context.show(session.start), context.show(session.end))
                context.emit(self.fold_.close(session.inside, window), session.end - 1)
        return self.expire(state, fire, opened)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        return tuple(s for s in state or () if s.end != fire or s.opened != opened) or None

    def moved(self, state: Any, opened: Position) -> Ticks | None:
        return next((session.end for session in state or () if session.opened == opened), None)

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(session.end, session.opened) for session in state or ()]


@dataclass(frozen=True)
class CountWindows(Windowed):
    """Windows of n rows.

    State: (fold state, rows so far, number of the window, position of the opening row, time of the last row).
    """

    emits: ClassVar[Emits] = "timed"
    size: int = 0
    mark_grid = (FOREVER, 0)

    def bounds(self, time: TimeKind) -> list[pa.Field]:
        return [pa.field("window", pa.int64())]

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        inside, count, number, opened, _ = state or (None, 0, 0, context.position, 0)
        if count == 0:
            opened = context.position
            context.timer(FOREVER, opened)
        inside, count = self.fold_.add(inside, row), count + 1
        if count < self.size:
            return inside, count, number, opened, context.time
        context.emit(self.fold_.close(inside, Window(context.key, number, None)))
        return None, 0, number + 1, opened, context.time

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        if state[1] == 0 or state[3] != opened:
            return state
        inside, _, number, _, time = state
        context.emit(self.fold_.close(inside, Window(context.key, number, None)), max(time, context.time))
        return self.expire(state, fire, opened)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        return None, 0, state[2] + 1, opened, state[4]

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(FOREVER, state[3])] if state and state[1] else []


def window_logic(spec: WindowSpec, fold: Fold, key: Key | None, operator: str) -> tuple[Windowed, TimeKind | None]:
    """Make the logic of a window specification, and tell the unit that its sizes were given in."""
    if isinstance(spec, Count):
        if not isinstance(spec.size, int) or spec.size < 1:
            raise FlowError(f"operator {operator!r}: a count window needs at least one row, not {spec.size!r}")
        return CountWindows(fold, key, size=spec.size), None
    if isinstance(spec, Session):
        gap, kind = ticks(spec.gap, operator, "gap")
        _positive(gap, "gap", operator)
        return SessionWindows(fold, key, gap=gap), kind
    size, kind = ticks(spec.size, operator)
    every = size if isinstance(spec, Tumbling) else same_unit(spec.every, kind, operator, "every")
    offset = same_unit(spec.offset, kind, operator, "offset")
    _positive(size, "size", operator)
    _positive(every, "every", operator)
    if every > size:
        raise FlowError(
            f"operator {operator!r}: a sliding window's every={every} is larger than its size={size}, "
            f"so rows would fall between windows; filter them out first if that is meant"
        )
    return TimeWindows(fold, key, size=size, every=every, offset=offset), kind


def _positive(value: Ticks, option: str, operator: str) -> None:
    if value <= 0:
        raise FlowError(f"operator {operator!r}: a window's {option} must be more than nothing, not {value}")
