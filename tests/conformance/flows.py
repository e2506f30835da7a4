"""Named flows that every engine must run as the sequential engine does: one for each thing that a flow can be.

A case is a function that adds operators and sinks to the sources that it asks for, with the rows of these sources and
the way to cut them in epochs. What is written out as `expects` was worked out by hand, so that the reference engine
is held to something too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from penstock import read
from penstock.flow import Flow, Stream, operate
from penstock.operators import aggregates as agg
from penstock.operators import library
from penstock.operators.coroutine import Operator, OperatorContext
from penstock.operators.library import feedback
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Count, Session, Sliding, Tumbling

from .engines import Epochs, cut

Rows = dict[str, list[Any]]


class Sources:
    """The sources of a flow that is being built."""

    def __init__(self, name: str, rows: Rows) -> None:
        self.flow, self.rows = Flow(name), rows

    def __call__(self, name: str = "in", **options: Any) -> Stream:
        """Add a source with the rows that the case has for it."""
        return self.flow.source(name, read.items(self.rows[name]), **options)


@dataclasses.dataclass(frozen=True)
class Case:
    """One flow, its input, and how that is cut."""

    name: str
    build: Callable[[Sources], Any]
    rows: Rows
    sizes: tuple[dict[str, int], ...]
    expects: dict[str, list[Any]] | None
    fails: bool

    def flow(self) -> Flow:
        """Build the flow anew."""
        sources = Sources(self.name.replace("_", " "), self.rows)
        self.build(sources)
        return sources.flow

    def epochs(self) -> Epochs:
        """Return the rows in the epochs of this case."""
        return cut(self.rows, self.sizes)


CASES: dict[str, Case] = {}


def case(
    rows: list[Any] | Rows,
    sizes: tuple[int, ...] | tuple[dict[str, int], ...] = (3, 4),
    *,
    expects: dict[str, list[Any]] | list[Any] | None = None,
    fails: bool = False,
) -> Callable[[Callable[[Sources], Any]], Callable[[Sources], Any]]:
    """Make a case of a function. One source is named "in", one sink "out"; sizes are those of the first epochs."""
    by_source = rows if isinstance(rows, dict) else {"in": rows}
    all_sizes = tuple(size if isinstance(size, dict) else dict.fromkeys(by_source, size) for size in sizes)
    wanted = {"out": expects} if isinstance(expects, list) else expects

    def register(build: Callable[[Sources], Any]) -> Callable[[Sources], Any]:
        name = build.__name__
        assert name not in CASES, name
        CASES[name] = Case(name, build, by_source, all_sizes, wanted, fails)
        return build

    return register


def events(count: int, *, seed: int = 0, keys: int = 4, disorder: int = 0, step: int = 3) -> list[dict[str, int]]:
    """Make rows (t, k, v): times rise by up to `step`, and are then put back by up to `disorder`."""
    draw = random.Random(seed)
    time, rows = 0, []
    for _ in range(count):
        time += draw.randint(0, step)
        rows.append({"t": time - draw.randint(0, disorder), "k": draw.randrange(keys), "v": draw.randint(-5, 9)})
    return rows


def two(count: int, **options: Any) -> Rows:
    """Make rows for the sources a and b."""
    return {"a": events(count, seed=1, **options), "b": events(count, seed=2, **options)}


EVENTS = events(24)
MESSY = events(30, seed=5, disorder=8)
UNEVEN = ({"a": 3, "b": 0}, {"a": 0, "b": 5}, {"a": 2, "b": 2}, {"a": 0, "b": 0}, {"a": 4, "b": 1})


# Without memory -------------------------------------------------------------------------------------------------


@case([1, 2, 3, 4], (1, 2), expects=[2, 4, 6, 8])
def map_bare_values(s: Sources) -> None:
    s().map(lambda n: n * 2).sink("out")


@case(EVENTS)
def map_to_declared_records(s: Sources) -> None:
    s().map(lambda r: {"who": r.k, "twice": r.v * 2.0}, schema={"who": int, "twice": float}).sink("out")


@case(EVENTS)
def filter_by_function(s: Sources) -> None:
    s().filter(lambda r: r.v > 2).filter(lambda r: r.k != 1).sink("out")


@case([3, 0, 1, 2], (1, 1, 1, 1), expects=[0, 1, 2, 0, 0, 1])
def flat_map_of_any_length(s: Sources) -> None:
    s().flat_map(range).sink("out")


@case(EVENTS)
def flat_map_of_a_flat_map(s: Sources) -> None:
    def copies(row: Any) -> Iterator[tuple[int, int]]:
        for copy in range(row.v % 3):
            yield row.v, copy

    s().flat_map(copies).flat_map(lambda pair: [(*pair, "x"), (*pair, "y")]).sink("out")


@case([{"a": 1, "b": None}, {"a": 2, "b": 1.5}, {"a": None, "b": 2.0}], (1,), expects=[(4, 3.0, True)])
def select_and_filter_by_expressions(s: Sources) -> None:
    stream = s().filter(pc.field("b") > 0)
    stream.select(double=pc.field("a") * 2, twice=pc.field("b") * 2, many=pc.field("a") > 1).filter(
        pc.field("many")
    ).sink("out")


@case(EVENTS)
def map_batches_row_for_row(s: Sources) -> None:
    def negate(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(2, "v", pc.negate(batch.column("v")))

    s().map_batches(negate).sink("out")


@case(EVENTS)
def map_batches_with_indexes(s: Sources) -> None:
    def explode(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
        index = [i for i, v in enumerate(batch.column("v").to_pylist()) for _ in range(max(0, v % 3))]
        return batch.take(pa.array(index, pa.int64())), index

    s().map_batches(explode).map(lambda r: (r.t, r.v)).sink("out")


@case(EVENTS)
def map_batches_to_another_schema(s: Sources) -> None:
    def shout(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"text": [f"{k}!" for k in batch.column("k").to_pylist()]})

    s().map_batches(shout, schema={"text": str}).key_by("text").aggregate(n=agg.count()).sink("out")


@case(EVENTS)
def split_in_three(s: Sources) -> None:
    low, high, rest = s().split(lambda r: r.v < 0, lambda r: r.v > 5)
    low.sink("low")
    high.map(lambda r: r.v).sink("high")
    rest.select("v").sink("rest")


@case([5, 1, 7, 2, 8], (2, 2), expects=["big 5", "small 1", "big 7", "small 2", "big 8"])
def split_and_union(s: Sources) -> None:
    small, rest = s().split(lambda n: n < 4)
    rest.map(lambda n: f"big {n}").union(small.map(lambda n: f"small {n}")).sink("out")


# Fan-out and fan-in ---------------------------------------------------------------------------------------------


@case(["ab", "c"], (1,), expects=["Xa", "Ya", "Xb", "Yb", "Xc", "Yc"])
def the_union_example(s: Sources) -> None:
    several = s().flat_map(list)
    several.map(lambda c: f"X{c}").union(several.map(lambda c: f"Y{c}")).sink("out")


@case(EVENTS)
def one_source_read_twice(s: Sources) -> None:
    stream = s()
    stream.union(stream).scan(lambda n, r: (n + 1, (n, r.v)), 0).sink("out")


@case(EVENTS)
def fan_out_inside_a_fan_out(s: Sources) -> None:
    top = s()
    inner = top.flat_map(lambda r: [(r.v, i) for i in range(r.k)])
    left = inner.map(lambda p: ("L", *p)).union(inner.filter(lambda p: p[1]).map(lambda p: ("R", *p)))
    left.union(top.map(lambda r: ("top", r.v)), inner.map(lambda p: ("I", *p))).sink("out")


@case(EVENTS)
def fan_out_to_sinks_at_every_level(s: Sources) -> None:
    stream = s(time="t")
    stream.sink("raw")
    sums = stream.key_by("k").scan(lambda total, r: (total + r.v, total + r.v), 0)
    sums.sink("sums")
    stream.window(10).count().sink("windows out")
    sums.scan(lambda n, total: (n + 1, (n, total)), 0).sink("numbered")


@case(
    {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]},
    ({"a": 1, "b": 1}, {"b": 1, "a": 0}),
    expects=["a1", "b1", "b2", "a2", "a3"],
)
def union_of_two_sources(s: Sources) -> None:
    a, b = s("a"), s("b")
    b.union(a).sink("out")


@case(two(14), UNEVEN)
def union_of_two_sources_with_state(s: Sources) -> None:
    a, b = s("a", time="t"), s("b", time="t", slack=4)
    both = a.map(lambda r: r).union(b.filter(lambda r: r.v > -3))
    both.key_by("k").scan(lambda seen, r: ((seen or ()) + (r.v,), (r.k, seen))).sink("out")


@case(two(14), UNEVEN)
def union_of_different_types(s: Sources) -> None:
    a, b = s("a"), s("b")
    a.select("v").union(b.map(lambda r: r.k), a).sink("out")


@case(two(14), UNEVEN)
def merge_of_two_sources(s: Sources) -> None:
    s("a", time="t").merge(s("b", time="t"), by="t").sink("out")


@case({"a": events(9, seed=1), "b": events(9, seed=2, disorder=4), "c": events(4, seed=3)}, (2, 2))
def merge_of_three_sources_with_late_rows(s: Sources) -> None:
    merged = s("a", time="t").merge(s("b", time="t", slack=2), s("c", time="t"), by="t")
    merged.late.map(lambda r: r.t).sink("late")
    merged.sink("out")


@case(EVENTS)
def a_stream_that_is_defined_later(s: Sources) -> None:
    later = s.flow.forward("later")
    later.map(lambda r: r.v + 1).sink("out")
    later.connect(s().filter(lambda r: r.k))


@case([1, 2], (1,), expects=["first 1", "second 1", "first 2", "second 2"])
def a_forward_does_not_change_the_order_of_a_fan_out(s: Sources) -> None:
    later = s.flow.forward("later")
    stream = s()
    first = stream.map(lambda n: f"first {n}")
    later.connect(stream.map(lambda n: f"second {n}"))
    later.union(first).sink("out")


# State ----------------------------------------------------------------------------------------------------------


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
    """Tell when a key has been silent for six ticks, and how many rows it had."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        last, count = context.state or (None, 0)
        if last is not None:
            context.cancel_timer(last + 6)
        context.state = (row.t, count + 1)
        context.set_timer(row.t + 6)

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


