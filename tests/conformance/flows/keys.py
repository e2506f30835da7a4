"""Keys, by hash and in ranges."""

from __future__ import annotations

import datetime as dt

from penstock.operators import aggregates as agg

from .cases import EVENTS, MOMENTS, Sources, case


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


@case([{"k": k} for k in (1, "a", 7, None, 2, "b")], (2,))
def keys_that_have_no_range(s: Sources) -> None:
    keyed = s(schema=None).map(lambda r: r["k"]).key_by(lambda k: k, ranges=[2, 5])
    counted = keyed.scan(lambda n, k: (n + 1, (k, n)), 0, on_error="dead_letter", name="count")
    counted.sink("out")
    counted.errors.sink("errors")


@case({"a": [{"k": 1}, {"k": 7}], "b": [{"k": "x"}, {"k": "z"}, {"k": "y"}]}, (1, 2))
def keys_that_have_no_range_in_columns(s: Sources) -> None:
    """Behind a union of different types nobody knows those of the keys before they come."""
    keyed = s("a").union(s("b")).key_by("k", ranges=["y"])
    counted = keyed.scan(lambda n, r: (n + 1, (r.k, n)), 0, on_error="dead_letter", name="count")
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
