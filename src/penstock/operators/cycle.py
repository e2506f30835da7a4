"""Feedback: operators on a cycle through a control port, run row by row as one stateful operator.

A region is a small flow of its own, run by the sequential engine inside one operator. A row goes through all of it;
then the rows that it fed back go through it, one after the other, in the order in which they came out; only then comes
the next row. So every engine gives the same, and the state of the region is saved with that of the flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import FlowError, PenstockError
from penstock.flow import Flow, Stream, checks
from penstock.flow.building import free_name, refuse_no_streams, with_ports
from penstock.operators.base import Context, Emits, Keyed, Logic, Position, Sink, Source
from penstock.operators.coroutine import CoroutineLogic
from penstock.plan.plan import Plan, make_plan
from penstock.rows.records import Row, RowType
from penstock.rows.timing import FOREVER, Ticks, TimeKind
from penstock.sequential import Item, SequentialEngine

MOST_BACK = 100_000
"""How many rows may be fed back for one row before it is taken for a loop without end."""

_BACK = "feedback"


def feedback(body: Callable[..., tuple[Stream, ...]], *streams: Stream, name: str | None = None) -> Any:
    """Run operators on a cycle. `body(stream, ..., back)` returns the streams that leave, and last the one fed back.

    Inside, `back` has the rows that were fed back; it must go to control ports (of a Gate, a Switch, or your own
    operator with `control`). Returns the stream that leaves, or a tuple where there are several.
    """
    refuse_no_streams(streams, f"feedback({body!r})")
    name = free_name(streams[0].flow, name, body, "feedback")
    checks.is_callable(body, name, "a function of streams")
    checks.one_flow(streams, name)
    times = {stream.time for stream in streams}
    time = times.pop() if len(times) == 1 else None
    plan, types = _inside(body, name, [stream.type for stream in streams], time)
    return with_ports(streams, name, Region(plan, types, len(streams)), types)


def _inside(
    body: Callable[..., tuple[Stream, ...]], name: str, inputs: Sequence[RowType | None], time: TimeKind | None
) -> tuple[Plan, tuple[RowType | None, ...]]:
    """Build the flow of a region; return its plan, and the types of what leaves it."""
    flow = Flow(f"{name[:100]} region")
    sources = [flow.add(_input(port), Source(), (), (row,), time) for port, row in enumerate(inputs)]
    streams = body(*sources, flow.add(_BACK, Source(), (), (None,), time))
    if not isinstance(streams, tuple) or len(streams) < 2 or not all(isinstance(stream, Stream) for stream in streams):
        raise FlowError(
            f"operator {name!r}: the body of a feedback returns the streams that leave it and, last, the one that is "
            f"fed back, got {streams!r}"
        )
    checks.one_flow((*sources, *streams), name)
    for port, stream in enumerate(streams[:-1]):
        flow.add(_output(port), Sink(), (stream.port,), (), time)
    flow.add(_output(-1), Sink(), (streams[-1].port,), (), time)
    plan = make_plan(flow)
    _check(plan, name)
    return plan, tuple(stream.type for stream in streams[:-1])


def _check(plan: Plan, name: str) -> None:
    """Refuse a cycle that is not through control ports, and operators inside that wait for event time."""
    for node in plan.keyed:
        logic = node.operator.logic
        if logic.emits == "timed" and logic.mark_grid != (FOREVER, 0):
            raise FlowError(
                f"operator {node.name!r} in feedback {name!r} waits for event time, which does not pass inside a "
                f"cycle; put windows, sort and process before or after it"
            )
    todo = [_BACK]
    while todo:
        for edge in plan.graph.outgoing[todo.pop()]:
            operator = plan.nodes[edge.target].operator
            if not isinstance(operator, (Keyed, Sink)):
                todo.append(edge.target)
            elif not (
                isinstance(operator, Keyed)
                and isinstance(operator.logic, CoroutineLogic)
                and edge.port in operator.logic.operator.control
            ):
                raise FlowError(
                    f"feedback {name!r} goes to {edge.target!r}, port {edge.port}, which is no control port; feed back "
                    f"to a Gate, a Switch, or a Coroutine that lists the port in control"
                )


def _input(port: int) -> str:
    return f"input {port}"


def _output(port: int) -> str:
    return f"output {port}" if port >= 0 else "fed back"


class _Collected(list[Row]):
    """The rows of one sink, put in one list with those of the others, because their order counts."""

    def __init__(self, port: int, left: deque[tuple[int, Row]]) -> None:
        super().__init__()
        self._port, self._left = port, left

    def append(self, row: Row) -> None:
        self._left.append((self._port, row))


class _Engine(SequentialEngine):
    """The sequential engine over a region, with rows that bring their time."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.left: deque[tuple[int, Row]] = deque()
        """What has come out: (output port, row), -1 for a row to feed back."""
        ports = range(-1, len(self.results) - 1)
        self.results = {_output(port): _Collected(port, self.left) for port in ports}

    def take(self, source: str, row: Row, time: Ticks) -> None:
        self._drain(self._leave(self.plan.nodes[source], 0, Item(row, time)))


