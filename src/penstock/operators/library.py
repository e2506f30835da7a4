"""Operators that need to wait for rows of several ports; each is a `penstock.Coroutine`, run by `penstock.operate`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import FlowError, PenstockError
from penstock.operators.coroutine import Coroutine, CoroutineContext
from penstock.operators.cycle import feedback
from penstock.rows.keys import as_key, has_null, order_place
from penstock.rows.records import Record, Row, RowType, any_getter, make_record
from penstock.rows.timing import Duration, TimeKind, Unit, ticks, time_to_ticks, unit_of


class Barrier(Coroutine):
    """Wait for a row of each port, and emit one row made of them.

    `combine(row of port 0, row of port 1, ...)` makes it. Without it, the fields of records stand side by side, a
    name that is taken getting the number of its port (`v`, `v_1`), and tuples are joined.
    """

    inputs = None

    def __init__(self, combine: Callable[..., Row] | None = None) -> None:
        self.combine = combine

    async def process(self, ctx: CoroutineContext) -> None:
        combine = self.combine or side_by_side
        one_each = dict.fromkeys(range(ctx.inputs), 1)
        while await ctx.wait_for_all(one_each):
            await ctx.emit(combine(*[ctx.pop(port) for port in range(ctx.inputs)]))

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        known = [row for row in inputs if row is not None and row.form == "record"]
        if self.combine is not None or len(known) < len(inputs):
            return [None]
        names = field_names([row.schema.names for row in known])
        kinds = [field.type for row in known for field in row.schema]
        return [RowType(pa.schema(list(zip(names, kinds, strict=True))), "record")]


def side_by_side(*rows: Row) -> Row:
    if not all(isinstance(row, tuple) for row in rows):
        raise TypeError(f"a barrier joins records or tuples, not {rows!r}; give it combine=")
    values: tuple[Any, ...] = sum((tuple(row) for row in rows), ())
    if all(isinstance(row, Record) for row in rows):
        return make_record(field_names([row._fields for row in rows]), values)
    return values


def field_names(names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the names of fields side by side, each once."""
    taken: dict[str, None] = {}
    for port, fields in enumerate(names):
        for field in fields:
            name = field
            while name in taken:
                name = f"{name}_{port}"
            taken[name] = None
    return tuple(taken)


DATA, CONTROL = 0, 1


class Gate(Coroutine):
    """Pass the rows of port 0 while the gate is open; each row of port 1, the control port, opens or closes it.

    `opens(control row)` tells which; by default the row itself is true or false. While the gate is closed rows are
    dropped, or with `hold` kept until it opens; those that are held when the sources end are dropped.
    """

    inputs = 2
    control = (CONTROL,)

    def __init__(self, opens: Callable[[Row], Any] = bool, *, is_open: bool = False, hold: bool = False) -> None:
        self.opens, self.is_open, self.hold = opens, is_open, hold

    async def process(self, ctx: CoroutineContext) -> None:
        ctx.state.setdefault("open", self.is_open)
        while await ctx.wait_for_any({CONTROL: 1} if self.hold and not ctx.state["open"] else {DATA: 1, CONTROL: 1}):
            if ctx.len(CONTROL):
                ctx.state["open"] = bool(self.opens(ctx.pop(CONTROL)))
                continue
            row = ctx.pop(DATA)
            if ctx.state["open"]:
                await ctx.emit(row)

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[DATA]]


By = str | Callable[[Row], Any]


class Join(Coroutine):
    """Join each row with those of the latest `rows` rows of the other port that have the same key, oldest first.

    `by` is a field or a function of the row, or a pair of them, one for each port; a null is equal to no other.
    `combine(left, right)` makes what comes out; by default a tuple of the two. For windows of event time, and to run in
    parallel, use the join of streams with key_by.
    """

    inputs = 2

    def __init__(
        self, by: By | tuple[By, By], combine: Callable[[Row, Row], Row] | None = None, *, rows: int = 1000
    ) -> None:
        if rows < 1:
            raise FlowError(f"a join among the latest rows={rows} finds nothing; give at least 1")
        self.by, self.combine, self.rows = by if isinstance(by, tuple) else (by, by), combine, rows

    async def process(self, ctx: CoroutineContext) -> None:
        # For each port: the keys of its latest rows, oldest first, and these rows by key.
        latest = ctx.state.setdefault("latest", (deque(), deque()))
        by_key: tuple[dict[Any, deque[Row]], ...] = ctx.state.setdefault("by_key", ({}, {}))
        while await ctx.wait_for_any({0: 1, 1: 1}):
            port = 0 if ctx.len(0) else 1
            row, by = ctx.pop(port), self.by[port]
            key = as_key(any_getter([by])(row) if isinstance(by, str) else by(row))
            if has_null(key):
                continue  # equal to no other
            for other in by_key[1 - port].get(key, ()):
                pair = (row, other) if port == 0 else (other, row)
                await ctx.emit(pair if self.combine is None else self.combine(*pair))
            latest[port].append(key)
            by_key[port].setdefault(key, deque()).append(row)
            if len(latest[port]) > self.rows:
                oldest = latest[port].popleft()
                by_key[port][oldest].popleft()
                if not by_key[port][oldest]:
                    del by_key[port][oldest]


