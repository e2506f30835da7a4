"""Co-routine operators, in C-Stream's way: an operator with any number of ports owns its loop and waits for rows.

Rows of all ports arrive merged by position, which is the one cursor: an operator sees only what is behind it, so no
wait depends on timing. A suspended frame cannot be saved, so none is kept: a co-routine that comes to a wait that is
not satisfied is dropped, and begins again from its start once the wait is. What matters is in `ctx.state` and in the
rows that it has not popped yet. Where an engine shares its workers out by time, a co-routine whose time is over is put
aside between two rows, or where it awaits an emit: then its frame is kept in memory until it goes on.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from penstock.errors import FlowError, PenstockError
from penstock.operators.base import Context, Emits, Key, Logic, Paused, Position
from penstock.rows import Row, RowType
from penstock.timing import FOREVER, Ticks, TimeKind

PATIENCE = 100_000
"""How many waits in a row may be over at once, with no row popped between them, before it is taken for a loop."""


class Operator:
    """Derive from this for an operator that owns its loop, with any number of input and output ports.

    `process` runs from its start each time that the wait in which it was is satisfied, until it comes to a wait that
    is not: what it must remember goes to `ctx.state`, never to a local variable or to the object itself.
    """

    inputs: int | None = 1
    """The number of input ports; None: as many as there are streams."""
    outputs: int = 1
    control: tuple[int, ...] = ()
    """The input ports that rows may be fed back to; see `penstock.feedback`."""
    max_pending: int = 100_000
    """How many rows may wait in one port."""

    async def process(self, ctx: OperatorContext) -> None:
        """Wait for rows, pop and emit; return when nothing more is to be done."""
        raise NotImplementedError(f"{type(self).__name__} has no async def process(self, ctx)")

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        """Tell the row type of each output port where no schema is given, None where it is not known."""
        return [None] * self.outputs

    def check(self, name: str, times: Sequence[TimeKind | None]) -> None:
        """Refuse streams that do not fit, by a FlowError: `times` has the unit of event time of each."""


class Wait(NamedTuple):
    """What a co-routine waits for: so many rows in all of some ports, or in any of them."""

    every: bool
    counts: tuple[tuple[int, int], ...]

    def satisfied(self, pending: Sequence[deque[Row]]) -> bool:
        """Tell whether the rows are there."""
        every = self.every
        for port, count in self.counts:  # a loop, because generators take twice the time of it
            if (len(pending[port]) >= count) is not every:
                return not every
        return every

    def hopeless(self, pending: Sequence[deque[Row]], closed: Collection[int]) -> bool:
        """Tell whether the rows that are missing can never come, because their ports are closed."""
        missing = [port in closed for port, count in self.counts if len(pending[port]) < count]
        return any(missing) if self.every else all(missing)

    def __str__(self) -> str:
        counts = ", ".join(f"{port}: {count}" for port, count in self.counts)
        return f"wait_for_{'all' if self.every else 'any'}({{{counts}}})"


@lru_cache(maxsize=1024)
def _checked_wait(every: bool, counts: tuple[tuple[int, int], ...], ports: int, most: int) -> Wait:
    """Make a wait, and refuse one for ports that are not there, or for rows that a port can never hold."""
    wait = Wait(every, counts)
    if not counts or any(count < 1 for _, count in counts):
        raise PenstockError(f"{wait} must name at least one port, and at least one row for each")
    for port, count in counts:
        if not 0 <= port < ports:
            raise PenstockError(_no_port(port, ports))
        if count > most:
            raise PenstockError(
                f"{wait} needs {count} rows in port {port}, and max_pending={most} is the most that a port holds; give "
                f"operate() a larger max_pending="
            )
    return wait


class _Waiting:
    """What `wait_for_all` and `wait_for_any` return: goes on at once, or hands itself to the one who drives."""

    __slots__ = ("context", "wait")

    def __init__(self, context: OperatorContext, wait: Wait) -> None:
        self.context, self.wait = context, wait

    def __await__(self) -> Generator[_Waiting, None, bool]:
        result = self.context._reach(self.wait)
        if result is None:
            yield self
            raise AssertionError("a co-routine that waits is never resumed")
        return result

    def __bool__(self) -> bool:
        raise PenstockError(f"{self.wait} gives its answer only when it is awaited; write await ctx.{self.wait}")


class _Sending:
    """What `emit` returns. The row is on its way already; awaiting is where an operator may be put aside."""

    __slots__ = ("awaited", "context")

    def __init__(self, context: Context) -> None:
        self.awaited, self.context = True, context

    def __await__(self) -> Generator[_Sending, None, None]:
        self.awaited = True
        go_on = self.context.go_on
        if go_on is not None and not go_on():
            yield self


class OperatorContext:
    """What a co-routine sees: the rows that wait in its ports, its state, and ways to wait and to emit."""

    __slots__ = ("_closed", "_context", "_live", "_logic", "_pending", "_sending", "_waits", "state")

    def __init__(self, logic: CoroutineLogic, context: Context, held: _Held, closed: Collection[int]) -> None:
        self._logic, self._context, self._pending, self._closed = logic, context, held.pending, closed
        self._live, self._waits, self._sending = True, 0, _Sending(context)
        self.state: Any = held.state
        """What the operator remembers: a dict, empty at first; change it, or assign anything that pickles."""

    @property
    def inputs(self) -> int:
        """Return the number of input ports."""
        return len(self._pending)

    @property
    def time(self) -> Any:
        """Return the event time of the row that satisfied the wait, at the end the latest; 0 where rows have none."""
        return self._context.show(self._context.time)

    def wait_for_all(self, counts: Mapping[int, int]) -> _Waiting:
        """Wait until each port has its number of rows; awaiting gives False once that can never be."""
        return self._wait(True, counts)

    def wait_for_any(self, counts: Mapping[int, int]) -> _Waiting:
        """Wait until one of the ports has its number of rows; awaiting gives False once that can never be."""
        return self._wait(False, counts)

    def pop(self, port: int = 0) -> Row:
        """Take the oldest row of a port."""
        pending = self._port(port)
        if not pending:
            raise PenstockError(f"pop({port}) finds no row; wait for it with await ctx.wait_for_all({{{port}: 1}})")
        self._waits = 0
        return pending.popleft()

    def peek(self, port: int = 0, index: int = 0) -> Row:
        """Look at a row of a port, the oldest first, and leave it there."""
        pending = self._port(port)
        if not 0 <= index < len(pending):
            raise PenstockError(
                f"peek({port}, {index}) finds {len(pending)} rows; wait for it with "
                f"await ctx.wait_for_all({{{port}: {index + 1}}})"
            )
        return pending[index]

    def len(self, port: int = 0) -> int:
        """Return how many rows wait in a port."""
        return len(self._port(port))

    def closed(self, port: int = 0) -> bool:
        """Tell whether no more rows can come to a port: all sources above it have ended."""
        self._port(port)
        return port in self._closed

    def emit(self, row: Row, port: int = 0) -> _Sending:
        """Send a row out, at the place of the row that satisfied the wait."""
        self._usable()
        types = self._logic.types
        if not 0 <= port < len(types):
            raise PenstockError(f"emit(..., port={port}): the operator has {len(types)} output ports, counted from 0")
        declared = types[port]
        self._context.emit(row if declared is None else declared.normalize(row), port=port)
        self._sending.awaited = False
        return self._sending

    def _wait(self, every: bool, counts: Mapping[int, int]) -> _Waiting:
        return _Waiting(self, _checked_wait(every, tuple(counts.items()), len(self._pending), self._logic.max_pending))

    def _reach(self, wait: Wait) -> bool | None:
        """Answer a wait, None where it is neither satisfied nor impossible."""
        self._usable()
        self._waits += 1
        if self._waits > PATIENCE:
            raise PenstockError(
                f"{wait} has been over {PATIENCE} times with no row popped in between; pop what was waited for, and "
                f"leave the loop when a wait gives False"
            )
        if wait.satisfied(self._pending):
            return True
        return False if self._closed and wait.hopeless(self._pending, self._closed) else None

    def _port(self, port: int) -> deque[Row]:
        if not self._live:
            self._usable()
        if not 0 <= port < len(self._pending):
            raise PenstockError(_no_port(port, len(self._pending)))
        return self._pending[port]

    def _usable(self) -> None:
        """Refuse a context whose run is over, and an emit that was not awaited."""
        if not self._live:
            raise PenstockError(
                "the context was used after process() had come to a wait, for example in a finally block; it "
                "begins again from its start, so keep what is to be done in ctx.state"
            )
        if not self._sending.awaited:
            raise PenstockError("emit() was not awaited; write await ctx.emit(row)")


@dataclass(slots=True)
class _Held:
    """What is kept of a co-routine between rows."""

    state: Any
    pending: tuple[deque[Row], ...]
    wait: Wait | None
    """What it waits for; None before its first run."""
    done: bool
    """Whether it has returned: rows that come later are dropped."""
    opened: Position
    time: Ticks
    """The latest time of its rows: its end is not before that."""


class _Run(Paused):
    """A run of a co-routine, from its start to a wait that is not satisfied, or to its end."""

    __slots__ = ("_held", "_logic", "_port", "_routine", "_view")

    def __init__(
        self, logic: CoroutineLogic, context: Context, held: _Held, closed: Collection[int], port: int | None = None
    ) -> None:
        """Begin with what a row of this port satisfied; without one, with what can never be, as ports are closed."""
        self._logic, self._held, self._port = logic, held, port
        self._view = OperatorContext(logic, context, held, closed)
        self._routine = logic.operator.process(self._view)

    def resume(self) -> Any:
        """Begin, or go on behind an emit; return what is held, or this run where it is put aside at an emit."""
        view, held = self._view, self._held
        try:
            reached: Any = self._routine.send(None)
        except StopIteration:
            view._usable()
            held.state, held.done = view.state, True
            for pending in held.pending:
                pending.clear()
        except RuntimeError as error:
            # What other libraries' awaitables raise where their own loop is not there to drive them.
            if "event loop" in str(error) or "async context" in str(error):
                raise PenstockError(_foreign(str(error))) from error
            raise
        else:
            if reached is view._sending:
                return self
            if not isinstance(reached, _Waiting) or reached.context is not view:
                self._routine.close()
                raise PenstockError(_foreign(f"it gave {reached!r}"))
            view._usable()
            held.state, held.wait = view.state, reached.wait
            view._live = False
            self._routine.close()
        if self._port is not None:
            return self._logic.consumed(held, self._port)
        return held if len(view._closed) < len(held.pending) else None  # at the end nothing is kept

    def drop(self) -> None:
        """Close the frame; what it says to that is nobody's business any more."""
        self._view._live = False
        with suppress(Exception):
            self._routine.close()