# Windows --------------------------------------------------------------------------------------------------------


@case(MESSY)
def tumbling_by_key(s: Sources) -> None:
    s(time="t", slack=5).key_by("k").window(10).aggregate(n=agg.count(), rows=agg.collect("v")).sink("out")


@case([{"t": t} for t in (-11, -3, 4, 5, 14)], (2, 1), expects=[(-15, -5, 1), (-5, 5, 2), (5, 15, 2)])
def tumbling_of_the_whole_stream_with_offset(s: Sources) -> None:
    s(time="t").window(Tumbling(10, offset=5)).count().sink("out")


@case(MESSY)
def sliding_by_key(s: Sources) -> None:
    s(time="t", slack=4).key_by("k").window(Sliding(10, 4)).aggregate(rows=agg.collect("v")).sink("out")


@case([{"t": t} for t in (0, 4, 7, 12)], (1, 1), expects=[(-5, 5, 2), (0, 10, 3), (5, 15, 2), (10, 20, 1)])
def sliding_of_the_whole_stream(s: Sources) -> None:
    s(time="t").window(Sliding(10, 5)).count().sink("out")


@case(MESSY)
def sessions_by_key(s: Sources) -> None:
    s(time="t", slack=4).key_by("k").window(Session(5)).aggregate(rows=agg.collect("t")).sink("out")


@case([{"t": t} for t in (0, 8, 4, 20)], (1, 1, 1), expects=[(0, 13, 3), (20, 25, 1)])
def sessions_of_the_whole_stream_that_become_one(s: Sources) -> None:
    s(time="t", slack=9).window(Session(5)).count().sink("out")


@case(EVENTS)
def count_windows_by_key(s: Sources) -> None:
    s(time="t").key_by("k").window(Count(4)).aggregate(rows=agg.collect("v")).sink("out")


@case(list(range(7)), (2, 3), expects=[(0, [0, 1, 2]), (1, [3, 4, 5]), (2, [6])])
def count_windows_of_the_whole_stream(s: Sources) -> None:
    s().window(Count(3)).aggregate(rows=agg.collect("value")).sink("out")


