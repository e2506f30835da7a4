"""Expressions that are written as text."""

from __future__ import annotations

from penstock.operators import aggregates as agg
from penstock.operators.expressions import expr

from .cases import EVENTS, MESSY, Sources, case


@case(EVENTS)
def expressions_as_text(s: Sources) -> None:
    stream = s(time="t").filter(expr("v % 3 != 1 and k in (0, 1, 3)"))
    made = stream.select("*", rest=expr("v % 4"), part=expr("v // 4"), name=expr("upper('k' + text(k))"))
    made.filter(expr("not (rest = 3 or part is null)")).sink("out")
    made.key_by("name").aggregate(n=agg.count(where=expr("rest > 1")), last=agg.last(expr("v * 2"))).sink("sums")


@case(
    [{"t": t, "v": v, "by": by} for t, v, by in [(1, 7, 2), (2, 7, 0), (3, None, 2), (4, -7, 2)]],
    expects=[(1, 3, 1), (2, None, None), (3, None, None), (4, -4, 1)],
)
def expressions_that_divide(s: Sources) -> None:
    s(time="t").select("t", whole=expr("v // by"), rest=expr("v % by")).sink("out")


@case(MESSY)
def expressions_in_windows(s: Sources) -> None:
    late = expr("t % 2 = 0")
    s(time="t", slack=5).key_by("k").window(10).aggregate(n=agg.count(where=late), m=agg.max(expr("v % 5"))).sink("out")
