"""More kinds of steps for random flows: co-routines, which may all begin again at their waits, and odd keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from penstock.flow import Flow, Stream, operate
from penstock.operators import aggregates as agg
from penstock.operators import library
from penstock.operators.calls import Cache
from penstock.operators.coroutine import Coroutine, CoroutineContext
from penstock.operators.pattern import Match, absent
from penstock.operators.pattern import step as pattern_step
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Tumbling

from .flows.calls import count_attempt
from .strategies import FIELDS, KINDS, Build, Kind, Step, again, declared

ODD = {"t": pa.int64(), "x": pa.float64(), "v": pa.int64()}
"""Rows with a key that may be null, NaN or a zero below zero."""

ALL_KINDS: dict[str, Kind] = dict(KINDS)


def kind(*, reads: tuple[int, int] = (1, 1), most: int = 2) -> Callable[[Build], Build]:
    """Register one more kind of step."""

    def register(build: Build) -> Build:
        ALL_KINDS[build.__name__] = Kind(build, reads, most)
        return build

    return register


class Pairs(Coroutine):
    """Pair the rows of two ports, and tell at the end how many pairs there were and what is left."""

    inputs, outputs = 2, 2

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 1, 1: 1}):
            ctx.state["pairs"] = ctx.state.get("pairs", 0) + 1
            left, right = ctx.pop(0), ctx.pop(1)
            await ctx.emit({"t": left.t, "k": right.k, "v": left.v * 2 - right.v})
        await ctx.emit({"t": ctx.state.get("pairs", 0), "k": ctx.len(0), "v": ctx.len(1)}, port=1)


class Runs(Coroutine):
    """Emit what is there whenever one port has three rows or the other two, and all that is left at the end."""

    inputs = None

    async def process(self, ctx: CoroutineContext) -> None:
        while True:
            more = await ctx.wait_for_any({0: 3, ctx.inputs - 1: 2})
            ctx.state["rounds"] = ctx.state.get("rounds", 0) + 1
            for port, count in enumerate([ctx.len(port) for port in range(ctx.inputs)]):
                for _ in range(count):
                    row = ctx.pop(port)
                    await ctx.emit({"t": row.t, "k": port, "v": row.v + ctx.state["rounds"] % 3})
            if not more:
                return


class Differences(Coroutine):
    """Look at two rows, take one: state that is in the port alone."""

    async def process(self, ctx: CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 2}):
            await ctx.emit({"t": ctx.peek(0, 1).t, "k": ctx.peek(0, 1).k, "v": ctx.peek(0, 1).v - ctx.pop().v})


@kind()
def forgetful(step: Step, streams: list[Stream]) -> list[Stream]:
    def total(state: int, row: Any) -> tuple[int, dict[str, int]]:
        return state + row.v, {"t": row.t, "k": row.k, "v": state}

    return [streams[0].key_by("k").scan(total, 0, schema=FIELDS, ttl=1 + 5 * step.a)]


@kind(reads=(2, 2))
def paired(step: Step, streams: list[Stream]) -> list[Stream]:
    return list(operate(Pairs(), *streams, schema=FIELDS))


@kind(reads=(2, 3))
def in_runs(step: Step, streams: list[Stream]) -> list[Stream]:
    return [operate(Runs(), *streams, schema=FIELDS)]


@kind()
def differences(step: Step, streams: list[Stream]) -> list[Stream]:
    return [operate(Differences, streams[0], schema=FIELDS)]


@kind(reads=(2, 2))
def zipped(step: Step, streams: list[Stream]) -> list[Stream]:
    def combine(pair: Any) -> dict[str, int]:
        left, right = pair
        return {
            "t": (left or right).t,
            "k": (right or left).k,
            "v": (left.v if left else 9) - (right.v if right else 7),
        }

    return [operate(library.Zip(longest=step.choice), *streams).map(combine, schema=FIELDS)]


@kind(reads=(2, 2))
def gated(step: Step, streams: list[Stream]) -> list[Stream]:
    a = step.a
    opens = streams[1].map(lambda r: r.v > a, schema=bool)
    return [operate(library.Gate(hold=step.choice, is_open=step.b % 2 == 0), streams[0], opens)]


@kind()
def throttled(step: Step, streams: list[Stream]) -> list[Stream]:
    gate = library.Throttle(1 + step.a % 2, per=2 + step.b) if step.choice else library.Throttle(every=2 + step.a)
    return [operate(gate, streams[0])]


@kind()
def called(step: Step, streams: list[Stream]) -> list[Stream]:
    """Fail at each row's first attempts, in the thread that makes all of them."""
    tries, fails = step.a % 3, step.b

    def ask(row: Any) -> Any:
        count_attempt(row, (row.v + fails) % 4, tries)
        return {"t": row.t, "k": row.k, "v": row.v + 1}

    made = streams[0].map(ask, schema=FIELDS, on_error="dead_letter", retries=tries, backoff="1 ms")
    letters = made.errors.map(lambda e: {"t": 0, "k": e.attempts, "v": len(e.error)}, schema=FIELDS)
    cache: Any = {"cache": Cache(3, by="v")} if step.choice else {}
    return [made, letters.map(lambda r: {"t": r.t, "k": r.k, "v": -r.v}, schema=FIELDS, **cache)]