@case(MESSY)
def late_rows_of_windows(s: Sources) -> None:
    stream = s(time="t", slack=1)
    for name, spec in {"tumbling": Tumbling(5), "sliding": Sliding(6, 3), "session": Session(3)}.items():
        window = stream.key_by("k").window(spec).count(name=name)
        window.sink(f"{name} out")
        window.late.sink(f"{name} late")


@case(MESSY)
def windows_reduced_and_applied(s: Sources) -> None:
    stream = s(time="t", slack=8)
    stream.key_by("k").window(7).reduce(lambda a, b: a if a.v > b.v else b).sink("reduced")
    stream.window(7).apply(lambda w, rows: (w.start, w.end, [r.v for r in rows])).sink("applied")
    stream.key_by("k").window(Session(4)).apply(
        lambda w, rows: {"k": w.key, "n": len(rows)}, schema={"k": int, "n": int}
    ).sink("sessions out")


@case(
    [{"t": t, "k": k} for t, k in [(5, "z"), (3, "a"), (14, "a"), (12, "q"), (4, "z"), (8, "m"), (99, "x")]],
    (2, 2),
    expects=[("z", 0, 10, 2), ("a", 0, 10, 1), ("m", 0, 10, 1), ("a", 10, 20, 1), ("q", 10, 20, 1), ("x", 90, 100, 1)],
)
def many_keys_closing_at_one_mark(s: Sources) -> None:
    s(time="t", slack=20).key_by("k").window(10).count().sink("out")


@case(events(60, seed=9, keys=20, step=1), (7, 30))
def many_keys_and_many_marks(s: Sources) -> None:
    s(time="t").key_by("k").window(Sliding(6, 2)).count().sink("out")


@case(MESSY)
def nested_windows(s: Sources) -> None:
    inner = s(time="t", slack=6).key_by("k").window(4).aggregate(n=agg.count())
    inner.window(12).aggregate(windows=agg.count(), rows=agg.sum("n")).sink("out")


@case(MESSY)
def sessions_of_sliding_windows_by_another_key(s: Sources) -> None:
    inner = s(time="t", slack=6).key_by("k").window(Sliding(6, 3)).aggregate(n=agg.count())
    inner.key_by("n").window(Session(4)).aggregate(ends=agg.collect("window_end")).sink("out")


@case(MESSY)
def windows_in_the_branches_of_a_fan_out(s: Sources) -> None:
    stream = s(time="t", slack=4)
    large = stream.key_by("k").window(12).aggregate(n=agg.count()).map(lambda w: ("large", w.k, w.window_end, w.n))
    small = stream.window(5).count().map(lambda w: ("small", w.window_end, w.count))
    rows = stream.map(lambda r: ("row", r.t))
    large.union(rows, small).sink("out")


@case(MESSY)
def a_window_below_branches_with_windows(s: Sources) -> None:
    stream = s(time="t", slack=4)
    small = stream.window(3).aggregate(n=agg.count())
    sessions = stream.key_by("k").window(Session(3)).aggregate(n=agg.count()).select("window_start", "window_end", "n")
    small.union(sessions).window(9).aggregate(pieces=agg.count(), rows=agg.sum("n")).sink("out")


@case(two(20, disorder=3), UNEVEN)
def windows_over_two_sources(s: Sources) -> None:
    both = s("a", time="t", slack=2).union(s("b", time="t"))
    window = both.key_by("k").window(8).aggregate(rows=agg.collect("v"))
    window.late.sink("late")
    window.sink("out")


@case(EVENTS)
def count_windows_then_time_windows(s: Sources) -> None:
    """What is left at the end belongs to the last time window, not to one that never closes."""
    counts = s(time="t").key_by("k").window(Count(3)).aggregate(n=agg.count())
    window = counts.window(10).aggregate(n=agg.count())
    window.late.sink("late")
    window.sink("out")


@case(EVENTS)
def a_process_that_emits_at_the_end_into_windows(s: Sources) -> None:
    ends = s(time="t").key_by("k").process(Summary)
    ends.window(10).aggregate(kinds=agg.collect(lambda e: e[0])).sink("out")


MOMENTS = [
    {"at": dt.datetime(2024, 3, 1, 12, minute, second, tzinfo=dt.UTC), "k": minute % 2}
    for minute, second in [(0, 5), (3, 0), (1, 30), (9, 59), (10, 0), (8, 0), (25, 1), (24, 59)]
]


@case(MOMENTS, (2, 2))
def timestamps_and_durations(s: Sources) -> None:
    stream = s(time="at", slack="3 min")
    stream.key_by("k").window("10 min").count().sink("out")
    stream.window(Session(dt.timedelta(minutes=2))).count().sink("sessions out")
    stream.sort(slack="1 min").sink("sorted")


@case([{"on": dt.date(2024, 1, day)} for day in (1, 1, 2, 9)], (1,))
def dates_as_times(s: Sources) -> None:
    s(time="on").window("1 week").count().sink("out")


# Joins and sorting ----------------------------------------------------------------------------------------------


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    """Show a pair of rows by their values."""
    return (left and (left.t, left.v), right and (right.t, right.v))


def joined(s: Sources, how: Any, window: Any = 8) -> Stream:
    """Join a and b."""
    left, right = s("a", time="t", slack=1), s("b", time="t")
    stream = left.key_by("k").join(right.key_by("k"), window, pair, how=how)
    stream.late_left.map(lambda r: r.t).sink("late left")
    stream.late_right.map(lambda r: r.t).sink("late right")
    return stream


@case(two(18, disorder=4), UNEVEN)
def join_inner(s: Sources) -> None:
    joined(s, "inner").sink("out")


@case(two(18, disorder=4), UNEVEN)
def join_left(s: Sources) -> None:
    joined(s, "left").sink("out")


@case(two(18, disorder=4), UNEVEN)
def join_right(s: Sources) -> None:
    joined(s, "right").sink("out")


@case(two(18, disorder=4), UNEVEN)
def join_outer(s: Sources) -> None:
    joined(s, "outer").sink("out")