@dataclass(frozen=True)
class CoroutineLogic(Logic):
    """Run a co-routine operator. State: its own, the rows that wait in its ports, what it waits for."""

    emits: ClassVar[Emits] = "timed"
    waits: ClassVar[bool] = True
    mark_grid = (FOREVER, 0)
    operator: Operator
    types: tuple[RowType | None, ...]
    """The row type of each output port."""
    ports: int = 1
    max_pending: int = Operator.max_pending

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        held: _Held | None = state
        if held is None:
            pending: tuple[deque[Row], ...] = tuple(deque() for _ in range(self.ports))
            held = _Held({}, pending, None, False, context.position, context.time)
            context.timer(FOREVER, held.opened)
        held.time = max(held.time, context.time)
        if held.done:
            return held
        held.pending[port].append(row)
        if held.wait is None or held.wait.satisfied(held.pending):
            return _Run(self, context, held, context.closed, port).resume()
        return self.consumed(held, port)

    def consumed(self, held: _Held, port: int) -> _Held:
        """Return what is held, and refuse a port that holds too much."""
        if len(held.pending[port]) > self.max_pending:
            raise PenstockError(
                f"input port {port} holds {len(held.pending[port])} rows that were not consumed, while it waits in "
                f"{held.wait}; max_pending={self.max_pending} is the most: pop or drop rows, bring the streams in "
                f"step (order_by on their sources), or give operate() a larger max_pending="
            )
        return held

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        held: _Held | None = state
        if held is not None and not held.done:
            context.time = max(context.time, held.time)
            return _Run(self, context, held, range(self.ports)).resume()
        return None

    def on_close(self, context: Context, state: Any, port: int) -> Any:
        held: _Held | None = state
        if held is None or held.done or held.wait is None or not held.wait.hopeless(held.pending, context.closed):
            return held
        context.time = max(context.time, held.time)
        return _Run(self, context, held, context.closed).resume()

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [] if state is None else [(FOREVER, state.opened)]

    def output_type(
        self, inputs: Sequence[RowType | None], keys: tuple[Key, ...] | None, time: TimeKind
    ) -> RowType | None:
        return self.types[0] if self.types else None

    def functions(self) -> list[Any]:
        return [self.operator]