def odd(stream: Stream) -> Stream:
    """Give rows a key that may be null, NaN or one of two zeros."""

    def key(row: Any) -> float | None:
        values = [None, math.nan, -0.0, 0.0, float(row.k), math.nan, None]
        return values[(row.v + 3 * row.t) % 7]

    return stream.map(lambda r: {"t": r.t, "x": key(r), "v": r.v}, schema=ODD)


@kind()
def keyed_oddly(step: Step, streams: list[Stream]) -> list[Stream]:
    stream = odd(declared(streams[0]))
    keyed = stream.key_by("x") if step.choice else stream.key_by(lambda r: r.x)
    look_at(keyed.scan(lambda n, r: (n + 1, {"x": r.x, "n": n}), 0, schema=NUMBERED), "numbered")
    look_at(keyed.top(1 + step.b, by="v"), "best")
    low = pc.field("v") < step.a
    made = keyed.aggregate(
        n=agg.count(), s=agg.sum("v"), low=agg.count(where=low), when=agg.argmax("t", by="v", where=low)
    )
    return [again(made, "n", "s", "low", "when")]


@kind(reads=(2, 2), most=1)
def joined_oddly(step: Step, streams: list[Stream]) -> list[Stream]:
    def combine(left: Any, right: Any) -> dict[str, Any]:
        v = ((left.v if left else 50) * 3 + (right.v if right else 70)) % 41
        return {"a": left and left.x, "b": right and right.x, "both": bool(left and right), "v": v}

    how: Any = ["inner", "outer", "left", "right"][step.a % 4]
    left, right = (odd(declared(stream)) for stream in streams)
    if step.choice:
        keyed = left.key_by("x"), right.key_by("x")
    else:
        keyed = left.key_by(lambda r: r.x), right.key_by(lambda r: r.x)
    joined = keyed[0].join(keyed[1], Tumbling(step.b + 3), combine, how=how, schema=JOINED)
    look_at(joined, "joined")
    return [again(joined, "v")]


@kind(reads=(2, 2), most=1)
def joined_closely(step: Step, streams: list[Stream]) -> list[Stream]:
    def combine_close(left: Any, right: Any) -> dict[str, Any]:
        v = ((left.v if left else 50) * 3 + (right.v if right else 70)) % 41
        return {"a": left and left.x, "b": right and right.x, "both": bool(left and right), "v": v}

    how: Any = ["inner", "outer", "left", "right", "semi", "anti"][(step.a + 5 * step.choice) % 6]
    left, right = (odd(declared(stream)) for stream in streams)
    reach = {"ttl": 1 + 20 * step.a} if step.b == 4 else {"within": (-step.a, max(-step.a, step.b - 1))}
    if how in ("semi", "anti"):
        joined = left.join(right, on="x", how=how, name="close", **reach)
    else:
        joined = left.join(right, on="x", how=how, combine=combine_close, schema=JOINED, name="close", **reach)
        look_at(joined, "joined")
    made = again(joined, "v")
    return [made, again(joined.late, "v")] if "within" in reach else [made]


class Both(Process):
    """Add up one side and take away the other; tell of the sum after each row, and some time after the last."""

    def on_left(self, row: Any, context: ProcessContext) -> None:
        self._add(row.v, context)

    def on_right(self, row: Any, context: ProcessContext) -> None:
        self._add(-row.v, context)

    def _add(self, value: int, context: ProcessContext) -> None:
        total, due = context.state or (0, None)
        if due is not None:
            context.cancel_timer(due)
        context.state = (total + value, context.set_timer(context.time + 4))
        context.emit({"t": context.time, "k": context.key, "v": (total + value) % 41})

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        total, _ = context.state
        context.emit({"t": time, "k": context.key, "v": 50 + total % 41})
        context.state = None