@case(two(18), UNEVEN)
def join_in_sliding_windows(s: Sources) -> None:
    joined(s, "outer", Sliding(6, 3)).sink("out")


@case(two(18), UNEVEN)
def join_side_by_side(s: Sources) -> None:
    s("a", time="t").key_by("k").join(s("b", time="t").key_by("k"), 6, how="outer").sink("out")


@case(EVENTS)
def join_with_itself(s: Sources) -> None:
    stream = s(time="t")
    stream.key_by("k").join(stream.filter(lambda r: r.v > 0).key_by("k"), 6, pair, how="left").sink("out")


@case(two(18), UNEVEN)
def join_then_window(s: Sources) -> None:
    stream = s("a", time="t").key_by("k").join(s("b", time="t").key_by("k"), 5, pair, how="outer")
    stream.window(10).aggregate(pairs=agg.count()).sink("out")


@case(
    [{"t": t} for t in (3, 1, 2, 9, 5, 4, 12)],
    (2, 2),
    expects={"out": [(1,), (2,), (3,), (5,), (9,), (12,)], "late": [(4,)]},
)
def sort_with_slack(s: Sources) -> None:
    stream = s(time="t").sort(slack=4)
    stream.late.sink("late")
    stream.sink("out")


@case(MESSY)
def sort_then_state_and_windows(s: Sources) -> None:
    stream = s(time="t").sort(slack=8)
    stream.key_by("k").scan(lambda last, r: (r.t, (r.k, last, r.t))).sink("steps")
    stream.window(5).count().sink("windows out")


@case(MESSY)
def sorted_and_unsorted_meet(s: Sources) -> None:
    stream = s(time="t", slack=2)
    both = stream.sort(slack=6).map(lambda r: ("sorted", r.t)).union(stream.map(lambda r: ("raw", r.t)))
    window = both.window(6).aggregate(n=agg.count())
    both.sink("out")
    window.sink("windows out")


# Keys -----------------------------------------------------------------------------------------------------------


@case([{"a": i % 2, "b": "xyz"[i % 3], "v": i} for i in range(14)])
def keys_of_several_fields(s: Sources) -> None:
    stream = s()
    stream.key_by("a", "b").aggregate(total=agg.sum("v")).sink("out")
    stream.key_by("b", "a").scan(lambda n, r: (n + 1, (r.b, r.a, n)), 0).sink("other")


@case(
    [
        {"k": word, "v": i}
        for i, word in enumerate(["the", "cat", "the", "dog", "größe", "", "日本", "cat", "the", "größe"])
    ]
)
def keys_of_text(s: Sources) -> None:
    s().key_by("k").aggregate(n=agg.count()).sink("out")


@case(
    [{"k": k, "j": j} for k, j in [(1, None), (None, "a"), (None, None), (1, "a"), (None, "a"), (1, None)]],
    (2,),
    expects={
        "one": [(1, 1), (None, 1), (None, 2), (1, 2), (None, 3), (1, 3)],
        "two": [(1, None, 1), (None, "a", 1), (None, None, 1), (1, "a", 1), (None, "a", 2), (1, None, 2)],
    },
)
def keys_that_are_none(s: Sources) -> None:
    stream = s()
    stream.key_by("k").aggregate(n=agg.count()).sink("one")
    stream.key_by("k", "j").aggregate(n=agg.count()).sink("two")


@case([1, True, 1.0, 2, "1", 2.0, (1, 2), (1.0, 2), None, b"1"], (4,), expects=[1, 2, 3, 1, 1, 2, 1, 2, 1, 1])
def keys_that_are_equal_meet(s: Sources) -> None:
    s().key_by(lambda v: v).scan(lambda n, _: (n + 1, n + 1), 0).sink("out")


@case(MOMENTS, (3,))
def keys_of_times(s: Sources) -> None:
    stream = s()
    stream.key_by(lambda r: r.at.date()).aggregate(n=agg.count()).sink("days")
    stream.key_by("at").aggregate(n=agg.count()).sink("moments")


@case(
    [{"t": i, "k": k, "v": i} for i, k in enumerate([5, None, 12, 10, -3, 10, 12, None, 99, 5])],
    (4,),
    expects={
        "fields": [(5, 1), (None, 1), (12, 1), (10, 1), (-3, 1), (10, 2), (12, 2), (None, 2), (99, 1), (5, 2)],
        "bare": [1, 1, 1, 1, 1, 2, 2, 2, 1, 2],
        "windows out": [
            *[(5, 0, 4, 1), (None, 0, 4, 1), (12, 0, 4, 1), (10, 0, 4, 1)],
            *[(-3, 4, 8, 1), (10, 4, 8, 1), (12, 4, 8, 1), (None, 4, 8, 1)],
            *[(99, 8, 12, 1), (5, 8, 12, 1)],
        ],
    },
)
def keys_in_ranges(s: Sources) -> None:
    stream = s(time="t")
    stream.key_by("k", ranges=[0, 10, 11]).aggregate(n=agg.count()).sink("fields")
    bare = stream.map(lambda r: r.k)
    bare.key_by(lambda k: k, ranges=[5.5, 10]).scan(lambda n, _: (n + 1, n + 1), 0).sink("bare")
    stream.key_by("k", ranges=[10, 50]).window(4).count().sink("windows out")


@case([{"a": i % 2 or None, "b": "xyz"[i % 3], "f": i % 4 / 4, "v": i} for i in range(14)])
def keys_in_ranges_of_all_kinds(s: Sources) -> None:
    stream = s()
    stream.key_by("a", "b", ranges=[(1,), (1, "y")]).aggregate(total=agg.sum("v")).sink("two")
    stream.key_by("b", ranges=["y", "z"]).aggregate(total=agg.sum("v")).sink("text")
    stream.key_by("f", ranges=[0.25, 0.3]).aggregate(total=agg.sum("v")).sink("floats")
    undeclared = stream.map(lambda r: {"a": r.a, "b": r.b})
    undeclared.key_by("b", "a", ranges=[("x", 1), ("z",)]).scan(lambda n, r: (n + 1, (r["b"], n)), 0).sink("dicts")


