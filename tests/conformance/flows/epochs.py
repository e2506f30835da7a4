"""Epochs, and rows in another order than that of their source."""

from __future__ import annotations

from penstock.operators import aggregates as agg
from penstock.operators.windows import Count, Session

from .cases import Sources, case, events, two


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
    [{"n": n, "v": i} for i, n in enumerate([3, 1, 3, 2, 5, 5, 4, 9, 7, 9])],
    (5, 3),
    expects={"out": [0, 2, 4, 5, 7, 9], "late": [1, 3, 6, 8], "both": list(range(10))},
)
def late_is_below_what_came_before(s: Sources) -> None:
    """Wherever the input is cut; and a late row keeps its place."""
    stream = s(order_by="n", on_late="divert")
    stream.map(lambda r: r.v).sink("out")
    stream.late.map(lambda r: r.v).sink("late")
    stream.late.union(stream).map(lambda r: r.v).sink("both")


@case(
    {"a": [{"n": n, "v": f"a{n}"} for n in (1, 2, 4, 5, 6)], "b": [{"n": n, "v": f"b{n}"} for n in (1, 2, 3, 5, 5)]},
    (3,),
    expects=["a1", "b1", "a2", "b2", "b3", "a4", "a5", "b5", "b5", "a6"],
)
def order_by_of_two_sources(s: Sources) -> None:
    s("a", order_by="n").union(s("b", order_by="n")).map(lambda r: r.v).sink("out")


@case(
    {
        "a": [{"n": n, "v": f"a{n}"} for n in (7, 7)],
        "b": [{"n": n, "v": f"b{n}"} for n in (1, 2, 7, 7, 8, 9, 9, 10, 11, 12, 13)],
        "c": [{"n": n, "v": f"c{n}"} for n in (0, 7, 9)],
    },
    (2, 2),
    expects=["c0", "b1", "b2", "a7", "a7", "b7", "b7", "c7", "b8", "b9", "b9", "c9", "b10", "b11", "b12", "b13"],
)
def ties_and_a_source_that_is_longer_than_the_others(s: Sources) -> None:
    a, b, c = (s(name, order_by="n") for name in "abc")
    c.union(b, a).map(lambda r: r.v).sink("out")


@case({"a": events(9, seed=5), "b": events(31, seed=6), "c": []}, (4, 4))
def windows_and_ends_of_ordered_sources(s: Sources) -> None:
    """The end of a source has its place in the sequence: behind its last row, before all of one that has none."""
    a, b = s("a", order_by="t", time="t"), s("b", order_by="t", time="t")
    c = s("c", order_by="t", time="t", schema={"t": int, "k": int, "v": int})
    both = a.union(b, c)
    both.key_by("k").window(4).count().sink("windows out")
    a.merge(b, by="t").sink("merged")
    both.sort(slack=3).sink("sorted")


@case(
    {"a": [{"t": t} for t in (1, 5, 3, 9, 9, 2)], "b": [{"t": t} for t in (4, 4, 6, 1, 7, 10)]},
    (2, 2),
    expects={
        "rows": [("a", 1), ("b", 4), ("b", 4), ("a", 5), ("b", 6), ("b", 7), ("a", 9), ("a", 9), ("b", 10)],
        "late": [("a", 3), ("b", 1), ("a", 2)],
    },
)
def late_rows_of_two_sources(s: Sources) -> None:
    a, b = (s(name, order_by="t", on_late="divert") for name in "ab")
    a.map(lambda r: ("a", r.t)).union(b.map(lambda r: ("b", r.t))).sink("rows")
    a.late.map(lambda r: ("a", r.t)).union(b.late.map(lambda r: ("b", r.t))).sink("late")


@case(
    [{"x": x, "y": y, "v": i} for i, (x, y) in enumerate([(-2.0, 0), (-0.5, 9), (1.5, -1), (-0.0, 7), (1.5, 2)])],
    (2,),
    expects={"out": [0, 1, 2, 4], "late": [3]},
)
def order_by_of_several_fields(s: Sources) -> None:
    stream = s(order_by=["x", "y"], on_late="divert")
    stream.key_by("v").scan(lambda n, r: (n, r.v), 0).sink("out")
    stream.late.map(lambda r: r.v).sink("late")


@case(
    [{"n": n, "m": m, "v": i} for i, (n, m) in enumerate([(None, None), (None, 1.0), (1, None), (1, -1.0), (2, 0.5)])],
    (3,),
    expects=[0, 1, 2, 3, 4],
)
def order_by_of_nulls(s: Sources) -> None:
    s(order_by=["n", "m"]).map(lambda r: r.v).sink("out")


@case(
    [{"t": t, "v": i} for i, t in enumerate([4, 2, 6, 5, 9, 7, 7, 1, 12])],
    (3, 3),
    expects={
        "out": [(0, 5, 1), (5, 10, 2), (10, 15, 1)],
        "late": [1, 3, 5, 6, 7],
        "late windows": [(0, 5, 1), (1, 1, 1), (5, 10, 3)],
    },
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
