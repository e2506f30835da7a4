"""Joins of rows whose times are close."""

from __future__ import annotations

from typing import Any

from penstock import read
from penstock.flow import Stream
from penstock.operators import aggregates as agg

from .cases import EVENTS, UNEVEN, Sources, case, events, two

WHO = {"t": int, "who": int, "v": int}


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    """Show a pair of rows by their values."""
    return (left and (left.t, left.v), right and (right.t, right.v))


def close(s: Sources, how: Any, within: Any, combine: Any = pair, slack: int = 2) -> Stream:
    """Join a and b, and show what is late."""
    left, right = s("a", time="t", slack=slack), s("b", time="t")
    stream = left.join(right, on="k", combine=combine, within=within, how=how)
    stream.late.map(lambda r: (r.t, r.v)).sink("late")
    return stream


@case(two(18, disorder=4), UNEVEN)
def interval_inner(s: Sources) -> None:
    close(s, "inner", (-4, 3)).sink("out")


@case(two(18, disorder=4), UNEVEN)
def interval_left(s: Sources) -> None:
    close(s, "left", (-4, 3)).sink("out")


@case(two(18, disorder=4), UNEVEN)
def interval_right(s: Sources) -> None:
    close(s, "right", (-4, 3)).sink("out")


@case(two(18, disorder=4), UNEVEN)
def interval_outer(s: Sources) -> None:
    close(s, "outer", (-4, 3)).sink("out")


@case(two(18, disorder=4), UNEVEN)
def interval_semi(s: Sources) -> None:
    close(s, "semi", (-4, 3), None).sink("out")


@case(two(18, disorder=4), UNEVEN)
def interval_anti(s: Sources) -> None:
    close(s, "anti", (-2, 1), None).sink("out")


@case(two(18, disorder=3), UNEVEN)
def interval_of_right_rows_that_come_later(s: Sources) -> None:
    close(s, "outer", (2, 6)).sink("out")


@case(two(18, disorder=3), UNEVEN)
def interval_of_right_rows_that_came_before(s: Sources) -> None:
    close(s, "outer", (-6, -2)).sink("out")


@case({name: events(20, seed=seed, keys=1, step=1) for name, seed in (("a", 1), ("b", 2))}, UNEVEN)
def interval_of_one_time(s: Sources) -> None:
    """Many rows of one key and time: pairs are in order of the other side, rows alone in theirs."""
    close(s, "outer", 0).sink("out")


@case(two(18, disorder=4), UNEVEN)
def interval_side_by_side_then_windows(s: Sources) -> None:
    """The output's watermark is held back by what may still come out: nothing is late for the windows."""
    stream = close(s, "outer", (-4, 3), None)
    counts = stream.window(4).aggregate(pairs=agg.count(), left=agg.collect("v"), right=agg.collect("v_right"))
    counts.late.sink("late rows")
    counts.sink("windows")


@case(EVENTS)
def interval_with_itself(s: Sources) -> None:
    stream = s(time="t")
    stream.join(stream.filter(lambda r: r.v > 0), on="k", combine=pair, within=(-3, 3), how="left").sink("out")


@case(two(18, disorder=4), UNEVEN)
def interval_in_ranges_on_other_names(s: Sources) -> None:
    left = s("a", time="t").key_by("k", ranges=[1, 3])
    right = s("b", time="t").map(lambda r: (r.t, r.k, r.v), schema=WHO).key_by("who", ranges=[1, 3])
    stream = left.join(right, within=5, combine=pair, how="outer")
    stream.late.sink("late")
    stream.sink("out")


@case(
    {
        "a": [
            {"t": 1, "k": None, "v": 1},
            {"t": 2, "k": 1, "v": 2},
            {"t": 3, "k": None, "v": 3},
            {"t": 25, "k": 2, "v": 4},
        ],
        "b": [{"t": 1, "k": None, "v": 10}, {"t": 3, "k": 1, "v": 20}, {"t": 25, "k": 9, "v": 30}],
    },
    ({"a": 1, "b": 1},),
    expects=[(2, 20), (1, None), (None, 10), (3, None), (None, 30), (4, None)],
)
def interval_null_keys_are_alone(s: Sources) -> None:
    kind = {"t": int, "k": int, "v": int}
    left, right = (s.flow.source(n, read.items(s.rows[n], schema=kind), time="t") for n in ("a", "b"))
    made = left.join(right, on="k", within=5, combine=lambda a, b: (a and a.v, b and b.v), how="outer")
    made.sink("out")


def ratio(left: Any, right: Any) -> tuple[int, float]:
    """Fail where a row is alone, or v is 0."""
    return left.v, left.v / right.v


@case({name: [{**r, "v": r["v"] % 3} for r in rows] for name, rows in two(18, disorder=2).items()}, UNEVEN)
def interval_failures_are_dead_letters(s: Sources) -> None:
    left, right = s("a", time="t", slack=2), s("b", time="t", slack=2)
    made = left.join(right, on="k", within=(-4, 4), combine=ratio, how="outer", on_error="dead_letter")
    made.errors.sink("errors")
    made.sink("out")


@case({name: [{**r, "v": r["v"] % 3} for r in rows] for name, rows in two(18, disorder=2).items()}, UNEVEN)
def interval_failures_are_skipped(s: Sources) -> None:
    left, right = s("a", time="t", slack=2), s("b", time="t", slack=2)
    left.join(right, on="k", within=(-4, 4), combine=ratio, how="outer", on_error="skip").sink("out")


def lasting(s: Sources, how: Any, ttl: Any, combine: Any = pair) -> Stream:
    """Join a and b without a window."""
    return s("a", time="t", slack=2).join(s("b", time="t"), on="k", combine=combine, ttl=ttl, how=how)


@case(two(18, disorder=4), UNEVEN)
def lasting_inner(s: Sources) -> None:
    lasting(s, "inner", 6).sink("out")


@case(two(24, disorder=40, step=9), UNEVEN)
def lasting_outer_on_a_grid(s: Sources) -> None:
    lasting(s, "outer", 70).sink("out")


@case(two(18, disorder=4), UNEVEN)
def lasting_semi(s: Sources) -> None:
    lasting(s, "semi", 3, None).sink("out")


@case(two(18, disorder=4), UNEVEN)
def lasting_anti_then_windows(s: Sources) -> None:
    stream = lasting(s, "anti", 3, None)
    counts = stream.window(4).aggregate(n=agg.count(), all=agg.collect("v"))
    counts.late.sink("late rows")
    counts.sink("windows")


@case(two(18, disorder=4), UNEVEN)
def lasting_joins_of_three(s: Sources) -> None:
    a, b = s("a", time="t"), s("b", time="t")
    pairs = a.join(b, on="k", combine=lambda x, y: {"k": x.k, "v": x.v - y.v}, schema={"k": int, "v": int}, ttl=9)
    pairs.join(a, on="k", combine=lambda x, y: (x.k, x.v, y and y.v), within=3, how="left").sink("out")