@kind(reads=(2, 2), most=1)
def connected(step: Step, streams: list[Stream]) -> list[Stream]:
    left, right = (declared(stream).key_by("k") for stream in streams)
    return [left.connect(right, Both, schema=FIELDS)]


@kind()
def looked_up(step: Step, streams: list[Stream]) -> list[Stream]:
    """In a table that finds keys again, and says so beside them."""
    table = [{"a": x, "since": s, "n": s + step.b} for x in (None, math.nan, 0.0, 1.0) for s in (-9, 1, step.a * 4)]
    how: Any = "inner" if step.b % 2 else "left"
    stream = odd(declared(streams[0]))
    if step.choice:
        found = stream.lookup(table, on={"x": "a"}, as_of={"t": "since"}, how=how, fields=["a", "n"])
    else:
        found = stream.lookup(table[::3], on={"x": "a"}, how=how, fields=["a", "n"])
    both = found.select("a", "v", b=pc.field("x"), both=pc.is_valid(pc.field("n")))
    look_at(both, "joined")
    return [again(both, "v")]


@kind(reads=(2, 2), most=1)
def looked_up_in_another(step: Step, streams: list[Stream]) -> list[Stream]:
    how: Any = "inner" if step.b % 2 else "left"
    left, right = (odd(declared(stream)) for stream in streams)
    options: dict[str, Any] = {"as_of": True} if step.choice else {}
    if step.a > 1:
        options["ttl"] = 5 * step.a
    found = left.lookup(right.key_by("x"), on="x", how=how, fields={"x": "b", "v": "n"}, name="latest", **options)
    both = found.select(
        "b", a=pc.field("x"), both=pc.is_valid(pc.field("n")), v=pc.coalesce(pc.field("n"), pc.field("v"))
    )
    look_at(both, "joined")
    return [again(both, "v"), again(found.late, "v")] if step.choice else [again(both, "v")]


@kind()
def matched(step: Step, streams: list[Stream]) -> list[Stream]:
    """Rows that fall, and then one that is higher, or none for some time."""
    most, then = step.a % 3 + 2, absent if step.choice else pattern_step
    steps = pattern_step("low", lambda r: r.v < most, times=(1 + step.b % 2, 3)), then("high", lambda r: r.v >= most)

    def total(match: Match) -> dict[str, int]:
        return {"t": match.end, "k": match.key, "v": sum(row.v for row in match.rows) % 7}

    keyed = streams[0].key_by("k")
    overlap, strict = step.b > 2, step.a > 3
    return [keyed.pattern(*steps, within=3 + 4 * step.a, combine=total, schema=FIELDS, overlap=overlap, strict=strict)]


# What is known of rows whatever the engines say: the reference engine shares the operators. ---------------------------

NUMBERED = {"x": pa.float64(), "n": pa.int64()}
JOINED = {"a": pa.float64(), "b": pa.float64(), "both": pa.bool_(), "v": pa.int64()}
LOOKED_AT: WeakKeyDictionary[Flow, list[tuple[str, Stream]]] = WeakKeyDictionary()
"""The streams of a flow that are looked at, each with what its rows are."""


def look_at(stream: Stream, what: str) -> None:
    """Have the rows of a stream come out at a sink of their own, and looked at."""
    found = LOOKED_AT.setdefault(stream.flow, [])
    found.append((f"{what} {len(found)}", stream))


def same_key(a: float | None, b: float | None) -> bool:
    """Tell whether values are one key in SQL: NaN is one, and so are both zeros."""
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


def look(results: dict[str, list[Any]]) -> None:
    """Look at keys: rows of one are numbered one after the other, and only equal ones that are not null join."""
    for name, rows in results.items():
        if name.startswith("numbered"):
            seen: list[tuple[float | None, int]] = []
            for row in rows:
                assert row["n"] == sum(same_key(x, row["x"]) for x, _ in seen), f"{name}: {row} behind {seen}"
                seen.append((row["x"], row["n"]))
        elif name.startswith("joined"):
            wrong = [r for r in rows if r["both"] and (r["a"] is None or not same_key(r["a"], r["b"]))]
            assert not wrong, f"{name}: {wrong}"