class _Held:
    """What is kept of a region: the state of its operators, and which of its inputs have ended.

    The engine itself is made anew where it is loaded.
    """

    def __init__(self, saved: Any, opened: Position, time: Ticks, engine: _Engine | None = None) -> None:
        self.saved, self.opened, self.time, self.engine = saved, opened, time, engine

    def __reduce__(self) -> tuple[Any, ...]:
        return _Held, (self.saved, self.opened, self.time)

    def running(self, plan: Plan) -> _Engine:
        if self.engine is None:
            self.engine = _Engine(plan)
            if self.saved is not None:
                self.engine.remembered = self.saved
        self.saved = self.engine.remembered
        return self.engine


@dataclass(frozen=True)
class Region(Logic):
    """Run a region. State: that of all operators in it."""

    emits: ClassVar[Emits] = "timed"
    waits: ClassVar[bool] = True
    mark_grid = (FOREVER, 0)
    plan: Plan
    types: tuple[RowType | None, ...]
    ports: int = 1

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        held: _Held | None = state
        if held is None:
            held = _Held(None, context.position, context.time)
            context.timer(FOREVER, held.opened)
            held.running(self.plan).keeps_frames = context.keeps_frames
            for closed in sorted(context.closed):
                held.running(self.plan).end(_input(closed))
        held.time = max(held.time, context.time)
        engine = held.running(self.plan)
        engine.keeps_frames = context.keeps_frames
        engine.take(_input(port), row, context.time)
        self._feed_back(context, engine)
        return held

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        held: _Held = state
        context.time = max(context.time, held.time)
        engine = held.running(self.plan)
        for port in range(self.ports):
            engine.end(_input(port))
            self._feed_back(context, engine)
        # Only now, when nothing more goes round, does the cycle itself end; what is fed back after that is dropped.
        engine.end(_BACK)
        for out, row in engine.left:
            if out >= 0:
                context.emit(row, port=out)
        return None

    def on_close(self, context: Context, state: Any, port: int) -> Any:
        held: _Held | None = state
        if held is not None:
            context.time = max(context.time, held.time)
            engine = held.running(self.plan)
            engine.end(_input(port))
            self._feed_back(context, engine)
        return held

    def _feed_back(self, context: Context, engine: _Engine) -> None:
        """Send out what has left the region, and take what was fed back through it, until nothing is left."""
        count = 0
        back: deque[Row] = deque()
        while True:
            for out, row in engine.left:
                if out < 0:
                    back.append(row)
                else:
                    context.emit(row, port=out)
            engine.left.clear()
            if not back:
                return
            count += 1
            if count > MOST_BACK:
                raise PenstockError(
                    f"{MOST_BACK} rows were fed back for one row, so they may go round forever; feed back only what "
                    f"changes something"
                )
            engine.take(_BACK, back.popleft(), context.time)

    def check_restarts(self, name: str, why: str) -> None:
        self.plan.check_restarts(why)

    def let_go(self, state: Any) -> None:
        if state is not None and state.engine is not None:
            state.engine.close()

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [] if state is None else [(FOREVER, state.opened)]

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.types[0]