def _no_port(port: int, ports: int) -> str:
    return f"there is no input port {port}; the operator has {ports}, counted from 0"


def _foreign(found: str) -> str:
    return (
        f"process() awaits something that is not Penstock's ({found}); a co-routine operator can await only "
        f"ctx.wait_for_all, ctx.wait_for_any and ctx.emit; do lookups in a map() with an async function above it"
    )


def checked(operator: Any, name: str, inputs: int) -> Operator:
    """Take an operator, or make one of its class, and refuse what cannot run over so many streams."""
    operator = operator() if isinstance(operator, type) else operator
    if not isinstance(operator, Operator):
        raise FlowError(f"operator {name!r}: {operator!r} is no Operator; derive its class from penstock.Operator")
    if not inspect.iscoroutinefunction(operator.process):
        raise FlowError(
            f"operator {name!r}: {type(operator).__name__}.process is no co-routine; write async def "
            f"process(self, ctx), without yield"
        )
    wanted = operator.inputs
    if inputs < 1 or (wanted is not None and wanted != inputs):
        needs = f"{wanted} input streams" if wanted is not None else "at least one input stream"
        raise FlowError(f"operator {name!r}: {type(operator).__name__} has {needs}, and is given {inputs}")
    if not isinstance(operator.outputs, int) or operator.outputs < 1:
        raise FlowError(f"operator {name!r}: outputs={operator.outputs!r}; an operator has at least one output port")
    return operator
