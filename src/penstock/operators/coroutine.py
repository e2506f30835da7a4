"""Co-routine operators, in C-Stream's way: an operator with any number of ports owns its loop and waits for rows.

Rows of all ports arrive merged by position, which is the one cursor: an operator sees only what is before it, so no
wait depends on timing. Where nothing is saved (`Context.keeps_frames`) a co-routine that waits is an ordinary suspended
frame, which goes on after its wait. A frame cannot be saved, so where state is (on Spark, with a checkpoint) none is
kept: a co-routine that comes to a wait that is not satisfied is dropped, and begins again from its start once the wait
is. `restarts.py` proves before the run that this makes no difference, or the flow is refused. Where an engine shares
its workers out by time, a co-routine whose time is over is put aside between two rows, or where it awaits an emit.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from penstock.errors import FlowError, PenstockError
from penstock.operators.base import Context, Emits, Logic, Paused, Position
from penstock.operators.ports import IN_MEMORY, PortBuffer, Wait, checked_wait, no_port
from penstock.operators.restarts import doubt
from penstock.rows.records import Row, RowType
from penstock.rows.timing import FOREVER, Ticks, TimeKind
from penstock.rows.values import snapshot

log = logging.getLogger(__name__)

PATIENCE = 100_000
"""How many waits in a row may be over at once, with no row popped between them, before it is taken for a loop."""


class Coroutine:
    """Derive from this for an operator that owns its loop, with any number of input and output ports.

    `process` is an ordinary function: it stands still at a wait, and goes on after it. On Spark, and with a checkpoint,
    it must be one that can begin again from its start at every wait instead (`restartable`).
    """

    inputs: int | None = 1
    """The number of input ports; None: as many as there are streams."""
    outputs: int = 1
    control: tuple[int, ...] = ()
    """The input ports that rows may be fed back to; see `penstock.feedback`."""
    max_pending: int = 1_000_000
    """How many rows may wait in one port; those beyond the first few thousand wait on disk."""
    restartable: bool | None = None
    """Whether `process` may begin again from its start at every wait. None: that is proven from its source."""

    async def process(self, ctx: CoroutineContext) -> None:
        """Wait for rows, pop and emit; return when nothing more is to be done."""
        raise NotImplementedError(f"{type(self).__name__} has no async def process(self, ctx)")

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        """Tell the row type of each output port where no schema is given, None where it is not known."""
        return [None] * self.outputs

    def check(self, name: str, times: Sequence[TimeKind | None]) -> None:
        """Refuse streams that do not fit, by a FlowError: `times` has the unit of event time of each."""


class _Waiting:
    """What `wait_for_all` and `wait_for_any` return: goes on at once, or hands itself to what drives the co-routine."""

    __slots__ = ("context", "wait")

    def __init__(self, context: CoroutineContext, wait: Wait) -> None:
        self.context, self.wait = context, wait

    def __await__(self) -> Generator[_Waiting, None, bool]:
        while (result := self.context._reach(self.wait)) is None:
            yield self
        return result

    def __bool__(self) -> bool:
        raise PenstockError(f"{self.wait} gives its answer only when it is awaited; write await ctx.{self.wait}")


class _Sending:
    """What `emit` returns. The row is on its way already; awaiting is where an operator may be put aside."""

    __slots__ = ("awaited", "context")

    def __init__(self, context: CoroutineContext) -> None:
        self.awaited, self.context = True, context

    def __await__(self) -> Generator[_Sending, None, None]:
        self.awaited = True
        go_on = self.context._context.go_on
        if go_on is not None and not go_on():
            yield self


class CoroutineContext:
    """What a co-routine sees: the rows that wait in its ports, its state, and ways to wait and to emit."""

    __slots__ = ("_closed", "_context", "_live", "_logic", "_pending", "_sending", "_waits", "state")

    _context: Context
    """That of the row at hand."""
    _closed: Collection[int]

    def __init__(self, logic: CoroutineLogic, held: _Held) -> None:
        self._logic, self._pending = logic, held.pending
        self._live, self._waits, self._sending = True, 0, _Sending(self)
        self.state: Any = held.state
        """What the operator remembers: a dict, empty at first; change it, or assign anything that pickles."""

    @property
    def inputs(self) -> int:
        """The number of input ports."""
        return len(self._pending)

    @property
    def time(self) -> Any:
        """The event time of the row that satisfied the wait, at the end the latest; 0 where rows have none."""
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
        if not pending.count:
            raise PenstockError(f"pop({port}) finds no row; wait for it with await ctx.wait_for_all({{{port}: 1}})")
        self._waits = 0
        return pending.popleft()

    def peek(self, port: int = 0, index: int = 0) -> Row:
        """Look at a row of a port, the oldest first, and leave it there."""
        pending = self._port(port)
        if not 0 <= index < pending.count:
            raise PenstockError(
                f"peek({port}, {index}) finds {pending.count} rows; wait for it with "
                f"await ctx.wait_for_all({{{port}: {index + 1}}})"
            )
        return pending[index]

    def len(self, port: int = 0) -> int:
        """Return how many rows wait in a port."""
        return self._port(port).count

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
        self._context.emit(snapshot(row) if declared is None else declared.detach(row), port=port)
        self._sending.awaited = False
        return self._sending

    def _wait(self, every: bool, counts: Mapping[int, int]) -> _Waiting:
        return _Waiting(self, checked_wait(every, tuple(counts.items()), len(self._pending), self._logic.max_pending))

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

    def _port(self, port: int) -> PortBuffer:
        if not self._live:
            self._usable()
        if not 0 <= port < len(self._pending):
            raise PenstockError(no_port(port, len(self._pending)))
        return self._pending[port]

    def _usable(self) -> None:
        """Refuse a context whose run is over, and an emit that was not awaited."""
        if not self._live:
            raise PenstockError(
                "the context was used after process() was left at a wait, for example in a finally block: on Spark "
                "and with a checkpoint it begins again from its start, and a stop leaves it where it waits; keep "
                "what is to be done in ctx.state"
            )
        if not self._sending.awaited:
            raise PenstockError("emit() was not awaited; write await ctx.emit(row)")


@dataclass(slots=True)
class _Held:
    """What is kept of a co-routine between rows."""

    state: Any
    pending: tuple[PortBuffer, ...]
    wait: Wait | None
    """What it waits for; None before its first run."""
    done: bool
    """Whether it has returned: rows that come later are dropped."""
    opened: Position
    time: Ticks
    """The latest time of its rows: its end is not before that."""
    _: KW_ONLY
    frame: _Frame | None = None
    """Where it waits, if that is kept; it is never saved."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Held, (self.state, self.pending, self.wait, self.done, self.opened, self.time)


