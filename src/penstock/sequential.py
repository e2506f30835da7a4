"""The reference engine: what a flow means, one row at a time, depth first.

No batches, no threads, no positions: a row goes through the whole graph before the next one comes, and a mark
goes through it just before the row that raised it. Every other engine is held to the output of this one.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.connectors.tables import loaded, with_content
from penstock.connectors.text import Unreadable
from penstock.errors import PenstockError, RowTypeError, SetupError, SourceError, operator_error, row_text, shorten
from penstock.flow.checks import DeadLetter
from penstock.operators.base import Context, Key, Keyed, OnError, Sink, Source, Union
from penstock.operators.calling import Calling, Tally, open_calling
from penstock.operators.stateless import MapBatches, PerRow, Stateless
from penstock.plan.graph import Edge, Node
from penstock.plan.plan import Plan
from penstock.rows.keys import as_key
from penstock.rows.records import Row, any_getter
from penstock.rows.timing import BEFORE, FOREVER, Ticks, time_to_ticks

if TYPE_CHECKING:
    import asyncio

    import pyarrow as pa


@dataclass(frozen=True)
class Item:
    """A row with its event time, or (row is None and `mark` true) a mark."""

    row: Row
    time: Ticks
    mark: bool = False
    clock: Ticks = BEFORE
    """The time of day that a mark brings along."""


Delivery = tuple[Edge, Item]


@dataclass
class _KeyedState:
    """The state of one keyed operator: a value per key, and the timers of all keys."""

    states: dict[Any, Any] = field(default_factory=dict)
    timers: list[tuple[Ticks, Any, int, Any]] = field(default_factory=list)
    arrivals: int = 0
    registered: int = 0


class SequentialEngine:
    """Run a plan row by row. Feed it with `row` and `end`; read `results`."""

    keeps_frames = True
    """Whether co-routines go on after their waits; where they are saved between rows, they begin again instead."""

    def __init__(self, plan: Plan) -> None:
        self.plan = loaded(plan)
        self.results: dict[str, list[Row]] = {node.name: [] for node in plan.sinks}
        self._edges = {name: plan.graph.outgoing[name] for name in plan.nodes}
        # The watermark of each input port; sources have one port, their own.
        self._marks: dict[str, list[Ticks]] = {
            name: [BEFORE] * max(1, len(node.inputs)) for name, node in plan.nodes.items()
        }
        self._clocks = {name: list(ports) for name, ports in self._marks.items()}
        """The time of day at each input port, as ingress has logged it; it does not wait for event time."""
        self._keyed = {node.name: _KeyedState() for node in plan.keyed}
        self._parts: dict[str, dict[int, Ticks]] = {node.name: {} for node in plan.sources}
        """The watermark of each part of a source that is known."""
        self._idle: set[tuple[str, int]] = set()
        self._now: Ticks = 0
        """When rows arrive, where something goes by that."""
        self._functions: dict[str, Callable[[Row], Any]] = {}
        self._callings: dict[str, Calling | None] = {}
        self.clock(0)

    def row(self, source: str, row: Row, part: int = 0) -> None:
        """Take the next row of the input sequence, of some part of its source, through the whole graph."""
        node = self.plan.source(source)
        operator = node.operator
        if isinstance(row, Unreadable):
            self._drain(self._unreadable(node, operator, row))
            return
        time = self._time(node, operator, row)
        if time is None:
            return
        if operator.time is not None:
            parts = self._parts[source]
            parts[part] = max(parts.get(part, BEFORE), time - operator.slack)
            self._settle_marks()
        self._drain(self._leave(node, 0, Item(row, time)))

    def _unreadable(self, node: Node, operator: Source, row: Unreadable) -> Iterator[Delivery]:
        if operator.on_error == "dead_letter" and row.told:
            letter = DeadLetter(node.name, row.reason, row.where, row.text)
            yield from self._leave(node, operator.outputs.index("errors"), Item(letter, 0))

    def know(self, source: str, parts: Iterable[int]) -> None:
        """Count parts of a source that have given no row yet: its watermark is the lowest of all."""
        for part in parts:
            self._parts[source].setdefault(part, BEFORE)

    def idle(self, source: str, parts: Iterable[int]) -> None:
        """Leave out parts of a source until they give a row again."""
        self.know(source, parts)
        self._idle |= {(source, part) for part in parts}
        self._settle_marks()

    def wake(self, source: str, part: int) -> None:
        """Count a part of a source again that gives rows."""
        self._idle.discard((source, part))

    def late(self, source: str, row: Row) -> None:
        """Take a row that came against the order of an epoch that is done."""
        node = self.plan.source(source)
        operator = node.operator
        if not operator.diverts:
            raise SourceError(late_row_message(source, row))
        time = self._time(node, operator, row)
        if time is not None:
            self._drain(self._leave(node, 1, Item(row, time)))

    def clock(self, now: Ticks) -> None:
        """Take the time of day at which the following rows arrive, as ingress has logged it."""
        self._now = max(self._now, now)
        for node in self.plan.clocked:
            self._mark(node, clock=self._now)

    def mark(self, source: str, mark: Ticks) -> None:
        """Raise a source's watermark: it will give nothing earlier."""
        self._mark(self.plan.nodes[source], mark)

    def end(self, source: str) -> None:
        """Take the end of a source: its final mark."""
        self._mark(self.plan.nodes[source], FOREVER, FOREVER)

    def table(self, operator: str, content: pa.Table) -> None:
        """Take what a lookup's table has from here on."""
        self.plan = with_content(self.plan, operator, content)

    def close(self) -> None:
        """Close what waits: no more rows come."""
        for node in self.plan.keyed:
            for state in self._keyed[node.name].states.values():
                node.operator.logic.let_go(state)
        for calling in filter(None, self._callings.values()):
            calling.close()
            if calling.is_async:
                self._loop.run_until_complete(calling.close_async())

    @property
    def remembered(self) -> Any:
        """What rows have left: the state of keyed operators, and the watermarks."""
        return self._keyed, self._marks, self._clocks

    @remembered.setter
    def remembered(self, kept: Any) -> None:
        self._keyed, self._marks, self._clocks = kept

    def state(self, operator: str) -> dict[Any, Any]:
        return dict(self._keyed[operator].states)

    def _time(self, node: Node, operator: Source, row: Row) -> Ticks | None:
        """Return a row's event time; of a row that has none, do what the source says and return None."""
        if operator.time is None:
            return self._now if operator.by_arrival else 0
        value = any_getter([operator.time])(row)
        try:
            return time_to_ticks(value)
        except TypeError:
            if operator.on_error == "fail":
                raise SourceError(no_time_message(node.name, operator.time, value, row)) from None
            self._drain(self._failed(node, operator.on_error, no_time(operator.time, value), Item(row, 0)))
            return None

    def _mark(self, node: Node, mark: Ticks = BEFORE, clock: Ticks = BEFORE) -> None:
        """Raise how far a source has come: in event time, by the time of day, or both."""
        marks, clocks = self._marks[node.name], self._clocks[node.name]
        if mark > marks[0] or clock > clocks[0]:
            marks[0], clocks[0] = max(mark, marks[0]), max(clock, clocks[0])
            times = clocks if node.name in self.plan.by_arrival else marks
            self._drain(self._leave_all(node, times[0], clocks[0]))

    def _settle_marks(self) -> None:
        """Raise the watermarks of sources to the lowest of their parts, where those have risen.

        A source of which all parts are idle goes along with the slowest of the others.
        """
        counting = {
            name: [mark for part, mark in parts.items() if (name, part) not in self._idle]
            for name, parts in self._parts.items()
        }
        for name, marks in counting.items():
            if marks:
                self._mark(self.plan.nodes[name], min(marks))
        others = [self._marks[name][0] for name, parts in self._parts.items() if counting[name] or not parts]
        for name, marks in counting.items():
            if not marks and self._parts[name] and others and min(others) < FOREVER:
                self._mark(self.plan.nodes[name], min(others))

    def _drain(self, deliveries: Iterator[Delivery]) -> None:
        """Deliver depth first: what a delivery causes comes before the next one."""
        stack = [deliveries]
        while stack:
            delivery = next(stack[-1], None)
            if delivery is None:
                stack.pop()
            else:
                stack.append(self._arrive(*delivery))

    def _leave(self, node: Node, port: int, item: Item) -> Iterator[Delivery]:
        for edge in self._edges[node.name]:
            if edge.source.index == port:
                yield edge, item

    def _leave_all(self, node: Node, mark: Ticks, clock: Ticks) -> Iterator[Delivery]:
        for edge in self._edges[node.name]:
            yield edge, Item(None, mark, mark=True, clock=clock)

    def _arrive(self, edge: Edge, item: Item) -> Iterator[Delivery]:
        node = self.plan.nodes[edge.target]
        if item.mark:
            return self._arrive_mark(node, edge, item)
        if self.plan.is_cut(edge):
            item = self._typed(edge, item)
        operator = node.operator
        if isinstance(operator, Sink):
            self.results[node.name].append(item.row)
            return iter(())
        if isinstance(operator, Union):
            return self._leave(node, 0, item)
        if isinstance(operator, Stateless):
            return self._stateless(node, operator, item)
        assert isinstance(operator, Keyed)
        return self._keyed_row(node, operator, edge.port, item)

    def _typed(self, edge: Edge, item: Item) -> Item:
        """Give a row its declared type, as it does where it leaves a process."""
        declared = self.plan.nodes[edge.source.node].types[edge.source.index]
        if declared is None:
            return item
        try:
            return Item(declared.roundtrip(item.row), item.time)
        except RowTypeError as error:
            raise operator_error(edge.source.node, error, item.row) from None

    def _stateless(self, node: Node, operator: Stateless, item: Item) -> Iterator[Delivery]:
        try:
            if isinstance(operator, PerRow):
                outputs = operator.outputs_of(item.row, self._call(node, operator, item.row))
            else:
                outputs = self._bound(node, operator).one(item.row)
        except Exception as error:
            yield from self._failed(node, operator.on_error, error, item)
            return
        for port, row in outputs:
            yield from self._leave(node, port, Item(row, item.time))

    def _call(self, node: Node, operator: PerRow, row: Row) -> Any:
        function = self._functions.get(node.name)
        if function is None:
            calling = self._calling(node)
            function = operator.row_function() if calling is None else calling.function(Tally())
            self._functions[node.name] = function
        return self._wait_for(function, row) if operator.is_async else function(row)

    def _bound(self, node: Node, operator: Stateless) -> Stateless:
        """Return an operator with its client, where it has one."""
        calling = self._calling(node) if isinstance(operator, MapBatches) else None
        return operator if calling is None else calling.operator

    def _calling(self, node: Node) -> Calling | None:
        if node.name not in self._callings:
            self._callings[node.name] = open_calling(node.operator, node.name)
        return self._callings[node.name]

    def _wait_for(self, function: Callable[[Row], Any], row: Row) -> Any:
        from asyncio import CancelledError

        try:
            return self._loop.run_until_complete(function(row))
        except CancelledError as error:  # no `Exception`, and only the function can have raised it
            raise RuntimeError("the function raised CancelledError").with_traceback(error.__traceback__) from None

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """An event loop that lasts as long as the engine: functions may keep what is bound to it."""
        import asyncio

        loop = asyncio.new_event_loop()
        weakref.finalize(self, loop.close)
        return loop

    def _keyed_row(self, node: Node, operator: Keyed, port: int, item: Item) -> Iterator[Delivery]:
        held = self._keyed[node.name]
        context = self._context(node, held)
        if operator.by_arrival:
            item = Item(item.row, context.watermark)
        context.time = item.time
        held.arrivals += 1
        context.position = held.arrivals
        try:
            context.key = None if operator.keys is None else key_of(operator.keys[port], item.row)
            state = operator.logic.on_row(context, held.states.get(context.key), port, item.row)
        except Exception as error:
            yield from self._failed(node, operator.on_error, error, item)
            return
        yield from self._settle(node, held, context, state)

    def _arrive_mark(self, node: Node, edge: Edge, item: Item) -> Iterator[Delivery]:
        """Raise one port's mark; when the lowest of all rises, fire what is due and pass the mark on."""
        ports, clocks = self._marks[node.name], self._clocks[node.name]
        before, told = min(ports), min(clocks)
        mark = item.clock if node.name in self.plan.by_arrival else item.time
        clocks[edge.port] = max(clocks[edge.port], item.clock)
        closes = ports[edge.port] < FOREVER == mark
        ports[edge.port] = max(ports[edge.port], mark)
        now = min(ports)
        operator = node.operator
        if closes and now < FOREVER and isinstance(operator, Keyed) and operator.logic.waits:
            yield from self._close(node, operator, edge.port, before)
        if (now, min(clocks)) == (before, told):
            return
        if isinstance(operator, Keyed):
            yield from self._fire(node, operator, before, now)
            now = now if now == FOREVER else now - operator.logic.mark_delay
        yield from self._leave_all(node, now, min(clocks))

    def _fire(self, node: Node, operator: Keyed, before: Ticks, mark: Ticks) -> Iterator[Delivery]:
        held = self._keyed[node.name]
        while held.timers and held.timers[0][0] <= mark:
            fire, opened, _, key = heapq.heappop(held.timers)
            context = self._context(node, held)
            context.key, context.position = key, opened
            context.time = fire if fire < FOREVER else before
            try:
                state = operator.logic.on_timer(context, held.states.get(key), fire, opened)
            except Exception as error:
                # The timer has been: what waited for it is gone, as if nothing had come of it.
                context.emitted, context.registered = [], []
                yield from self._failed(node, operator.on_error, error, Item(f"timer of key {key!r}", context.time))
                state = operator.logic.expire(held.states.get(key), fire, opened)
            yield from self._settle(node, held, context, state)

    def _close(self, node: Node, operator: Keyed, port: int, before: Ticks) -> Iterator[Delivery]:
        """Tell an operator that a port has ended before the others."""
        held = self._keyed[node.name]
        context = self._context(node, held)
        context.time = before
        try:
            state = operator.logic.on_close(context, held.states.get(None), port)
        except Exception as error:
            yield from self._failed(node, operator.on_error, error, Item(f"end of input port {port}", context.time))
            return
        yield from self._settle(node, held, context, state)

    def _context(self, node: Node, held: _KeyedState) -> Context:
        context = Context(node.time or "integer")
        marks = self._marks[node.name]
        context.watermark, context.keeps_frames = min(marks), self.keeps_frames
        if isinstance(node.operator, Keyed) and node.operator.logic.waits:
            context.closed = frozenset(port for port, mark in enumerate(marks) if mark == FOREVER)
        return context

    def _settle(self, node: Node, held: _KeyedState, context: Context, state: Any) -> Iterator[Delivery]:
        """Keep what a logic returned: state, timers, and the rows that it emitted."""
        if state is None:
            held.states.pop(context.key, None)
        else:
            held.states[context.key] = state
        for fire, opened in context.registered:
            held.registered += 1
            heapq.heappush(held.timers, (fire, opened, held.registered, context.key))
        for port, row, time in context.emitted:
            yield from self._leave(node, port, Item(row, time))

    def _failed(self, node: Node, policy: OnError, error: Exception, item: Item) -> Iterator[Delivery]:
        problem = operator_error(node.name, error, item.row)
        if policy == "fail" or isinstance(error, SetupError):
            raise problem from None
        if policy == "dead_letter":
            letter = DeadLetter(node.name, problem.error, problem.where, row_text(item.row), problem.attempts)
            port = node.operator.outputs.index("errors")
            yield from self._leave(node, port, Item(letter, item.time))


def key_of(key: Key, row: Row) -> Any:
    """Read a row's key; refuse one that other engines could not send to a shard."""
    value = as_key(key.function(row) if key.function is not None else any_getter(key.fields)(row))
    key.check(value)
    return value


def no_time(field: str, value: Any) -> PenstockError:
    return PenstockError(
        f"the field {field!r} gives no event time: a time must be a datetime or an integer, not {value!r}"
    )


def no_time_message(source: str, field: str, value: Any, row: Row) -> str:
    return (
        f"source {source!r}: {no_time(field, value)}; row: {shorten(row, 400)}; fill it in before the rows come in, "
        f'or give the source on_error="skip" or "dead_letter"'
    )


def late_row_message(source: str, row: Row) -> str:
    return (
        f"source {source!r}: order_by goes back at the row {shorten(row, 400)}; use "
        f'on_late="divert" to send such rows to stream.late, or leave order_by out and use sort(slack=...) '
        f"on an event time"
    )