@case(MOMENTS, (3,))
def keys_in_ranges_of_times(s: Sources) -> None:
    stream, moment = s(), MOMENTS[3]["at"]
    day = moment.date()
    stream.key_by("at", ranges=[moment]).aggregate(n=agg.count()).sink("moments")
    stream.key_by(lambda r: r.at.date(), ranges=[day, day + dt.timedelta(1)]).aggregate(n=agg.count()).sink("days")


@case(two(18, disorder=4), UNEVEN)
def join_in_ranges(s: Sources) -> None:
    left, right = (s(name, time="t").key_by("k", ranges=[1, 3]) for name in ("a", "b"))
    made = left.join(right, 8, pair, how="outer")
    made.sink("out")
    made.late_left.sink("late")


@case([{"k": k} for k in (1, "a", 7, None, 2, "b")], (2,))
def keys_that_have_no_range(s: Sources) -> None:
    keyed = s(schema=None).map(lambda r: r["k"]).key_by(lambda k: k, ranges=[2, 5])
    counted = keyed.scan(lambda n, k: (n + 1, (k, n)), 0, on_error="dead_letter", name="count")
    counted.sink("out")
    counted.errors.sink("errors")


@case([{"t": r["t"], "k": 7, "v": r["v"]} for r in EVENTS])
def all_rows_on_one_key(s: Sources) -> None:
    stream = s(time="t")
    stream.key_by("k").scan(lambda n, r: (n + r.v, n), 0).sink("scan out")
    stream.key_by("k").window(6).count().sink("windows out")


@case([{"t": i, "k": i, "v": i} for i in range(40)], (13, 13))
def each_row_its_own_key(s: Sources) -> None:
    s(time="t").key_by("k").window(7).count().sink("out")


# Epochs ---------------------------------------------------------------------------------------------------------


@case(two(6), ({"a": 0, "b": 0}, {"a": 2, "b": 0}, {"a": 0, "b": 0}, {"a": 0, "b": 3}, {"a": 0, "b": 0}))
def empty_epochs(s: Sources) -> None:
    both = s("a", time="t").union(s("b", time="t"))
    both.key_by("k").window(4).count().sink("windows out")
    both.scan(lambda n, r: (n + 1, (n, r.v)), 0).sink("rows")


@case([{"t": 1, "k": 1, "v": 1}], (1,), expects={"rows": [1], "windows out": [(1, 0, 10, 1)], "counts": [(0, 1)]})
def one_row(s: Sources) -> None:
    stream = s(time="t")
    stream.key_by("k").scan(lambda n, r: (n, r.v), 0).sink("rows")
    stream.key_by("k").window(10).count().sink("windows out")
    stream.window(Count(5)).count().sink("counts")


@case([], (), expects={"rows": [], "windows out": [], "totals": []})
def no_rows(s: Sources) -> None:
    stream = s(time="t", schema={"t": int, "k": int})
    stream.sink("rows")
    stream.key_by("k").window(10).count().sink("windows out")
    stream.aggregate(n=agg.count()).sink("totals")


@case({"a": [], "b": events(6, seed=2)}, ({"b": 3},))
def one_source_without_rows(s: Sources) -> None:
    both = s("a", time="t", schema={"t": int, "k": int, "v": int}).union(s("b", time="t"))
    both.window(5).count().sink("out")
    both.sort().sink("sorted")


@case(
    [{"n": n, "v": i} for i, n in enumerate([3, 1, 2, 2, 1, 5, 4, 4, 9, 7, 9, 8])],
    (5, 3),
    expects=[1, 4, 2, 3, 0, 6, 7, 5, 9, 11, 8, 10],
)
def order_by_inside_an_epoch(s: Sources) -> None:
    s(order_by="n").map(lambda r: r.v).sink("out")


@case(
    {"a": [{"n": n, "v": f"a{n}"} for n in (2, 1, 4, 6, 5)], "b": [{"n": n, "v": f"b{n}"} for n in (2, 3, 1, 5, 5)]},
    (3,),
    expects=["a1", "b1", "a2", "b2", "b3", "a4", "a5", "b5", "b5", "a6"],
)
def order_by_of_two_sources(s: Sources) -> None:
    s("a", order_by="n").union(s("b", order_by="n")).map(lambda r: r.v).sink("out")


@case(
    [{"x": x, "y": y, "v": i} for i, (x, y) in enumerate([(1.5, 2), (-0.5, 9), (1.5, -1), (-2.0, 0), (0.0, 0)])],
    (5,),
    expects=[3, 1, 4, 2, 0],
)
def order_by_of_several_fields(s: Sources) -> None:
    s(order_by=["x", "y"]).key_by("v").scan(lambda n, r: (n, r.v), 0).sink("out")


@case(
    [{"n": n, "m": m, "v": i} for i, (n, m) in enumerate([(2, 0.5), (None, 1.0), (1, None), (None, None), (1, -1.0)])],
    (5,),
    expects=[3, 1, 2, 4, 0],
)
def order_by_of_nulls(s: Sources) -> None:
    s(order_by=["n", "m"]).map(lambda r: r.v).sink("out")


@case(
    [{"t": t, "v": i} for i, t in enumerate([4, 2, 6, 5, 9, 7, 7, 1, 12])],
    (3, 3),
    expects={"out": [(0, 5, 2), (5, 10, 3), (10, 15, 1)], "late": [3, 7, 6], "late windows": [(1, 1, 1), (5, 10, 2)]},
)
def rows_against_order_by_are_diverted(s: Sources) -> None:
    stream = s(order_by="t", time="t", on_late="divert")
    stream.window(5).count().sink("out")
    stream.late.map(lambda r: r.v).sink("late")
    late = stream.late.window(5).count()
    late.union(late.late.map(lambda r: (r.t, r.t, 1))).sink("late windows")


@case(events(40, seed=3, keys=3), tuple([1] * 39))
def one_row_an_epoch(s: Sources) -> None:
    stream = s(time="t", slack=2)
    stream.key_by("k").scan(lambda n, r: (n + r.v, (r.k, n)), 0).sink("scan out")
    stream.key_by("k").window(Session(4)).count().sink("sessions out")
    stream.key_by("k").window(Count(4)).count().sink("counts")


