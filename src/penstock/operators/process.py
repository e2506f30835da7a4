"""State of each key and event time: a user's class with state and timers, rows sorted, keys that are forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.errors import FlowError
from penstock.operators.base import Context, Emits, Logic, Position
from penstock.operators.join import Lifetime
from penstock.operators.windows import LATE
from penstock.rows.records import Row, RowType
from penstock.rows.timing import BEFORE, FOREVER, Ticks, TimeKind, time_to_ticks
from penstock.rows.values import snapshot


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


class Process:
    """Derive from this for full control of a key's state and timers.

    `on_row` takes each row of the key in order (of two streams that were connected, `on_left` and `on_right` do);
    `on_timer` takes the timers that were set; `on_end` runs once for each key when the source is exhausted. State lives
    in `context.state`, never in the object itself: one object serves every key, and a key may be served by another
    process in the next epoch.
    """

    def on_row(self, row: Row, context: ProcessContext) -> None:
        """Take one row of the key."""
        raise NotImplementedError

    def on_left(self, row: Row, context: ProcessContext) -> None:
        """Take one row of the key from the stream that another was connected to."""
        raise NotImplementedError

    def on_right(self, row: Row, context: ProcessContext) -> None:
        """Take one row of the key from the stream that was connected."""
        raise NotImplementedError

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        """Take a timer that is due."""

    def on_end(self, context: ProcessContext) -> None:
        """Take the end of the stream."""


ProcessLike = Process | type[Process]


class _KeyState(NamedTuple):
    value: Any
    timers: tuple[Ticks, ...]
    opened: Position
    time: Ticks
    """The latest time of the key's rows and timers: its end is not before that."""


class ProcessContext:
    """What a `Process` sees: the key, its state, the time, and ways to emit and to set timers."""

    __slots__ = ("_context", "_timers", "key", "state")

    def __init__(self, context: Context, state: Any, timers: set[Ticks]) -> None:
        self._context, self._timers = context, timers
        self.key = context.key
        self.state = state
        """The key's state: assign to it. None forgets the key, once it has no timers."""

    @property
    def time(self) -> Any:
        """The event time of the row or timer at hand."""
        return self._context.show(self._context.time)

    @property
    def watermark(self) -> Any:
        """The watermark: no timer at or before it is still waiting.

        None before the first row; at the end of the stream later than every time.
        """
        mark = self._context.watermark
        return None if mark == BEFORE else self._context.show(mark)

    def emit(self, row: Row) -> None:
        """Send a row downstream."""
        self._context.emit(snapshot(row))

    def set_timer(self, time: Any) -> Any:
        """Ask for `on_timer` when the watermark is at a time; return the time it fires at, to cancel it by.

        That is the time asked for, or, where that has passed, the first one after the watermark. None at the end of
        the stream, when nothing is set any more.
        """
        fire = max(time_to_ticks(time), self._context.watermark + 1)
        if fire > FOREVER:
            return None
        self._timers.add(fire)
        return self._context.show(fire)

    def cancel_timer(self, time: Any) -> None:
        """Forget a timer by the time that `set_timer` returned."""
        self._timers.discard(time_to_ticks(time))


def process_logic(process: Any, returns: RowType | None, name: str, handlers: tuple[str, ...]) -> ProcessLogic:
    if not isinstance(process, Process):
        raise FlowError(f"operator {name!r}: {process!r} is no Process; derive its class from penstock.Process")
    for handler in handlers:
        if getattr(type(process), handler) is getattr(Process, handler):
            raise FlowError(
                f"operator {name!r}: {type(process).__name__} has no {handler}(self, row, context); write on_row for "
                f"process(), on_left and on_right for connect()"
            )
    return ProcessLogic(process, returns, handlers)


@dataclass(frozen=True)
class ProcessLogic(Logic):
    """Run a `Process`. State: the user's value, the timers that wait, the position of the opening row."""

    emits: ClassVar[Emits] = "timed"
    process: Process
    returns: RowType | None = None
    handlers: tuple[str, ...] = ("on_row",)
    """The methods that take the rows of each port."""

    @property
    def ports(self) -> int:  # type: ignore[override]
        return len(self.handlers)

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        held = state or _KeyState(None, (), context.position, context.time)
        result = self._call(context, held, lambda view: getattr(self.process, self.handlers[port])(row, view))
        if state is None and result is not None and self._has_end:
            context.timer(FOREVER, held.opened)
        return result

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        if state is None or state.opened != opened:
            return state
        if fire == FOREVER:
            context.time = max(context.time, state.time)
            return self._call(context, state, self.process.on_end)
        if fire not in state.timers:
            return state
        rest = self._without(state, fire)
        return self._call(context, rest, lambda view: self.process.on_timer(context.show(fire), view))

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        rest = self._without(state, fire)
        return None if rest.value is None and not rest.timers else rest

    def _without(self, state: _KeyState, fire: Ticks) -> _KeyState:
        return state._replace(timers=tuple(timer for timer in state.timers if timer != fire))

    def _call(self, context: Context, held: _KeyState, action: Any) -> _KeyState | None:
        timers = set(held.timers)
        view = ProcessContext(context, held.value, timers)
        action(view)
        if self.returns is not None:
            normalize = self.returns.normalize
            context.emitted = [(port, normalize(row), time) for port, row, time in context.emitted]
        latest = held.time if held.time > context.time else context.time
        if not timers:
            return None if view.state is None else _KeyState(view.state, (), held.opened, latest)
        for timer in sorted(timers - set(held.timers)):
            context.timer(timer, held.opened)
        return _KeyState(view.state, tuple(sorted(timers)), held.opened, latest)

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        if state is None:
            return []
        ends = [FOREVER] if self._has_end else []
        return [(timer, state.opened) for timer in (*state.timers, *ends)]

    @property
    def _has_end(self) -> bool:
        return type(self.process).on_end is not Process.on_end

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.returns
