"""Joins and sorting."""

from __future__ import annotations

from typing import Any

from penstock.flow import Stream
from penstock.operators import aggregates as agg
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Sliding

from .cases import EVENTS, MESSY, UNEVEN, Sources, case, two


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    """Show a pair of rows by their values."""
    return (left and (left.t, left.v), right and (right.t, right.v))


def joined(s: Sources, how: Any, window: Any = 8) -> Stream:
    """Join a and b."""
    left, right = s("a", time="t", slack=1), s("b", time="t")
    stream = left.key_by("k").join(right.key_by("k"), window, pair, how=how)
    stream.late.map(lambda r: (r.t, r.v)).sink("late")
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


@case(two(18, disorder=4), UNEVEN)
def join_in_ranges(s: Sources) -> None:
    left, right = (s(name, time="t").key_by("k", ranges=[1, 3]) for name in ("a", "b"))
    made = left.join(right, 8, pair, how="outer")
    made.sink("out")
    made.late.sink("late")


@case(EVENTS)
def join_with_itself(s: Sources) -> None:
    stream = s(time="t")
    stream.key_by("k").join(stream.filter(lambda r: r.v > 0).key_by("k"), 6, pair, how="left").sink("out")


@case(two(18), UNEVEN)
def join_then_window(s: Sources) -> None:
    stream = s("a", time="t").key_by("k").join(s("b", time="t").key_by("k"), 5, pair, how="outer")
    stream.window(10).aggregate(pairs=agg.count()).sink("out")


class Balance(Process):
    """Keep what was added and taken away of a key; say what it is after each row, and five after the last."""

    def on_left(self, row: Any, context: ProcessContext) -> None:
        self._change(row.v, context)

    def on_right(self, row: Any, context: ProcessContext) -> None:
        self._change(-row.v, context)

    def _change(self, amount: int, context: ProcessContext) -> None:
        was, due = context.state or (0, None)
        if due is not None:
            context.cancel_timer(due)
        context.state = (was + amount, context.set_timer(context.time + 5))
        context.emit(("now", context.key, was + amount))

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("quiet", context.key, context.state[0], time))
        context.state = None

    def on_end(self, context: ProcessContext) -> None:
        context.emit(("end", context.key))


@case(two(18, disorder=4), UNEVEN)
def connected(s: Sources) -> None:
    s("a", time="t").key_by("k").connect(s("b", time="t").key_by("k"), Balance).sink("out")


@case({"a": [{"k": n % 3, "v": n} for n in range(12)], "b": [{"k": n % 2, "v": n} for n in range(9)]}, UNEVEN)
def connected_without_time(s: Sources) -> None:
    class Latest(Process):
        def on_left(self, row: Any, context: ProcessContext) -> None:
            context.emit((row.v, context.state))

        def on_right(self, row: Any, context: ProcessContext) -> None:
            context.state = row.v

    s("a").key_by("k").connect(s("b").key_by("k"), Latest, on_error="skip").sink("out")


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