@case(
    [{"t": 20 * i + t, "k": k} for i in range(25) for t, k in [(0, "a"), (1, "a"), (5, "b"), (2, "a")]],
    tuple([1] * 99),
)
def sessions_that_grow_while_others_pass_their_old_end(s: Sources) -> None:
    """The timer of a session that has grown since is due and means nothing, wherever it is still remembered."""
    s(time="t").key_by("k").window(Session(5)).count().sink("out")


# Forms of rows --------------------------------------------------------------------------------------------------


class Thing:
    """An object that no schema describes."""

    def __init__(self, name: str, inside: Any) -> None:
        self.name, self.inside = name, inside

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass
class Reading:
    """A dataclass row."""

    t: int
    place: str
    value: float | None = None


class Step(NamedTuple):
    """A named tuple row."""

    place: str
    count: int


class Note(TypedDict):
    """A dict row."""

    place: str
    text: str


def read_event(row: Any) -> Reading:
    """Make a dataclass of a record."""
    return Reading(row.t, "NESW"[row.k], None if row.v < 0 else row.v)


def count_places(count: int, row: Reading) -> tuple[int, Step]:
    """Number the readings of a place."""
    return count + 1, Step(row.place, count + 1)


def annotate(step: Step) -> list[Note]:
    """Write a note or two."""
    return [{"place": step.place, "text": f"{i} of {step.count}"} for i in range(step.count % 3)]


@case(EVENTS)
def dataclass_named_tuple_and_typed_dict(s: Sources) -> None:
    readings = s(time="t").map(read_event)
    readings.sink("readings")
    steps = readings.key_by("place").scan(count_places, 0)
    steps.sink("steps")
    notes = steps.flat_map(annotate)
    notes.sink("notes")
    notes.key_by("place").aggregate(n=agg.count(), last=agg.last("text")).sink("counts")


@case([Reading(3, "N", 1.5), Reading(1, "S"), Reading(9, "N", 2.5)], (1, 1))
def a_source_of_dataclasses(s: Sources) -> None:
    s(time="t", slack=5).key_by("place").window(5).sum("value").sink("out")


@case([Step("N", 1), Step("S", 2), Step("N", 3)], (2,))
def a_source_of_named_tuples(s: Sources) -> None:
    stream = s()
    stream.key_by("place").reduce(lambda a, b: a._replace(count=a.count + b.count)).sink("out")
    stream.sink("raw")


@case(EVENTS)
def undeclared_objects_cross_a_shuffle(s: Sources) -> None:
    things = s(time="t").map(lambda r: Thing(f"n{r.k}", {"v": r.v, "deep": [r.t, (1, {2})]}))
    kept = things.key_by("name").scan(lambda last, x: (x, Thing(x.name, (last and last.inside, x.inside))))
    kept.sink("out")
    things.window(6).apply(lambda w, rows: [x.inside["v"] for x in rows]).sink("windows out")


@case([1, "two", 3.0, None, (4, "five"), {"six": 7}, [8], {9}], (3, 2))
def rows_of_mixed_types(s: Sources) -> None:
    s().scan(lambda n, row: (n + 1, (n, row)), 0).sink("out")


@case(
    [
        {
            "b": bool(i % 2),
            "f": i / 4,
            "s": "é" * i,
            "y": bytes([i]),
            "l": list(range(i)),
            "d": {"x": i},
            "at": dt.datetime(2024, 1, 1, i),
            "on": dt.date(2024, 1, 1 + i),
            "none": None,
        }
        for i in range(5)
    ],
    (2,),
)
def records_of_every_type(s: Sources) -> None:
    stream = s()
    stream.sink("raw")
    stream.scan(lambda last, r: (r.l, (last, r.d, r.at))).sink("scan out")
    stream.key_by("b").reduce(lambda a, _: a).sink("reduce out")


@case(EVENTS)
def declared_types_apply_before_state_and_sinks(s: Sources) -> None:
    """An integer in a float field becomes a float there, for all engines alike."""
    stream = s().key_by("k").scan(lambda n, r: (n + 1, {"x": n, "k": r.k}), 0, schema={"x": float, "k": int})
    stream.sink("direct")
    stream.key_by("k").scan(lambda n, r: (n, repr(r.x)), 0).sink("keyed")


@case(EVENTS)
def declared_types_do_not_apply_elsewhere(s: Sources) -> None:
    """Between operators without memory, and behind state, rows are what the function returned."""
    stream = s(time="t")
    scanned = stream.key_by("k").scan(lambda n, r: (n + 1, {"x": n}), 0, schema={"x": float})
    scanned.map(lambda r: repr(r.x)).sink("scanned")
    windows = stream.window(Count(2)).apply(lambda w, rows: {"x": w.start}, schema={"x": float})
    windows.map(lambda r: repr(r.x)).sink("windows out")
    mapped = stream.map(lambda r: {"x": r.v}, schema={"x": float})
    mapped.filter(pc.field("x") > 2).map(lambda r: repr(r.x)).sink("mapped")
    mapped.select("x").map(lambda r: repr(r.x)).sink("selected")


# Errors ---------------------------------------------------------------------------------------------------------


def inverse(row: Any) -> float:
    """Fail where v is 0."""
    return 60 / row.v


def inverse_sum(total: float, row: Any) -> tuple[float, float]:
    """Fail where v is 0."""
    return total + row.v, total / row.v


ZEROS = [{**row, "v": row["v"] % 4} for row in EVENTS]


