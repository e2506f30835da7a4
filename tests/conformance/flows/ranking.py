"""The first n rows, running and per window; and windows after windows."""

from __future__ import annotations

from penstock.operators import aggregates as agg
from penstock.operators.expressions import expr
from penstock.operators.windows import Count, Session, Sliding, Tumbling

from .cases import EVENTS, MESSY, Sources, case

SALES = [
    {"t": t, "who": who, "v": v} for t, who, v in [(1, "a", 4), (2, "b", 9), (3, "c", 4), (4, "d", None), (5, "e", 7)]
]


@case(
    SALES,
    (2, 2),
    expects=[
        (1, "a", 4, 1, None),
        (2, "b", 9, 1, None),
        (5, "e", 7, 2, {"t": 1, "who": "a", "v": 4}),
    ],
)
def top_running(s: Sources) -> None:
    s(time="t").top(2, by="v").sink("out")


@case(SALES, (2, 2), expects=[(0, 4, 1, 2, "b", 9), (0, 4, 2, 1, "a", 4), (4, 8, 1, 5, "e", 7)])
def top_of_windows(s: Sources) -> None:
    s(time="t").window(4).top(2, by="v").sink("out")


@case(SALES, (2, 2), expects=[(0, 8, 1, 1, "a", 4), (0, 8, 2, 3, "c", 4), (0, 8, 3, 5, "e", 7)])
def top_from_below(s: Sources) -> None:
    s(time="t").window(8).top(3, by="v", largest=False).sink("out")


@case(MESSY)
def top_by_key(s: Sources) -> None:
    keyed = s(time="t", slack=5).key_by("k")
    keyed.top(3, by=expr("v % 5"), name="running").sink("running out")
    keyed.top(2, by=lambda row: -row.t, ttl=20, name="short").sink("short out")
    for spec in (Tumbling(10), Sliding(8, 3), Session(3), Count(4)):
        name = type(spec).__name__.lower()
        made = keyed.window(spec).top(2, by="v", name=name)
        made.sink(f"{name} out")
        if spec != Count(4):
            made.late.sink(f"{name} late")


@case(EVENTS)
def windows_after_windows(s: Sources) -> None:
    counts = (
        s(time="t")
        .key_by("k")
        .window(
            Sliding(10, 5),
        )
        .count(name="counts")
    )
    counts.window(5).top(1, by="count", name="hot").sink("out")
    per_end = counts.key_by("window_end").window(5).aggregate(most=agg.max("count"), name="most")
    per_end.key_by("window_end", "window_end_2").window(20).count(name="again").sink("again out")
