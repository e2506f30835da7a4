"""Co-routines, the library of them, and feedback."""

from __future__ import annotations

import pyarrow.compute as pc

from penstock.flow import Stream, operate
from penstock.operators import aggregates as agg
from penstock.operators import library
from penstock.operators.coroutine import Coroutine, CoroutineContext
from penstock.operators.library import feedback
from penstock.operators.windows import Count

from .cases import EVENTS, MESSY, UNEVEN, ZEROS, Sources, case, inverse, two


class Pairs(Coroutine):
    """Pair the rows of two ports, and tell at the end how many pairs there were and what is left."""

    inputs, outputs = 2, 2

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 1, 1: 1}):
            ctx.state["pairs"] = ctx.state.get("pairs", 0) + 1
            await ctx.emit((ctx.pop(0), ctx.pop(1)))
        await ctx.emit((ctx.state.get("pairs", 0), ctx.len(0), ctx.len(1), ctx.closed(0)), port=1)


class Runs(Coroutine):
    """Emit what is there whenever one port has three rows or the other two, and all that is left at the end."""

    inputs = None

    async def process(self, ctx: CoroutineContext) -> None:
        while True:
            more = await ctx.wait_for_any({0: 3, ctx.inputs - 1: 2})
            ctx.state["rounds"] = ctx.state.get("rounds", 0) + 1
            waiting = tuple(ctx.len(port) for port in range(ctx.inputs))
            for port, count in enumerate(waiting):
                for _ in range(count):
                    row = ctx.pop(port)
                    await ctx.emit((ctx.state["rounds"], ctx.time, waiting, port, row.v))
            if not more:
                return


class FirstFew(Coroutine):
    """Pass three rows and be done."""

    async def process(self, ctx: CoroutineContext) -> None:
        while ctx.state.get("passed", 0) < 3 and await ctx.wait_for_all({0: 1}):
            ctx.state["passed"] = ctx.state.get("passed", 0) + 1
            await ctx.emit(ctx.pop().v)


class Differences(Coroutine):
    """Look at two rows, take one: state that is in the port alone."""

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 2}):
            await ctx.emit({"t": ctx.peek(0, 1).t, "step": ctx.peek(0, 1).v - ctx.pop().v})


@case({"a": [1, 2, 3], "b": [5, 6]}, (1, 1), expects={"out": [(1, 5), (2, 6)], "end": [(2, 1, 0, True)]})
def a_coroutine_that_pairs(s: Sources) -> None:
    pairs, end = operate(Pairs(), s("a"), s("b"))
    pairs.sink("out")
    end.sink("end")


@case(two(14), UNEVEN)
def a_coroutine_that_waits_for_any(s: Sources) -> None:
    operate(Runs(), s("a", time="t"), s("b", time="t", slack=4)).sink("out")


@case(two(14), UNEVEN)
def a_coroutine_behind_keys_and_above_windows(s: Sources) -> None:
    a, b = s("a", time="t"), s("b", time="t")
    sums = a.key_by("k").scan(lambda n, r: (n + r.v, {"t": r.t, "v": n}), 0, schema={"t": int, "v": int})
    found = operate(Runs(), sums, b, a.filter(lambda r: r.v > 2))
    found.window(9).aggregate(n=agg.count(), values=agg.collect(lambda p: p[-1])).sink("windows")
    found.union(b).key_by(len).scan(lambda n, r: (n + 1, (n, r)), 0).sink("out")


@case(EVENTS)
def a_coroutine_that_returns_early(s: Sources) -> None:
    operate(FirstFew(), s()).sink("out")


@case(EVENTS)
def a_coroutine_that_looks_ahead(s: Sources) -> None:
    stream = s(time="t")
    steps = operate(Differences, stream, schema={"t": int, "step": int})
    steps.union(stream.select("t", step=pc.field("v"))).window(Count(5)).sum("step").sink("out")


@case(two(14), UNEVEN)
def a_coroutine_with_one_stream_in_two_ports(s: Sources) -> None:
    a, b = s("a"), s("b")
    pairs, end = operate(Pairs(), a, a.union(b))
    pairs.map(lambda pair: (pair[0].v, pair[1].v)).union(end, b.map(lambda r: r.v)).sink("out")


class Told(Coroutine):
    """Pair rows of all ports; where that can be no more, tell which ports are closed, and pass on what comes."""

    inputs = None
    restartable = True

    async def process(self, ctx: CoroutineContext) -> None:
        ports = range(ctx.inputs)
        while await ctx.wait_for_all(dict.fromkeys(ports, 1)):
            await ctx.emit(tuple(ctx.pop(port).v for port in ports))
        while live := {port: 1 for port in ports if ctx.len(port) or not ctx.closed(port)}:
            if await ctx.wait_for_any(live):
                closed = tuple(map(ctx.closed, ports))
                first = min(port for port in ports if ctx.len(port))
                await ctx.emit((closed, first, ctx.pop(first).v, ctx.time))
        await ctx.emit("end")


