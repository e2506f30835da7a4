"""The reference engine: the order of everything, against values worked out by hand."""

import datetime as dt
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import read
from penstock.errors import OperatorError, SourceError
from penstock.flow import Flow
from penstock.operators import aggregates as agg
from penstock.operators.windows import Session

from .running import feed, numbers, out, records, run, started


def tagged(tag):
    return lambda value: f"{tag}{value}"


class TestDepthFirst:
    def test_the_union_example(self):
        """A row goes through the whole graph before the next: Xa Ya Xb Yb, not Xa Xb Ya Yb."""
        several = numbers(["ab"]).flat_map(list)
        x, y = several.map(tagged("X")), several.map(tagged("Y"))
        assert out(x.union(y)) == ["Xa", "Ya", "Xb", "Yb"]

    def test_branches_come_in_the_order_of_their_declaration_not_of_their_ports(self):
        several = numbers(["ab"]).flat_map(list)
        x, y = several.map(tagged("X")), several.map(tagged("Y"))
        assert out(y.union(x)) == ["Xa", "Ya", "Xb", "Yb"]

    def test_a_stream_read_twice(self):
        stream = numbers([1, 2])
        assert out(stream.union(stream)) == [1, 1, 2, 2]

    def test_two_fan_outs_inside_one_another(self):
        top = numbers("p")
        inner = top.map(tagged("i")).flat_map(lambda s: [s + "1", s + "2"])
        left = inner.map(tagged("L")).union(inner.map(tagged("R")))
        assert out(left.union(top.map(tagged("o")))) == ["Lip1", "Rip1", "Lip2", "Rip2", "op"]

    def test_split_and_union_give_the_order_of_the_rows(self):
        small, rest = numbers([5, 1, 7, 2]).split(lambda n: n < 4)
        assert out(rest.map(tagged("big ")).union(small.map(tagged("small ")))) == [
            "big 5",
            "small 1",
            "big 7",
            "small 2",
        ]

    def test_state_behind_a_fan_in_sees_the_rows_in_that_order(self):
        several = numbers([1, 2]).flat_map(lambda n: [n, n * 10])
        both = several.map(lambda n: n + 0.5).union(several)
        assert out(both.scan(lambda s, n: ([*s, n], len(s)), [])) == list(range(8))
        engine = started(both.scan(lambda s, n: ([*s, n], len(s)), [], name="seen").sink("more"))
        feed(engine, "in", 1, 2)
        assert engine.state("seen") == {None: [1.5, 1, 10.5, 10, 2.5, 2, 20.5, 20]}

    @given(st.lists(st.integers(0, 3), max_size=6), st.permutations("abc"))
    def test_any_fan_out_is_a_plain_recursion(self, values, order):
        """Each branch repeats its rows; the union sees value by value, branch by branch, copy by copy."""
        repeats = {"a": 1, "b": 2, "c": 3}
        stream = numbers([*values, 1])
        branches = {b: stream.flat_map(lambda n, b=b: [(b, n, i) for i in range(repeats[b] * n)]) for b in order}
        expected = [(b, n, i) for n in [*values, 1] for b in order for i in range(repeats[b] * n)]
        assert out(branches["a"].union(branches["b"], branches["c"])) == expected


class TestTwoSources:
    def flow(self, **options):
        flow = Flow("f")
        kind = {"t": int, "v": str}
        return [flow.source(name, read.items([], schema=kind), time="t", **options) for name in "ab"]

    SEQUENCE = (
        ("a", {"t": 1, "v": "a1"}),
        ("b", {"t": 5, "v": "b5"}),
        ("b", {"t": 12, "v": "b12"}),
        ("a", {"t": 11, "v": "a11"}),
        ("b", {"t": 13, "v": "b13"}),
        ("a", {"t": 25, "v": "a25"}),
    )

    def test_a_union_keeps_the_input_sequence(self):
        a, b = self.flow()
        found = run(b.union(a).sink("out"), self.SEQUENCE)["out"]
        assert [row.v for row in found] == [row["v"] for _, row in self.SEQUENCE]

    def test_the_slower_source_keeps_windows_open(self):
        a, b = self.flow()
        engine = started(a.union(b).window(10).aggregate(v=agg.collect("v")).sink("out"))
        closed = []
        for source, row in self.SEQUENCE:
            feed(engine, source, row)
            closed.append(len(engine.results["out"]))
        # [0, 10) closes when a reaches 11, which is at the fourth row; [10, 20) waits for b.
        assert closed == [0, 0, 0, 1, 1, 1]
        engine.end("a")
        assert len(engine.results["out"]) == 1
        engine.end("b")
        assert engine.results["out"] == [
            (0, 10, ["a1", "b5"]),
            (10, 20, ["b12", "a11", "b13"]),
            (20, 30, ["a25"]),
        ]

    def test_a_source_that_has_ended_holds_nothing_up(self):
        a, b = self.flow()
        engine = started(a.union(b).window(10).count().sink("out"))
        feed(engine, "a", {"t": 1, "v": ""})
        engine.end("a")
        feed(engine, "b", {"t": 3, "v": ""}, {"t": 10, "v": ""})
        assert engine.results["out"] == [(0, 10, 2)]

    def test_sources_that_never_meet_do_not_wait(self):
        a, b = self.flow()
        a.window(10).count().sink("A")
        engine = started(b.window(10).count().sink("B"))
        feed(engine, "a", {"t": 1, "v": ""}, {"t": 11, "v": ""})
        assert engine.results == {"A": [(0, 10, 1)], "B": []}

    def test_the_end_of_each_source_closes_what_it_held_open(self):
        a, b = self.flow()
        engine = started(a.union(b).window(10).count().sink("out"))
        feed(engine, "b", {"t": 1, "v": "x"})
        feed(engine, "a", {"t": 12, "v": "y"})
        assert engine.results["out"] == []
        engine.end("b")
        assert engine.results["out"] == [(0, 10, 1)]
        engine.end("a")
        assert engine.results["out"] == [(0, 10, 1), (10, 20, 1)]


