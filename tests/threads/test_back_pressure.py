"""Ports of co-routines that fill up: sources that go on wait one by one, and rows of all others wait on disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import read
from penstock.errors import OperatorError
from penstock.plan.plan import make_plan
from penstock.threads.brakes import Brakes, Pressure, held_back
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings

from ..in_turn import one_of_each


def sources(*pairs: tuple[str, str]) -> list[Pressure]:
    """Read ("a", "b") as a co-routine that is full of a and waits for b."""
    return [Pressure(frozenset(full), frozenset(lacking)) for full, lacking in pairs]


class TestWhoWaits:
    def test_only_the_source_of_a_full_port(self):
        assert held_back(sources(("a", "b")), "abc") == {"a"}
        assert held_back([], "abc") == frozenset()

    def test_nobody_where_nobody_is_waited_for(self):
        assert held_back(sources(("a", "")), "a") == frozenset()

    def test_not_all_where_each_waits_for_another(self):
        assert held_back(sources(("a", "b"), ("b", "a")), "ab") == {"b"}
        assert held_back(sources(("a", "b"), ("b", "c"), ("c", "a")), "abcd") == {"c"}

    @given(
        st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd"))), max_size=5),
        st.sets(st.sampled_from("abcd")),
    )
    def test_whoever_waits_does_for_somebody_who_does_not(self, drawn, there):
        found = [Pressure(frozenset(full - lacking), frozenset(lacking & there)) for full, lacking in drawn]
        held = held_back(found, there)
        assert held <= there
        for name in held:
            assert any(name in each.full and each.lacking - held for each in found)
        for each in found:
            if each.lacking:  # what is full waits, unless those that it waits for do
                assert each.full & there <= held or each.lacking & held or each.full & there - held

    def test_which_sources_go_on(self):
        assert read.rate(5).goes_on
        assert read.rate(5, rows=3).goes_on
        assert read.socket("localhost", 1).goes_on
        assert read.text("x", follow=True).goes_on
        assert not read.text("x").goes_on
        assert not read.items([1]).goes_on


class Meeting(ps.Coroutine):
    """Have each row of port 1 meet the oldest of port 0, and tell what somebody sees who looks before it does."""

    inputs = 2

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 1, 1: 1}):
            seen.append(brakes[0].held(["fast", "slow"]))
            await ctx.emit((ctx.pop(0), ctx.pop(1)))


seen: list[frozenset[str]] = []
brakes: list[Brakes] = []


def test_a_source_waits_while_the_co_routine_has_what_it_waited_for():
    """Between a row that it waited for and the next wait it lacks nothing, and yet its ports must not get more."""
    flow = ps.Flow("meeting")
    a, b = flow.source("fast", read.rate(1_000_000, rows=400)), flow.source("slow", read.rate(1_000_000, rows=400))
    plan = make_plan(ps.operate(Meeting(), a, b, name="op", max_pending=10).sink("out"))
    engine = LocalEngine(plan, LocalOptions(64, settings=Settings(model="manual")))
    seen.clear()
    brakes[:] = [engine._brakes]
    engine.run()
    assert len(engine.results["out"]) == len(seen) == 400
    assert frozenset({"fast"}) in seen


class Fast(ps.Coroutine):
    """Tell how many rows of port 0 wait whenever one of port 1 comes, and drop those that it is ahead."""

    inputs = 2

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 1, 1: 1}):
            await ctx.emit((ctx.pop(0)[1], ctx.pop(1)[1], ctx.len(0)))


def two_rates(fast: int, slow: int, **options) -> ps.Flow:
    flow = ps.Flow("rates")
    a = flow.source("fast", read.rate(1_000_000, rows=fast))
    b = flow.source("slow", read.rate(200, rows=slow))
    return ps.operate(Fast(), a, b, name="op", **options).sink("out")


@pytest.mark.parametrize(("model", "most"), one_of_each(["manual", "dedicated", "dynamic", "bound"], [10, 1000, 1]))
def test_the_fast_source_waits_and_the_flow_goes_on(model, most):
    engine = LocalEngine(
        make_plan(two_rates(5000, 20, max_pending=most)), LocalOptions(64, settings=Settings(model=model, workers=2))
    )
    engine.run()
    rows = engine.results["out"]
    assert [row[:2] for row in rows] == [(n, n) for n in range(20)]
    assert max(row[2] for row in rows) <= most


def test_a_wait_for_many_rows_is_not_held_back():
    class Hundreds(ps.Coroutine):
        inputs = 2

        async def process(self, ctx):
            while await ctx.wait_for_all({0: 90, 1: 1}):
                many = [ctx.pop(0)[1] for _ in range(90)]
                await ctx.emit((many[0], ctx.pop(1)[1]))

    flow = ps.Flow("many")
    a, b = flow.source("a", read.rate(100_000, rows=270)), flow.source("b", read.rate(1000, rows=3))
    made = ps.operate(Hundreds(), a, b, max_pending=100).sink("out")
    assert ps.run(made, on=ps.Threads(batch_rows=7)).results["out"] == [(0, 0), (90, 1), (180, 2)]


def test_where_the_input_is_fixed_rows_wait_on_disk():
    rows = 30_000
    flow = ps.Flow("fixed")
    a = flow.source("a", [(n,) for n in range(rows)])
    b = flow.source("b", [(n,) for n in range(rows)])
    zipped = ps.operate(ps.library.Zip(), a, b, name="op").sink(
        "out", ps.write.callback(lambda some, n: got.extend(some))
    )
    got: list = []
    ps.run(zipped, on=ps.Threads(batch_rows=20_000))
    assert got == [((n,), (n,)) for n in range(rows)]


def test_past_the_most_the_error_names_the_port():
    flow = ps.Flow("fixed")
    a, b = flow.source("a", [(n,) for n in range(300)]), flow.source("b", [(1,)] * 300)
    held = ps.operate(ps.library.Gate(hold=True), a, b.filter(lambda row: False), name="op", max_pending=100).sink(
        "out"
    )
    with pytest.raises(OperatorError, match=r"'op'.* port 0 holds 101 rows.*max_pending=100"):
        ps.run(held, on=ps.Threads())