SHORT_AND_LONG = {"a": two(3)["a"], "b": two(14)["b"]}


@case(SHORT_AND_LONG, ({"a": 2, "b": 3}, {"a": 1, "b": 2}, {"b": 4}))
def a_coroutine_with_a_port_that_ends_first(s: Sources) -> None:
    a, b = s("a", time="t"), s("b", time="t")
    told = operate(Told(), a, b)
    told.union(b.map(lambda r: r.v)).sink("out")


class EndTime(Coroutine):
    """Drop pairs, and tell when there can be no more."""

    inputs = 2

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 1, 1: 1}):
            ctx.pop(0), ctx.pop(1)
        await ctx.emit((ctx.closed(0), ctx.closed(1), ctx.time))


@case(
    {"a": [{"t": 10, "v": 1}, {"t": 20, "v": 0}], "b": [{"t": 1, "v": 1}, {"t": 15, "v": 0}, {"t": 30, "v": 0}]},
    ({"a": 2, "b": 1}, {"b": 1}, {"b": 1}),
)
def a_coroutine_that_hears_an_end_at_the_watermark(s: Sources) -> None:
    """The rows that raise it do not come so far: where a ends alone, that is later than all rows seen."""
    a, b = (s(name, time="t").filter(lambda r: r.v) for name in "ab")
    operate(EndTime(), a, b).sink("out")


@case(SHORT_AND_LONG, ({"a": 2, "b": 3}, {"a": 1, "b": 2}, {"b": 4}))
def a_coroutine_whose_ports_share_sources(s: Sources) -> None:
    a, b = s("a", time="t"), s("b", time="t")
    told = operate(Told(), a.union(b), a.sort(slack=3), a.filter(lambda r: r.v % 2))
    told.union(a.map(lambda r: r.v), b.map(lambda r: -r.v)).sink("out")


@case(SHORT_AND_LONG, ({"a": 2, "b": 3}, {"a": 1, "b": 2}, {"b": 4}))
def a_coroutine_behind_a_coroutine_that_ends(s: Sources) -> None:
    a, b = s("a", time="t"), s("b", time="t")
    zipped = operate(library.Zip(longest=True), a, b.filter(lambda r: r.v > 0))
    operate(library.Merge(lambda pair: (pair[1] or pair[0]).t), zipped, zipped.filter(lambda p: p[0])).sink("out")


@case(SHORT_AND_LONG, ({"a": 2, "b": 3}, {"a": 1, "b": 2}, {"b": 4}))
def a_feedback_with_an_input_that_ends_first(s: Sources) -> None:
    def body(a: Stream, b: Stream, back: Stream) -> tuple[Stream, Stream]:
        told = operate(Told(), a, b)
        passed = operate(library.Gate(is_open=True), told, back)
        return passed, passed.map(lambda row: row != "end")

    feedback(body, s("a", time="t"), s("b", time="t")).sink("out")


@case(SHORT_AND_LONG, ({"a": 2, "b": 3}, {"a": 1, "b": 2}, {"b": 4}), fails=True)
def fails_when_a_port_closes(s: Sources) -> None:
    class Fails(Coroutine):
        inputs = 2

        async def process(self, ctx: CoroutineContext) -> None:
            while await ctx.wait_for_all({0: 1, 1: 1}):
                await ctx.emit(ctx.pop(0).v + ctx.pop(1).v)
            raise ValueError(f"{ctx.len(0)} and {ctx.len(1)} are left")

    operate(Fails(), s("a"), s("b")).sink("out")


@case(two(9), UNEVEN)
def library_barrier(s: Sources) -> None:
    a, b = s("a"), s("b")
    operate(library.Barrier(), a, b).select("v", both=pc.field("v") + pc.field("v_1")).sink("out")
    operate(library.Barrier(lambda x, y, z: x.v * y.v - z.v), a, b, a).sink("combined")


@case({"a": [1, 2, 3], "b": ["x"]}, ({"a": 2, "b": 1},), expects=[(1, "x"), (2, "-"), (3, "-")])
def library_zip(s: Sources) -> None:
    operate(library.Zip(longest=True, fill="-"), s("a"), s("b")).sink("out")


@case({"a": [1, 4, 6, 9], "b": [2, 3, 4, 8, 10], "c": [5]}, (2, 1), expects=[1, 2, 3, 4, 4, 5, 6, 8, 9, 10])
def library_merge(s: Sources) -> None:
    operate(library.Merge(lambda n: n), s("a"), s("b"), s("c")).sink("out")


