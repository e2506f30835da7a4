"""Consecutive maps and filters run as one loop: nobody can tell but by the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import OperatorError
from penstock.kernels.chains import LONGEST, find_chains, make_loop
from penstock.plan.plan import make_plan

from ..how import how
from .pacing import Paced
from .support import ran, wait_for

STEPS = {
    "add": ("map", lambda v: v + 1),
    "double": ("map", lambda v: 2 * v),
    "text": ("map", lambda v: int(str(v))),
    "odd": ("filter", lambda v: v % 2),
    "small": ("filter", lambda v: v < 60),
    "none": ("filter", lambda v: None),
    "third": ("filter", lambda v: v % 3 == 0),
}


def built(names: list[str], rows: int = 40) -> ps.Flow:
    flow = ps.Flow("chain")
    stream = flow.source("in", ps.read.items(range(rows)))
    for number, name in enumerate(names):
        kind, function = STEPS[name]
        stream = getattr(stream, kind)(function, name=f"{name}-{number}")
    stream.sink("out")
    return flow


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=7), st.sampled_from([1, 7, 40]))
def test_it_gives_what_the_operators_give(names, batch_rows):
    flow = built(names)
    alone, fused = (ran(flow, fuse=fuse, batch_rows=batch_rows) for fuse in (False, True))
    assert len(fused.element.stations) == 3
    assert fused.results == alone.results
    seen = [
        {
            each.name: (each.rows_in, each.rows_out, each.batches)
            for each in engine.element.statistics().operators.values()
        }
        for engine in (alone, fused)
    ]
    for name, (rows_in, rows_out, _) in seen[0].items():
        assert seen[1][name][:2] == (rows_in, rows_out)


def test_records_are_decoded_and_columns_kept():
    flow = ps.Flow("columns")
    rows = [{"a": n, "b": f"{n}"} for n in range(30)]
    source = flow.source("in", ps.read.items(rows, schema={"a": int, "b": str}))
    source.filter(lambda r: r.a % 2, name="odd").filter(lambda r: r.a % 3, name="third").sink("filtered")
    source.map(lambda r: {"c": r.a}, schema={"c": int}, name="c").filter(lambda r: r.c > 20, name="big").sink("mapped")
    results = ran(flow, fuse=True, batch_rows=8).results
    assert [row.a for row in results["filtered"]] == [n for n in range(30) if n % 2 and n % 3]
    assert [row.c for row in results["mapped"]] == list(range(21, 30))


@pytest.mark.parametrize("engine", ["threads", "sequential"])
def test_the_error_is_the_one_that_comes_first(engine):
    """Row 7 fails in the second operator; row 8, of the same batch, would fail in the first."""
    flow = ps.Flow("fails")
    source = flow.source("in", ps.read.items(range(20)))
    first = source.map(lambda v: [v][v == 8], name="first")
    first.map(lambda v: [v][v == 7], name="second").filter(lambda v: True, name="third").sink("out")
    with pytest.raises(OperatorError, match="second") as caught:
        ps.run(flow, **how(engine))
    assert "7" in str(caught.value)


def test_what_is_not_fused():
    flow = ps.Flow("apart")
    source = flow.source("in", ps.read.items(range(4)))
    a = source.map(lambda v: v, name="a").map(lambda v: v, name="b")
    a.map(lambda v: v, name="c").map(lambda v: v, name="d", on_error="skip").map(lambda v: v, name="e").sink("x")
    a.map(lambda v: v, name="f", waits=True).map(lambda v: v, name="g").sink("y")
    names = [[node.name for node in chain] for chain in find_chains(make_plan(flow))]
    assert names == [["a", "b"]]  # b has two readers, d goes on behind errors, f waits


def test_a_long_chain_is_cut():
    chains = find_chains(make_plan(built(["add"] * (2 * LONGEST + 2))))
    assert [len(chain) for chain in chains] == [LONGEST, LONGEST, 2]


def test_the_loop_is_the_one_that_its_text_shows():
    dropped = [[], [], [], []]
    loop = make_loop((True, False, True, False))
    functions = [lambda v: v + 1, lambda v: v % 2, lambda v: v * 10, lambda v: v > 10]
    assert loop(range(6), functions, dropped) == [30, 50]
    assert dropped == [[], [1, 3, 5], [], [0]]


def test_a_query_reads_the_middle_and_goes():
    paced = Paced()
    flow = ps.Flow("tapped")
    source = flow.source("in", ps.read.items(paced, schema={"n": int, "k": int}))
    middle = source.map(lambda row: row.n, name="number").filter(lambda n: n % 2, name="odd")
    middle.map(lambda n: -n, name="minus").sink("whole")
    run = ps.start(flow, on=ps.Threads(workers=2, batch_rows=1))
    assert len(run.engine.element.stations) == 3
    paced.step(20)
    wait_for(lambda: len(run.results["whole"]) == 10)
    middle.sink("tap")
    paced.past(run, run.add_query, "tap")
    paced.step(19)
    wait_for(lambda: len(run.results["whole"]) == 20)
    paced.past(run, run.cancel_query, "whole")
    paced.step(100)
    run.await_end()
    whole, tap = run.results["whole"], run.results["tap"]
    assert whole == [-n for n in range(60) if n % 2][: len(whole)]
    assert len(whole) >= 20
    assert tap == [n for n in range(60) if n % 2][-len(tap) :]
    assert len(tap) >= 19


@pytest.mark.parametrize("engine", ["threads", "sequential"])
def test_a_value_that_does_not_fit_is_the_fault_of_who_made_it(engine):
    flow = ps.Flow("misfit")
    one = flow.source("in", ps.read.items([{"a": 1}], schema={"a": int})).map(
        lambda r: r, schema={"a": int}, name="one"
    )
    one.map(lambda r: {"a": "text"}, schema={"a": int}, name="two").sink("out")
    with pytest.raises(OperatorError, match="'two'"):
        ps.run(flow, **how(engine))
