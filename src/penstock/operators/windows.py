"""Windows: tumbling, sliding, session and count, for each key or for the whole stream.

A time window closes when the watermark reaches its end; a row whose windows have all closed leaves on the
`late` port. What happens inside a window is a `Fold`, so that each window kind is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from penstock.errors import FlowError, PenstockError
from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.rows.records import Row, RowType
from penstock.rows.timing import FOREVER, Duration, Ticks, TimeKind, Unit, same_unit, ticks, time_type

if TYPE_CHECKING:
    from penstock.operators.window_folds import Fold

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
    """Windows of `size` rows; a key that had no row for `ttl` is forgotten, with the rows of its last window."""

    size: int
    ttl: Duration | None = None


WindowSpec = Tumbling | Sliding | Session | Count


def as_spec(spec: WindowSpec | Duration) -> WindowSpec:
    """Return windows as they are described; a size alone tumbles."""
    return spec if isinstance(spec, WindowSpec) else Tumbling(spec)


class Window(NamedTuple):
    """Name a window for the user: its key, and its bounds (for count windows: its number, and None)."""

    key: Any
    start: Any
    end: Any


WindowState = tuple[Ticks, Ticks, Any, Position, Ticks]
"""A window in a key's state: start, end, fold state, position of the opening row, time of the last row where that
counts. A count window has its number for a start, and for an end the rows so far."""


@dataclass(frozen=True)
class Windowed(Logic):
    fold_: Fold
    key: Key | None

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.fold_.result_type(inputs[0], self.bounds(time))

    def bounds(self, time: TimeKind) -> list[pa.Field]:
        """Return the fields that name the window in its row."""
        return [pa.field("window_start", time_type(time)), pa.field("window_end", time_type(time))]

    def emit(self, context: Context, inside: Any, window: Window, time: Ticks | None = None) -> None:
        """Send out the rows of a window that closes."""
        for row in self.fold_.close(inside, window):
            context.emit(row, time)

    def open_windows(self, state: Any) -> list[WindowState] | None:
        """Return the windows in a key's state; None where one cannot be told without its rows."""
        raise NotImplementedError

    def put(self, state: Any, start: Ticks, end: Ticks, inside: Any, opened: Position, time: Ticks) -> Any:
        """Return a key's state with a window in it, which is new, or has taken rows in since."""
        raise NotImplementedError

    def due(self, end: Ticks) -> Ticks | None:
        """Return when a window's timer is due; None where it needs none."""
        return end

    def taken(self) -> list[Any]:
        return self.fold_.taken()


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
        if state is None or start not in state:
            return state  # it was closed by columns
        inside, _ = state[start]
        window = Window(context.key, context.show(start), context.show(fire))
        self.emit(context, inside, window, fire - 1)
        return self.expire(state, fire, opened)

    def open_windows(self, state: Any) -> list[WindowState]:
        return [(start, start + self.size, *held, 0) for start, held in state.items()]

    def put(self, state: Any, start: Ticks, end: Ticks, inside: Any, opened: Position, time: Ticks) -> Any:
        windows = {} if state is None else state
        windows[start] = (inside, opened)
        return windows

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        del state[fire - self.size]  # not a copy: of many windows that are open, many may close at once
        return state or None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(start + self.size, opened) for start, (_, opened) in (state or {}).items()]


class _Session(NamedTuple):
    start: Ticks
    end: Ticks
    rows: list[tuple[Position, Row]] | None
    """The rows, where the session may have to be joined with another one."""
    inside: Any
    """The fold of the rows."""
    first: Position = None
    """The position of the opening row, where rows are not kept."""

    @property
    def opened(self) -> Position:
        return self.first if self.rows is None else self.rows[0][0]

    def taking(self, position: Position, row: Row, start: Ticks, end: Ticks, inside: Any) -> _Session:
        if self.rows is not None:
            self.rows.append((position, row))
        return _Session(min(start, self.start), max(end, self.end), self.rows, inside, self.first)