@case(ZEROS)
def skipped_rows(s: Sources) -> None:
    stream = s(time="t")
    stream.map(inverse, on_error="skip").sink("map out")
    stream.filter(lambda r: 6 / r.v > 2, on_error="skip").sink("filter out")
    stream.flat_map(lambda r: [r.v, 6 // r.v], on_error="skip").sink("flat_map out")
    stream.key_by("k").scan(inverse_sum, 0, on_error="skip").sink("scan out")
    stream.key_by(lambda r: 6 // r.v).aggregate(n=agg.count(), on_error="skip").sink("key out")
    stream.key_by("k").window(8).aggregate(x=agg.sum(lambda r: 6 // r.v), on_error="skip").sink("window out")
    stream.key_by("k").window(Session(3)).aggregate(x=agg.sum(lambda r: 6 // r.v), on_error="skip").sink("session out")


@case(ZEROS)
def dead_letters(s: Sources) -> None:
    stream = s(time="t")
    mapped = stream.map(inverse, name="mapped", on_error="dead_letter")
    mapped.sink("out")
    mapped.errors.sink("errors")
    scanned = stream.key_by("k").scan(inverse_sum, 0, name="scanned", on_error="dead_letter")
    scanned.map(str).union(scanned.errors.map(lambda e: f"{e.error} {e.row}")).sink("both")
    low, rest = stream.split(lambda r: 6 // r.v > 3, name="split", on_error="dead_letter")
    low.sink("low")
    rest.sink("rest")
    low.errors.key_by("operator").aggregate(n=agg.count()).sink("split errors")


@case(ZEROS)
def dead_letters_of_windows_and_timers(s: Sources) -> None:
    stream = s(time="t", slack=2)
    closed = (
        stream.key_by("k")
        .window(6)
        .apply(lambda w, rows: (w.start, 60 // min(r.v for r in rows)), on_error="dead_letter", name="closed")
    )
    closed.sink("out")
    closed.errors.map(lambda e: (e.error, e.row)).sink("errors")
    sessions = (
        stream.key_by("k")
        .window(Session(4))
        .apply(lambda w, rows: (w.start, 60 // min(r.v for r in rows)), on_error="skip", name="sessions")
    )
    sessions.sink("sessions out")


@case([{**ZEROS[0], "v": 0}, *ZEROS], (1, 3))
def records_of_any_form_beside_rows_that_fail(s: Sources) -> None:
    """What a function returns takes the declared form, whatever the rows around it are."""

    def mixed(total: int, row: Any) -> tuple[int, Any]:
        result = {"x": total, "k": row.k}
        return total + 6 // row.v, result if row.v < 3 else (total, row.k)

    stream = s().key_by("k").scan(mixed, 0, schema={"x": int, "k": int}, on_error="skip")
    stream.map(lambda r: (r.x, r.k)).sink("out")


@case(ZEROS)
def rows_of_another_shape_are_skipped_before_they_change_anything(s: Sources) -> None:
    def shaped(total: int, row: Any) -> tuple[int, Any]:
        return total + 1, {"x": total} if row.v else {"y": total}

    scanned = s().key_by("k").scan(shaped, 0, schema={"x": int}, name="shaped", on_error="dead_letter")
    scanned.map(lambda r: r.x).sink("out")
    scanned.errors.map(lambda e: (e.error, e.row)).sink("errors")


@case(EVENTS)
def reduce_to_declared_records(s: Sources) -> None:
    """The accumulated value has the form that the function's result is declared to have."""

    def larger(a: Any, b: Any) -> Any:
        return {"t": a.t, "k": a.k, "v": max(a.v, b.v)}

    stream = s(time="t")
    fields = {"t": int, "k": int, "v": int}
    stream.key_by("k").reduce(larger, schema=fields).map(lambda r: (r.k, r.v)).sink("out")
    stream.window(6).reduce(larger, schema=fields).map(lambda r: (r.t, r.v)).sink("windows out")


class Touchy(Process):
    """Fail on some rows and on some timers."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + row.v
        context.set_timer(row.t + 4)
        context.emit(("row", row.t))
        if row.v == 0:
            raise ValueError(f"row {row.t}")

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("timer", time))
        context.state = 0
        if time % 3 == 0:
            raise ValueError(f"timer {time}")


@case(ZEROS)
def a_process_that_fails_now_and_then(s: Sources) -> None:
    touchy = s(time="t").key_by("k").process(Touchy, on_error="dead_letter")
    touchy.sink("out")
    touchy.errors.map(lambda e: (e.error, e.row)).sink("errors")


@case(ZEROS, fails=True)
def fails_in_a_map(s: Sources) -> None:
    s().map(inverse, name="inv").sink("out")


@case(ZEROS, fails=True)
def fails_in_a_scan(s: Sources) -> None:
    s().key_by("k").scan(inverse_sum, 0, name="inv").sink("out")


@case(ZEROS, (20,), fails=True)
def fails_in_several_places(s: Sources) -> None:
    stream = s(time="t")
    stream.filter(lambda r: r.t > 9).map(inverse, name="later").sink("a")
    stream.filter(lambda r: r.t > 5).key_by("k").scan(inverse_sum, 0, name="earlier").sink("b")
    stream.window(20).apply(lambda w, rows: 1 / 0, name="latest").sink("c")


@case(ZEROS, fails=True)
def fails_when_a_window_closes(s: Sources) -> None:
    s(time="t").key_by("k").window(6).apply(lambda w, rows: 1 / min(r.v for r in rows), name="close").sink("out")


@case(EVENTS, fails=True)
def fails_where_a_value_does_not_fit(s: Sources) -> None:
    s().map(lambda r: {"v": r.v if r.v < 8 else f"{r.v}"}, schema={"v": int}, name="odd").sink("out")


@case([{"n": n} for n in (1, 2, 5, 4, 6, 7)], (3,), fails=True)
def fails_where_order_by_goes_back(s: Sources) -> None:
    s(order_by="n").sink("out")


@case(EVENTS, fails=True)
def fails_where_a_key_has_no_encoding(s: Sources) -> None:
    s().key_by(lambda r: frozenset([r.v])).aggregate(n=agg.count(), name="count").sink("out")


@case([1, 7, "a", 3, "b"], fails=True)
def fails_where_a_key_has_no_range(s: Sources) -> None:
    s().key_by(lambda k: k, ranges=[2, 5]).scan(lambda n, _: (n + 1, n), 0, name="count").sink("out")


# Functions that wait -----------------------------------------------------------------------------------------------


async def late_inverse(row: Any) -> float:
    """Wait longer for earlier rows; fail where v is 0."""
    await asyncio.sleep(0.0002 * (7 - row.t % 7))
    return 60 / row.v


def slow_inverse(row: Any) -> float:
    """Wait longer for earlier rows; fail where v is 0."""
    time.sleep(0.0002 * (7 - row.t % 7))
    return 60 / row.v


async def is_large(row: Any) -> bool:
    """Wait for some rows only."""
    if row.v % 2:
        await asyncio.sleep(0.0005)
    return bool(row.v > 4)


async def pieces(row: Any) -> list[int]:
    """Wait, then give several rows."""
    await asyncio.sleep(0.0002 * (row.v % 3))
    return list(range(row.v % 4))


async def yielded(row: Any) -> Any:
    """Yield rows with waits between them."""
    for number in range(row.v % 3):
        await asyncio.sleep(0.0001)
        yield row.t, number


@case([{"t": t, "v": t} for t in range(1, 6)], (2,), expects=[60.0, 30.0, 20.0, 15.0, 12.0])
def waiting_keeps_order(s: Sources) -> None:
    s().map(late_inverse).sink("out")


@case(EVENTS)
def waiting_functions_of_all_kinds(s: Sources) -> None:
    stream = s(time="t")
    stream.map(slow_inverse, waits=True, on_error="skip").sink("plain")
    stream.map(late_inverse, in_flight=2, on_error="skip").sink("async")
    stream.filter(is_large).map(lambda r: r.t).sink("filter")
    stream.filter(lambda r: time.sleep(0.0003) or r.v % 2, in_flight=3).sink("plain filter")
    stream.flat_map(pieces).sink("flat_map")
    stream.flat_map(yielded).sink("generator")
    stream.flat_map(lambda r: (r.v, r.t), waits=True).sink("plain flat_map")


@case(EVENTS)
def waiting_functions_among_others(s: Sources) -> None:
    stream = s(time="t")

    async def record(row: Any) -> Any:
        await asyncio.sleep(0.0003 * (row.v % 2))
        return {"k": row.k, "v": row.v}

    looked_up = stream.map(record, schema={"k": int, "v": int})
    looked_up.key_by("k").aggregate(n=agg.count(), total=agg.sum("v")).sink("running")
    looked_up.map(lambda r: r.v).union(stream.flat_map(pieces, in_flight=1), looked_up.map(lambda r: -r.v)).sink("both")
    looked_up.key_by("k").window(6).aggregate(total=agg.sum("v")).sink("windows")


@case(ZEROS)
def waiting_dead_letters(s: Sources) -> None:
    stream = s(time="t")
    for name, function, options in (("async", late_inverse, {}), ("plain", slow_inverse, {"in_flight": 4})):
        mapped = stream.map(function, name=name, on_error="dead_letter", **options)
        mapped.union(mapped.errors.map(lambda e: f"{e.error} {e.where} {e.row}")).sink(f"{name} both")
        mapped.errors.sink(f"{name} errors")


@case(ZEROS, (20,), fails=True)
def fails_in_an_async_function(s: Sources) -> None:
    s().map(late_inverse, name="inv").sink("out")


@case(ZEROS, (20,), fails=True)
def fails_in_a_plain_function_that_waits(s: Sources) -> None:
    s().map(slow_inverse, name="inv", waits=True).sink("out")


@case(ZEROS, (20,), fails=True)
def fails_in_several_functions_that_wait(s: Sources) -> None:
    stream = s(time="t")
    stream.filter(lambda r: r.t > 9).map(late_inverse, name="later").sink("a")
    stream.filter(lambda r: r.t > 5).map(slow_inverse, name="earlier", in_flight=3).sink("b")


# Co-routines ----------------------------------------------------------------------------------------------------


class Pairs(Operator):
    """Pair the rows of two ports, and tell at the end how many pairs there were and what is left."""

    inputs, outputs = 2, 2

    async def process(self, ctx: OperatorContext) -> None:
        while await ctx.wait_for_all({0: 1, 1: 1}):
            ctx.state["pairs"] = ctx.state.get("pairs", 0) + 1
            await ctx.emit((ctx.pop(0), ctx.pop(1)))
        await ctx.emit((ctx.state.get("pairs", 0), ctx.len(0), ctx.len(1), ctx.closed(0)), port=1)


class Runs(Operator):
    """Emit what is there whenever one port has three rows or the other two, and all that is left at the end."""

    inputs = None

    async def process(self, ctx: OperatorContext) -> None:
        ctx.state["starts"] = ctx.state.get("starts", 0) + 1
        going = True
        while going:
            going = await ctx.wait_for_any({0: 3, ctx.inputs - 1: 2})
            waiting = tuple(ctx.len(port) for port in range(ctx.inputs))
            for port, count in enumerate(waiting):
                for _ in range(count):
                    row = ctx.pop(port)
                    await ctx.emit((ctx.state["starts"], ctx.time, waiting, port, row.v))


class FirstFew(Operator):
    """Pass three rows and be done."""

    async def process(self, ctx: OperatorContext) -> None:
        while ctx.state.get("passed", 0) < 3 and await ctx.wait_for_all({0: 1}):
            ctx.state["passed"] = ctx.state.get("passed", 0) + 1
            await ctx.emit(ctx.pop().v)


class Differences(Operator):
    """Look at two rows, take one: state that is in the port alone."""

    async def process(self, ctx: OperatorContext) -> None:
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


class Forgetful(Operator):
    """Take only rows of port 0, so that those of port 1 pile up."""

    inputs = 2

    async def process(self, ctx: OperatorContext) -> None:
        while await ctx.wait_for_all({0: 1}):
            await ctx.emit(ctx.pop(0).v)


@case(two(14), UNEVEN, fails=True)
def fails_where_too_many_rows_wait(s: Sources) -> None:
    operate(Forgetful(), s("a"), s("b"), max_pending=4).sink("out")


class FailsAtTheEnd(Operator):
    """Raise once the ports have closed."""

    async def process(self, ctx: OperatorContext) -> None:
        while await ctx.wait_for_all({0: 2}):
            await ctx.emit(ctx.pop().v)
        raise ValueError(f"{ctx.len()} left")


@case(EVENTS, fails=True)
def fails_in_a_coroutine_at_the_end(s: Sources) -> None:
    operate(FailsAtTheEnd(), s()).sink("out")


@case(ZEROS, fails=True)
def fails_in_a_coroutine(s: Sources) -> None:
    operate(library.Merge(inverse), s()).sink("out")


class Rate(Operator):
    """Pass every n-th row, n being what was fed back last; tell how many have passed."""

    inputs, outputs, control = 2, 2, (1,)

    async def process(self, ctx: OperatorContext) -> None:
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
