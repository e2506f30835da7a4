"""Operators with memory."""

from __future__ import annotations

from typing import Any

from penstock.operators import aggregates as agg
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Count

from .cases import EVENTS, MESSY, Sources, case


@case(
    [("a", 1), ("b", 5), ("a", 2), ("a", 3), ("b", 1)],
    (2, 1),
    expects=[("a", 1), ("b", 5), ("a", 3), ("a", 6), ("b", 6)],
)
def scan_by_key(s: Sources) -> None:
    s().key_by(lambda pair: pair[0]).scan(lambda total, p: (total + p[1], (p[0], total + p[1])), 0).sink("out")


@case(EVENTS)
def scan_with_changing_state(s: Sources) -> None:
    def last_three(seen: list[int], row: Any) -> tuple[list[int], list[int]]:
        seen.append(row.v)
        del seen[:-3]
        return seen, list(seen)

    s().key_by("k").scan(last_three, []).sink("out")


@case(EVENTS)
def flat_scan_by_key(s: Sources) -> None:
    def changes(last: int | None, row: Any) -> tuple[int, list[tuple[int, int | None, int]]]:
        return row.v, [(row.k, last, row.v)] * (abs(row.v - (last or 0)) % 3)

    s().key_by("k").flat_scan(changes).sink("out")


@case(EVENTS)
def reduce_by_key(s: Sources) -> None:
    s().key_by("k").reduce(lambda a, b: b if b.v > a.v else a).sink("out")


@case(EVENTS)
def aggregate_by_key(s: Sources) -> None:
    s().key_by("k").aggregate(
        n=agg.count(),
        total=agg.sum("v"),
        low=agg.min("v"),
        high=agg.max("v"),
        mean=agg.mean("v"),
        first=agg.first("v"),
        last=agg.last("v"),
        all=agg.collect("v"),
    ).sink("out")


@case(EVENTS)
def aggregate_by_functions(s: Sources) -> None:
    s().key_by("k").aggregate(
        product=agg.fold(lambda: 1, lambda p, r: p * (abs(r.v) + 1) % 1009, returns=int),
        odd=agg.sum(lambda r: r.v % 2),
    ).sink("out")


@case([{"k": i % 3, "v": (0.1 + i) * 10 ** (i % 17)} for i in range(30)])
def sums_of_floats_to_the_last_bit(s: Sources) -> None:
    stream = s()
    stream.key_by("k").aggregate(total=agg.sum("v"), mean=agg.mean("v")).sink("keyed")
    stream.window(Count(7)).sum("v").sink("windows out")


@case([1, 2, 3, 4, 5], (2,), expects=[1, 3, 6, 10, 15])
def scan_of_the_whole_stream(s: Sources) -> None:
    s().scan(lambda total, n: (total + n, total + n), 0).sink("out")


@case([4, 1, 5, 2], (1, 1), expects=[4, 4, 5, 5])
def reduce_of_the_whole_stream(s: Sources) -> None:
    s().reduce(max).sink("out")


@case(EVENTS)
def aggregate_of_the_whole_stream(s: Sources) -> None:
    s().aggregate(n=agg.count(), mean=agg.mean("v")).sink("out")


class Idle(Process):
    """Tell when a key has been silent for two ticks, and how many rows it had."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        due, count = context.state or (None, 0)
        if due is not None:
            context.cancel_timer(due)
        # A late row's may have passed: the next row must find it all the same.
        context.state = (context.set_timer(row.t + 2), count + 1)

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit((context.key, "idle", time, context.state[1]))
        context.state = None


class Summary(Process):
    """Emit each row numbered, a reminder that renews itself, and a total at the end."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.emit(("row", context.key, context.state, context.time, context.watermark))
        if context.state == 1:
            context.set_timer(row.t + 5)
        if context.state % 4 == 0:
            context.set_timer(row.t - 5)

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("timer", context.key, time, context.watermark))
        context.set_timer(time + 5)

    def on_end(self, context: ProcessContext) -> None:
        context.emit(("end", context.key, context.state, context.time))


@case(MESSY)
def process_with_timers(s: Sources) -> None:
    s(time="t", slack=3).key_by("k").process(Idle).sink("out")


@case(MESSY)
def process_with_renewed_timers_and_end(s: Sources) -> None:
    s(time="t", slack=3).key_by("k").process(Summary).sink("out")


@case(MESSY)
def process_of_the_whole_stream(s: Sources) -> None:
    s(time="t").process(Summary).sink("out")


@case(EVENTS)
def process_without_time(s: Sources) -> None:
    s().key_by("k").process(Summary).sink("out")


@case(EVENTS)
def two_keyed_stages(s: Sources) -> None:
    sums = (
        s()
        .key_by("k")
        .scan(
            lambda total, r: (total + r.v, {"bucket": (total + r.v) % 3, "k": r.k}), 0, schema={"bucket": int, "k": int}
        )
    )
    sums.key_by("bucket").aggregate(n=agg.count(), keys=agg.collect("k")).sink("out")


@case(EVENTS)
def three_keyed_stages_with_a_fan_out(s: Sources) -> None:
    first = s().key_by("k").scan(lambda n, r: (n + 1, (r.k, n, r.v)), 0)
    second = first.key_by(lambda p: p[1] % 2).scan(lambda n, p: (n + p[2], (*p, n)), 0)
    second.union(first).key_by(len).scan(lambda n, p: (n + 1, (n, p)), 0).sink("out")