class _Frame(Paused):
    """A call of `process`: suspended at a wait, or put aside at an emit, or running."""

    __slots__ = ("_held", "_logic", "_port", "_routine", "_view")

    def __init__(self, logic: CoroutineLogic, held: _Held) -> None:
        self._logic, self._held = logic, held
        self._port: int | None = None
        self._view = CoroutineContext(logic, held)
        self._routine = logic.operator.process(self._view)

    def run(self, context: Context, closed: Collection[int], port: int | None = None) -> Any:
        """Begin, or go on after the wait, with what a row of this port satisfied.

        Without a port: with what can never be, as ports are closed. Return what is held, or this where it is put aside.
        """
        view, self._port = self._view, port
        view._context, view._closed, view._waits = context, closed, 0
        return self.resume()

    def resume(self) -> Any:
        """Go on after a wait or an emit; return what is held, or this frame where it is put aside at an emit."""
        view, held = self._view, self._held
        try:
            reached: Any = self._routine.send(None)
        except StopIteration:
            view._usable()
            held.state, held.done, held.frame = view.state, True, None
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
            if view._context.keeps_frames:
                held.frame = self
            else:
                self._leave()
        if self._port is not None:
            return self._logic.consumed(held, self._port)
        return held if len(view._closed) < len(held.pending) else None  # at the end nothing is kept

    def _leave(self) -> None:
        """Close the frame at its wait; what its finally blocks do with the context is refused."""
        self._view._live = False
        self._routine.close()

    def drop(self) -> None:
        """Close the frame of a flow that stops; what it raises then changes nothing."""
        try:
            self._leave()
        except Exception:
            operator = type(self._logic.operator).__name__
            log.warning("penstock: %s.process failed while it was closed at a stop", operator, exc_info=True)


