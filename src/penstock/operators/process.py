"""A user's class with state and timers for each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.errors import FlowError
from penstock.operators.base import Context, Emits, Logic, Position
from penstock.rows.records import Row, RowType
from penstock.rows.timing import BEFORE, FOREVER, Ticks, TimeKind, time_to_ticks
from penstock.rows.values import snapshot


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