@dataclass(frozen=True)
class SessionWindows(Windowed):
    """Session windows. State: the open sessions, with their rows where one may join two of them.

    Rows whose times are `gap` apart or more are in different sessions, in whatever order they come. A session has one
    timer, set when it opens: where it has grown by then, the timer is set again for its new end.
    """

    emits: ClassVar[Emits] = "timed"
    needs_time = True
    gap: Ticks = 0
    one_at_a_time: bool = False
    """Whether the watermark at a row is never below its time. Of two sessions of a key, a mark has then closed the
    earlier one before the later one begins, so nothing is ever joined, and rows need not be kept."""

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        sessions: tuple[_Session, ...] = state or ()
        start, end = context.time, context.time + self.gap
        if len(sessions) == 1 and sessions[0].start <= start < sessions[0].end:
            # Nearly every row: it goes into the one session that is open. The timer that waits will find it grown.
            inside = self.fold_.add(sessions[0].inside, row)
            return (sessions[0].taking(context.position, row, start, end, inside),)
        met = [s for s in sessions if s.start < end and start < s.end]
        if not met and end <= context.watermark:
            context.emit(row, port=LATE)
            return state
        if not met:
            rows = None if self.one_at_a_time else [(context.position, row)]
            joined = _Session(start, end, rows, self.fold_.add(None, row), context.position)
        elif len(met) == 1:
            joined = met[0].taking(context.position, row, start, end, self.fold_.add(met[0].inside, row))
        else:
            joined = self._joined(met, context.position, row, start, end)
        if not met:
            context.timer(joined.end, joined.opened)
        if len(met) == len(sessions):
            return (joined,)
        return (*(s for s in sessions if not any(s is m for m in met)), joined)

    def _joined(self, met: list[_Session], position: Position, row: Row, start: Ticks, end: Ticks) -> _Session:
        """Make one session of several. Rows fold in their order, so theirs fold again from the start."""
        held: list[tuple[Position, Row]] = []
        for session in met:
            if session.rows is None:
                raise PenstockError(
                    "two sessions that did not keep their rows would have to be joined; give the source the slack that "
                    "it had when they began, or start with a new checkpoint"
                )
            held += session.rows
        rows, inside = [*sorted(held, key=lambda pair: pair[0]), (position, row)], None
        for _, each in rows:
            inside = self.fold_.add(inside, each)
        return _Session(min(start, *(s.start for s in met)), max(end, *(s.end for s in met)), rows, inside)

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        for session in state or ():
            if session.opened != opened:
                continue
            if session.end > fire:
                # It has grown since. Not by `context.timer`: its end may be before the mark that fires now.
                context.registered.append((session.end, opened))
            else:
                window = Window(context.key, context.show(session.start), context.show(session.end))
                self.emit(context, session.inside, window, session.end - 1)
        return self.expire(state, fire, opened)

    def open_windows(self, state: Any) -> list[WindowState] | None:
        if len(state) > 1 or state[0].rows is not None:
            return None  # begun when rows were still kept
        return [(session.start, session.end, session.inside, session.opened, 0) for session in state]

    def put(self, state: Any, start: Ticks, end: Ticks, inside: Any, opened: Position, time: Ticks) -> Any:
        others = (session for session in state or () if session.opened != opened)
        return (*others, _Session(start, end, None, inside, opened))

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
        self.emit(context, inside, Window(context.key, number, None))
        return None, 0, number + 1, opened, context.time

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is None or state[1] == 0 or state[3] != opened or fire < FOREVER:
            return state  # nothing waits for it any more, or the timer is that of a time to live
        inside, _, number, _, time = state
        self.emit(context, inside, Window(context.key, number, None), max(time, context.time))
        return self.expire(state, fire, opened)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        return None, 0, state[2] + 1, opened, state[4]

    def open_windows(self, state: Any) -> list[WindowState]:
        inside, count, number, opened, time = state
        return [(number, count, inside, opened, time)]

    def put(self, state: Any, start: Ticks, end: Ticks, inside: Any, opened: Position, time: Ticks) -> Any:
        return inside if end else None, end, start, opened, time

    def due(self, end: Ticks) -> Ticks | None:
        return FOREVER if end else None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [(FOREVER, state[3])] if state and state[1] else []


def window_logic(
    spec: WindowSpec, fold: Fold, key: Key | None, operator: str, in_time: bool = False
) -> tuple[Windowed, Unit | None]:
    """Make the logic of a window specification, and tell the unit that its sizes were given in.

    `in_time` says that the watermark at a row is never below the row's time.
    """
    if isinstance(spec, Count):
        if not isinstance(spec.size, int) or spec.size < 1:
            raise FlowError(f"operator {operator!r}: a count window needs at least one row, not {spec.size!r}")
        return CountWindows(fold, key, size=spec.size), None
    if isinstance(spec, Session):
        gap, kind = ticks(spec.gap, operator, "gap")
        _positive(gap, "gap", operator)
        return SessionWindows(fold, key, gap=gap, one_at_a_time=in_time), kind
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
