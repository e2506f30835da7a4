"""Lookups in tables, and in the latest rows of other streams."""

from __future__ import annotations

from penstock.operators import aggregates as agg

from .cases import EVENTS, MESSY, UNEVEN, Sources, case, events, two

NAMES = {0: {"word": "zero", "even": True}, 2: {"word": "two", "even": True}, 3: {"word": "three", "even": None}}
PRICES = [{"key": key, "since": since, "price": 10 * key + since} for key in (0, 1, 3) for since in (4, 9, 20)]
NULLS = [{"k": k, "v": v} for k, v in [(1, 5), (None, 6), (2, 7), (None, 8), (0, 9)]]


@case(EVENTS, expects=None)
def lookup_in_a_dict(s: Sources) -> None:
    s().lookup(NAMES, on="k").sink("out")


@case(EVENTS)
def lookup_inner(s: Sources) -> None:
    s().lookup([{"k": 1, "name": "one"}, {"k": None, "name": "none"}], on="k", how="inner").sink("out")


@case(MESSY)
def lookup_as_of(s: Sources) -> None:
    s().lookup(PRICES, on={"k": "key"}, as_of={"t": "since"}, prefix="old_").sink("out")


@case(MESSY)
def lookup_then_keys(s: Sources) -> None:
    """A lookup before and after a shuffle, and another one in a branch that meets it again."""
    found = s(time="t", slack=8).lookup(NAMES, on="k", fields="word")
    counts = found.key_by("word").aggregate(n=agg.count(), v=agg.sum("v"))
    counts.lookup({"two": 2, "zero": 0}, on="word", name="number").sink("out")


@case(
    NULLS,
    expects=[(1, 5, "one"), (None, 6, None), (2, 7, None), (None, 8, None), (0, 9, None)],
)
def lookup_of_nulls(s: Sources) -> None:
    """A null finds nothing, not even a null."""
    s().lookup([{"k": 1, "name": "one"}, {"k": None, "name": "null"}], on="k").map(tuple).sink("out")


@case(EVENTS)
def lookup_in_nothing(s: Sources) -> None:
    s().lookup([], on="k", schema={"k": int, "name": str}).sink("out")


@case(two(18, disorder=4), UNEVEN)
def lookup_in_a_stream(s: Sources) -> None:
    s("a", time="t", slack=2).lookup(s("b", time="t"), on="k", prefix="b_").sink("out")


@case(two(18, disorder=4), UNEVEN)
def lookup_in_a_stream_inner(s: Sources) -> None:
    s("a").lookup(s("b").key_by("v"), on="k", how="inner", fields={"t": "seen"}).sink("out")


@case(two(18, disorder=4), UNEVEN)
def lookup_in_a_stream_that_is_forgotten(s: Sources) -> None:
    s("a", time="t", slack=4).lookup(s("b", time="t", slack=4), on="k", ttl=3).sink("out")


@case(two(18, disorder=4), UNEVEN)
def lookup_in_a_stream_as_of(s: Sources) -> None:
    found = s("a", time="t", slack=2).lookup(s("b", time="t"), on="k", as_of="t")
    found.late.map(lambda r: (r.t, r.v)).sink("late")
    found.sink("out")


@case(two(18, disorder=4), UNEVEN)
def lookup_in_a_stream_as_of_then_windows(s: Sources) -> None:
    """What was looked up is not late for windows of its own time."""
    found = s("a", time="t", slack=4).lookup(s("b", time="t", slack=4), on="k", as_of=True, how="inner", ttl=9)
    windows = found.window(4).aggregate(v=agg.collect("v"), found=agg.collect("v_right"))
    windows.late.sink("late")
    windows.sink("out")


@case({name: events(20, seed=seed, keys=1, step=1) for name, seed in (("a", 1), ("b", 2))}, UNEVEN)
def lookup_in_a_stream_as_of_one_time(s: Sources) -> None:
    """Many rows of one key and time: the last one by position counts."""
    s("a", time="t").lookup(s("b", time="t"), on="k", as_of=True).sink("out")