class TestMarks:
    def test_fire_before_the_row_that_raised_them(self):
        stream = records([{"t": 1}, {"t": 12}])
        closes = stream.window(10).aggregate(n=agg.count()).map(lambda w: ("window", w.window_end))
        assert out(stream.map(lambda r: ("row", r.t)).union(closes)) == [
            ("row", 1),
            ("window", 10),
            ("row", 12),
            ("window", 20),
        ]

    def test_windows_in_the_branches_of_a_fan_out(self):
        """At one mark the first branch closes all that is due, then the second; the end is a mark as well."""
        stream = records([{"t": 0}, {"t": 4}, {"t": 11}])
        small = stream.window(5).count().map(lambda w: ("small", w.window_end, w.count))
        large = stream.window(10).count().map(lambda w: ("large", w.window_end, w.count))
        assert out(large.union(small)) == [
            ("small", 5, 2),
            ("large", 10, 2),
            ("small", 15, 1),
            ("large", 20, 1),
        ]

    def test_a_window_below_the_fan_in_gets_both(self):
        stream = records([{"t": 0}, {"t": 4}, {"t": 11}, {"t": 30}])
        small = stream.window(5).aggregate(n=agg.count())
        sessions = stream.window(Session(5)).aggregate(n=agg.count())
        both = small.union(sessions).window(20).aggregate(n=agg.count(), rows=agg.sum("n"))
        # [0, 20): two small windows (2 + 1 rows) and two sessions (2 + 1 rows); then one of each.
        assert out(both) == [(0, 20, 4, 6), (20, 40, 2, 2)]

    def test_many_keys_closing_at_one_mark(self):
        """By fire time, then by the row that opened the window: not by key, and not by hash."""
        rows = [{"t": t, "k": k} for t, k in [(5, "z"), (3, "a"), (14, "a"), (12, "q"), (4, "z"), (8, "m"), (99, "x")]]
        found = out(records(rows, slack=20).key_by("k").window(10).aggregate(n=agg.count()))
        assert [(row.k, row.window_end, row.n) for row in found] == [
            ("z", 10, 2),
            ("a", 10, 1),
            ("m", 10, 1),
            ("a", 20, 1),
            ("q", 20, 1),
            ("x", 100, 1),
        ]

    def test_a_mark_that_is_not_higher_changes_nothing(self):
        stream = records([{"t": 10}, {"t": 3}, {"t": 10}])
        assert out(stream.window(5).count()) == [(10, 15, 2)]

    def test_a_time_that_is_null_names_source_and_field(self):
        engine = started(records([{"t": 1}]).sink("out"))
        with pytest.raises(SourceError, match=r"source 'in': the field 't' gives no event time.*row: Row\(t=None\)"):
            feed(engine, "in", {"t": None})

    def test_bare_values_can_be_times(self):
        assert out(numbers([1, 2, 12], time="value").window(10).count()) == [(0, 10, 2), (10, 20, 1)]


class TestLateRowsOfASource:
    def test_fail(self):
        engine = started(records([{"t": 1}], order_by="t").sink("out"))
        with pytest.raises(SourceError, match=r"source 'in': order_by goes back.*divert.*sort\(slack=...\)"):
            engine.late("in", (1,))

    def test_divert_with_their_time(self):
        stream = records([{"t": 1}], order_by="t", on_late="divert")
        stream.sink("out")
        engine = started(stream.late.window(10).count().sink("late"))
        row = engine.plan.nodes["in"].types[0].roundtrip({"t": 15})
        engine.late("in", row)
        engine.end("in")
        assert engine.results == {"out": [], "late": [(10, 20, 1)]}


class Kelvin(NamedTuple):
    degrees: float


class TestDeclaredTypes:
    """Rows take their declared type where they reach state or a sink, as they do where they leave a process."""

    def test_at_sinks(self):
        def freeze(n) -> Kelvin:
            return Kelvin(n)

        (row,) = out(numbers([3]).map(freeze))
        assert isinstance(row, Kelvin)
        assert isinstance(row.degrees, float)

    def test_before_state(self):
        stream = numbers([1]).map(lambda _: {"at": dt.datetime(2024, 1, 1)}, schema={"at": dt.datetime})
        assert out(stream.scan(lambda s, r: (s, r.at.tzinfo is dt.UTC))) == [True]

    def test_a_misfit_names_operator_field_and_value(self):
        with pytest.raises(OperatorError) as caught:
            out(numbers([1, 2]).map(lambda n: {"n": n / 2}, schema={"n": int}, name="halve"))
        assert "operator 'halve' failed: field 'n' has the value 0.5 (float)" in str(caught.value)
        assert "does not fit the declared type int64" in str(caught.value)

    def test_undeclared_rows_pass_as_they_are(self):
        thing = object()
        assert out(numbers([1]).map(lambda _: thing)) == [thing]


def test_state_can_be_read_by_key():
    engine = started(numbers([1]).key_by(lambda n: n % 2).scan(lambda s, n: (s + n, s), 0, name="sum").sink("out"))
    feed(engine, "in", 1, 2, 3)
    assert engine.state("sum") == {1: 4, 0: 2}


def test_an_engine_that_got_nothing_gives_nothing():
    assert run(records([{"t": 1}]).window(5).count().sink("out"), [])["out"] == []