@case(
    {"a": [1, 2, 3, 4, 5, 6], "b": [True, False, True]},
    (1, 1),
    expects={"dropped": [1, 3, 4, 5, 6], "held": [1, 2, 3, 4, 5, 6]},
)
def library_gate(s: Sources) -> None:
    b, a = s("b"), s("a")
    operate(library.Gate(), a, b, name="drops").sink("dropped")
    operate(library.Gate(hold=True), a, b, name="holds").sink("held")


@case(two(14), UNEVEN)
def library_switch(s: Sources) -> None:
    one, two, three = operate(library.Switch(3, lambda r: r.k if r.k < 3 else None, first=2), s("a"), s("b"))
    one.sink("one")
    two.map(lambda r: r).union(three).sink("others")


@case(MESSY)
def library_throttle(s: Sources) -> None:
    stream = s(time="t", slack=3)
    operate(library.Throttle(2, per=5), stream).sink("per span")
    operate(library.Throttle(every=4), stream).select("v").sink("every fourth")


@case(two(14), UNEVEN)
def library_join(s: Sources) -> None:
    operate(library.Join("k", lambda x, y: (x.k, x.v, y.v), rows=3), s("a"), s("b")).sink("out")


class Forgetful(Coroutine):
    """Take only rows of port 0, so that those of port 1 pile up."""

    inputs = 2

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 1}):
            await ctx.emit(ctx.pop(0).v)


@case(two(14), UNEVEN, fails=True)
def fails_where_too_many_rows_wait(s: Sources) -> None:
    operate(Forgetful(), s("a"), s("b"), max_pending=4).sink("out")


class FailsAtTheEnd(Coroutine):
    """Raise once the ports have closed."""

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 2}):
            await ctx.emit(ctx.pop().v)
        raise ValueError(f"{ctx.len()} left")


@case(EVENTS, fails=True)
def fails_in_a_coroutine_at_the_end(s: Sources) -> None:
    operate(FailsAtTheEnd(), s()).sink("out")


@case(ZEROS, fails=True)
def fails_in_a_coroutine(s: Sources) -> None:
    operate(library.Merge(inverse), s()).sink("out")


class Rate(Coroutine):
    """Pass every n-th row, n being what was fed back last; tell how many have passed."""

    inputs, outputs, control = 2, 2, (1,)

    async def process(self, ctx: CoroutineContext) -> None:
        state = ctx.state
        while await ctx.wait_for_any({0: 1, 1: 1}):
            if ctx.len(1):
                state["n"] = ctx.pop(1)
                continue
            row, state["seen"] = ctx.pop(0), state.get("seen", 0) + 1
            if state["seen"] % state.get("n", 1) == 0:
                await ctx.emit(row)
                await ctx.emit(state["seen"] % 3 + 1, port=1)
        await ctx.emit("end", port=1)


@case([5, 3, 4, 9, 1, 2, 7, 3], (1, 3), expects={"out": [5, 3, 4], "why": ["open", "open", "shut"]})
def feedback_that_shuts_a_gate(s: Sources) -> None:
    def limited(stream: Stream, back: Stream) -> tuple[Stream, ...]:
        passed = operate(library.Gate(is_open=True), stream, back)
        below = passed.scan(lambda total, n: (total + n, total + n < 12), 0)
        return passed, below.map(lambda fine: "open" if fine else "shut"), below

    passed, why = feedback(limited, s())
    passed.sink("out")
    why.sink("why")


@case(two(14), UNEVEN)
def feedback_between_keys_and_windows(s: Sources) -> None:
    def rated(a: Stream, b: Stream, back: Stream) -> tuple[Stream, ...]:
        passed, rate = operate(Rate(), a.union(b), back.filter(lambda n: n != "end"))
        counts = passed.key_by("k").aggregate(n=agg.count(), total=agg.sum("v"))
        return counts, passed, rate.flat_map(lambda n: [n] if n == "end" else [n + 1, n])

    a, b = s("a", time="t"), s("b", time="t")
    counts, passed = feedback(rated, a.filter(lambda r: r.v > -4), b)
    passed.window(8).count().sink("windows")
    counts.map(tuple).union(passed.map(tuple), a.map(lambda r: r.v)).sink("out")


@case(ZEROS, fails=True)
def fails_in_a_feedback(s: Sources) -> None:
    def failing(stream: Stream, back: Stream) -> tuple[Stream, ...]:
        passed = operate(library.Gate(is_open=True), stream, back)
        return passed, passed.map(inverse, name="inside")

    feedback(failing, s()).sink("out")