class Merge(Coroutine):
    """Emit the rows of all ports in the order of a key, each port being in that order itself.

    A row is held back until every other port has shown a row with a key that is not smaller, or has ended; of equal
    keys the lower port's comes first. Null is before all other keys, NaN after them. `by` is a field or a function of
    the row. Where the key is the event time, `Stream.merge` does it by the watermark, and a port may be silent.
    """

    inputs = None
    restartable = True
    """Which ports are live changes only where a port ends, and then the wait is over and they are looked at again."""

    def __init__(self, by: str | Callable[[Row], Any]) -> None:
        self.by = by

    async def process(self, ctx: CoroutineContext) -> None:
        key = any_getter([self.by]) if isinstance(self.by, str) else self.by
        ports = range(ctx.inputs)
        # A port that ends while it is waited for gives False, and is not waited for from then on.
        while live := [port for port in ports if ctx.len(port) or not ctx.closed(port)]:
            if not await ctx.wait_for_all(dict.fromkeys(live, 1)):
                continue
            first = min(live, key=lambda port: order_place(key(ctx.peek(port))))
            await ctx.emit(ctx.pop(first))

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[0] if len(set(inputs)) == 1 else None]


class Switch(Coroutine):
    """Send the rows of port 0 to one of several outputs; each row of port 1, the control port, chooses which.

    `choose(control row)` gives the number of the output, or None to drop rows; by default the row is the number.
    Before the first control row, rows go to the output `first`.
    """

    inputs = 2
    control = (CONTROL,)

    def __init__(
        self, outputs: int = 2, choose: Callable[[Row], int | None] | None = None, *, first: int | None = 0
    ) -> None:
        self.outputs, self.choose, self.first = outputs, choose, first

    async def process(self, ctx: CoroutineContext) -> None:
        ctx.state.setdefault("output", self.first)
        while await ctx.wait_for_any({DATA: 1, CONTROL: 1}):
            if ctx.len(CONTROL):
                row = ctx.pop(CONTROL)
                chosen = row if self.choose is None else self.choose(row)
                if chosen is not None and chosen not in range(self.outputs):
                    raise PenstockError(f"a switch with {self.outputs} outputs cannot send rows to {chosen!r}")
                ctx.state["output"] = chosen
                continue
            row = ctx.pop(DATA)
            if ctx.state["output"] is not None:
                await ctx.emit(row, port=ctx.state["output"])

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[DATA]] * self.outputs


class Throttle(Coroutine):
    """Pass at most `most` rows in each span `per` of event time, or one row in `every`; drop the others.

    Spans stand side by side, as tumbling windows do; a row that is late counts in the latest span seen.
    """

    def __init__(self, most: int = 1, *, per: Duration | None = None, every: int | None = None) -> None:
        if (per is None) == (every is None):
            raise FlowError('a throttle needs per= (a span of event time, such as "1 s") or every= (a number of rows)')
        self.per: int = 0
        self.unit: Unit | None = None
        if per is not None:
            self.per, self.unit = ticks(per, "throttle", "per")
        self.most, self.every = most, every
        if most < 1 or (self.per if every is None else every) < 1:
            raise FlowError(f"a throttle needs most=, per= and every= to be at least 1: {most}, {per}, {every}")

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 1}):
            row = ctx.pop()
            if self._passes(ctx):
                await ctx.emit(row)

    def _passes(self, ctx: CoroutineContext) -> bool:
        span, count = ctx.state.get("seen", (None, 0))
        if self.every is not None:
            ctx.state["seen"] = (None, (count + 1) % self.every)
            return bool(count == 0)
        now = time_to_ticks(ctx.time) // self.per
        span, count = (now, 0) if span is None or now > span else (span, count)
        ctx.state["seen"] = (span, count + 1)
        return bool(count < self.most)

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[0]]

    def check(self, name: str, times: Sequence[TimeKind | None]) -> None:
        if self.unit is not None and unit_of(times[0]) != self.unit:
            raise FlowError(
                f"operator {name!r}: a throttle by {self.unit} time on rows whose event time is "
                f"{times[0] or 'not known'}; give time= to every source above it, and per= in its unit (an integer, or "
                f'for example "1 s" for timestamps)'
            )


class Zip(Coroutine):
    """Emit a tuple of the first rows of all ports, then of the second, and so on, until one of them has ended.

    With `longest`, until all have ended, with `fill` where a port has no more.
    """

    inputs = None
    restartable = True
    """Once a port has ended that is waited for, the first loop is over at once, and the second looks again."""

    def __init__(self, *, longest: bool = False, fill: Row = None) -> None:
        self.longest, self.fill = longest, fill

    async def process(self, ctx: CoroutineContext) -> None:
        ports = range(ctx.inputs)
        while await ctx.wait_for_all(dict.fromkeys(ports, 1)):
            await ctx.emit(tuple(ctx.pop(port) for port in ports))
        # A port that ends while it is waited for gives False, and is not waited for from then on.
        while self.longest and (live := [port for port in ports if ctx.len(port) or not ctx.closed(port)]):
            if await ctx.wait_for_all(dict.fromkeys(live, 1)):
                await ctx.emit(tuple(ctx.pop(port) if port in live else self.fill for port in ports))


__all__ = ["Barrier", "Gate", "Join", "Merge", "Switch", "Throttle", "Zip", "feedback"]
__dir__ = __all__.copy
