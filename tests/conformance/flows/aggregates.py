"""Aggregates of expressions, of some rows, and at the extremes of others."""

from __future__ import annotations

import pyarrow.compute as pc

from penstock.operators import aggregates as agg
from penstock.operators.windows import Count, Session, Sliding, Tumbling

from .cases import MESSY, Sources, case

V = pc.field("v")
EACH = {
    "positive": agg.count(where=V > 0),
    "different": agg.count_distinct(V * V),
    "total": agg.sum(V * pc.field("t"), where=V > 0),
    "first": agg.first("v", where=V < 0),
    "last": agg.last(lambda row: row.v, where=lambda row: row.v < 0),
    "all": agg.collect("v", where=V > 3),
    "when": agg.argmax("t", by="v"),
    "lowest": agg.argmin("t", by=V * V, where=V > 0),
    "median": agg.median("v"),
    "upper": agg.quantile("v", 0.9, interpolation="nearest"),
}
COLUMNS = ("positive", "total", "first", "when", "lowest")
"""Those that go by columns also where they run on."""


@case(MESSY)
def aggregates_of_some_rows_running(s: Sources) -> None:
    keyed = s(time="t", slack=5).key_by("k")
    keyed.aggregate(**EACH, name="each").sink("out")
    keyed.aggregate(**{name: EACH[name] for name in COLUMNS}, name="columns").sink("columns out")


@case(MESSY)
def aggregates_of_some_rows_in_windows(s: Sources) -> None:
    keyed = s(time="t", slack=5).key_by("k")
    for spec in (Tumbling(10), Sliding(8, 3), Session(3), Count(3)):
        name = type(spec).__name__.lower()
        keyed.window(spec).aggregate(**EACH, name=name).sink(f"{name} out")


@case(
    [{"t": t, "k": k, "v": v} for t, k, v in [(1, 1, 4), (2, 1, None), (3, 1, 9), (4, 1, 4), (12, 1, 1)]],
    (2, 2),
    expects=[(0, 10, 3, 2, 13, 3, 1, 4.0), (10, 20, 1, 1, 0, 12, 12, 1.0)],
)
def aggregates_of_some_rows_by_hand(s: Sources) -> None:
    s(time="t").window(10).aggregate(
        n=agg.count("v"),
        different=agg.count_distinct("v"),
        large=agg.sum(pc.if_else(V > 3, V, 0), where=pc.field("t") != 4),
        when=agg.argmax("t", by="v"),
        low=agg.argmin("t", by="v"),
        median=agg.median("v"),
    ).sink("out")
