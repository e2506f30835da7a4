"""Fan-out and fan-in."""

from __future__ import annotations

from .cases import EVENTS, UNEVEN, Sources, case, events, two


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