@dataclass(frozen=True)
class CoroutineLogic(Logic):
    """Run a co-routine operator. State: its own, the rows that wait in its ports, what it waits for."""

    emits: ClassVar[Emits] = "timed"
    waits: ClassVar[bool] = True
    mark_grid = (FOREVER, 0)
    operator: Coroutine
    types: tuple[RowType | None, ...]
    """The row type of each output port."""
    ports: int = 1
    max_pending: int = Coroutine.max_pending
    restartable: bool | None = None
    """Whether it may begin again at every wait; None is proven."""

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        held: _Held | None = state
        if held is None:
            held = _Held(
                {}, tuple(PortBuffer() for _ in range(self.ports)), None, False, context.position, context.time
            )
            context.timer(FOREVER, held.opened)
        held.time = max(held.time, context.time)
        if held.done:
            return held
        held.pending[port].append(row)
        if held.wait is None or held.wait.satisfied(held.pending):
            return self._frame(held).run(context, context.closed, port)
        return self.consumed(held, port)

    def _frame(self, held: _Held) -> _Frame:
        """Return the frame that waits, or a new one where none is kept."""
        frame, held.frame = held.frame, None
        return _Frame(self, held) if frame is None else frame

    def consumed(self, held: _Held, port: int) -> _Held:
        """Return what is held, and refuse a port that holds too much."""
        if held.pending[port].count > self.max_pending:
            raise PenstockError(
                f"input port {port} holds {held.pending[port].count} rows that were not consumed, while it waits in "
                f"{held.wait}; max_pending={self.max_pending} is the most: pop or drop rows, bring the streams in "
                f"step (order_by on their sources), or give operate() a larger max_pending="
            )
        return held

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        held: _Held | None = state
        if held is not None and not held.done:
            context.time = max(context.time, held.time)
            return self._frame(held).run(context, range(self.ports))
        return None

    def on_close(self, context: Context, state: Any, port: int) -> Any:
        held: _Held | None = state
        if held is None or held.done or held.wait is None or not held.wait.hopeless(held.pending, context.closed):
            return held
        context.time = max(context.time, held.time)
        return self._frame(held).run(context, context.closed)

    def check_restarts(self, name: str, why: str) -> None:
        reason = None if self.restartable else doubt(self.operator) if self.restartable is None else "it is declared so"
        if reason is not None:
            kind = type(self.operator).__name__
            raise FlowError(
                f"operator {name!r}: {kind}.process() would begin again from its start at every wait, because {why}, "
                f"and it is not shown that this makes no difference: {reason}. Write it so that all waits begin one "
                f"loop, and what it remembers is in ctx.state; or run it with on=ps.Threads() and no checkpoint, "
                f"where it goes on after its waits; or, if you know better, give operate(..., restartable=True) and "
                f"test it with penstock.testing.torture"
            )

    @property
    def full(self) -> int:
        """How many rows make a port full, so that what feeds it is asked to wait."""
        return max(1, min(IN_MEMORY, self.max_pending // 2))

    @property
    def room(self) -> int | None:
        return self.max_pending - self.full + 1

    def pressure(self, state: Any) -> tuple[Collection[int], Collection[int] | None]:
        held: _Held | None = state
        wait = None if held is None else held.wait  # read once: the thread that runs the co-routine may change it
        if held is None or held.done or wait is None:
            return (), ()
        at_work = wait.satisfied(held.pending)  # it has what it waited for; what comes next is not known
        lacking = [port for port, count in wait.counts if held.pending[port].count < count]
        full = [p for p, rows in enumerate(held.pending) if rows.count >= self.full and (at_work or p not in lacking)]
        return full, None if at_work else lacking

    def let_go(self, state: Any) -> None:
        held: _Held | None = state
        if held is not None:
            if held.frame is not None:
                held.frame.drop()
            for pending in held.pending:
                pending.clear()

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [] if state is None else [(FOREVER, state.opened)]

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.types[0] if self.types else None


def _foreign(problem: str) -> str:
    return (
        f"process() awaits something that is not Penstock's ({problem}); a co-routine operator can await only "
        f"ctx.wait_for_all, ctx.wait_for_any and ctx.emit; do lookups in a map() with an async function above it"
    )


def checked_operator(operator: Any, name: str, inputs: int) -> Coroutine:
    """Take an operator, or make one of its class; refuse one that does not take this number of streams."""
    operator = operator() if isinstance(operator, type) else operator
    if not isinstance(operator, Coroutine):
        raise FlowError(f"operator {name!r}: {operator!r} is no Coroutine; derive its class from penstock.Coroutine")
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
