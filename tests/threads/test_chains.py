"""Consecutive maps and filters run as one loop: nobody can tell but by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import OperatorError
from penstock.kernels.chains import LONGEST, find_chains, make_chain, make_loop
from penstock.plan.plan import make_plan
from penstock.rows.chunk import Chunk

from ..how import how
from .pacing import Paced
from .support import ran, wait_for


class Named(NamedTuple):
    """A row."""

    a: int
    b: float


@dataclass
class Data:
    """The same."""

    a: int
    b: float


class Typed(TypedDict):
    """The same."""

    a: int
    b: float


def number(row: Any) -> int:
    return int(row["a"] if isinstance(row, dict) else getattr(row, "a", row))


def small(n: int) -> bool:
    return n < 9


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
    rows = iter(range(6))
    assert loop(rows, rows.__length_hint__, functions, dropped) == [30, 50]
    assert dropped == [[], [4, 2, 0], [], [5]]  # how many rows were still to come


FORMS = {"record": {"a": int, "b": float}, "named": Named, "data": Data, "typed": Typed, "scalar": int}


@pytest.mark.parametrize("form", sorted(FORMS))
@given(st.lists(st.integers(0, 20), max_size=30), st.booleans())
def test_rows_keep_their_positions_whatever_their_form(form, numbers, are_columns):
    flow = ps.Flow("forms")
    source = flow.source("in", ps.read.items([], schema=FORMS[form]))
    source.filter(lambda row: number(row) % 2, name="odd").map(number, name="number").filter(small, name="small").sink(
        "out"
    )
    plan = make_plan(flow)
    chain = make_chain(tuple(plan.nodes[name] for name in ("odd", "number", "small")), 1)
    row_type = plan.nodes["in"].types[0]
    lists = [numbers] if form == "scalar" else [numbers, [n / 2 for n in numbers]]
    columns = row_type.encode_columns(lists, len(numbers))
    chunk = Chunk([np.arange(len(numbers)) * 3], None, row_type, columns)
    if not are_columns:
        chunk = Chunk(chunk.positions, None, row_type, None, row_type.decode(columns))
    found = chain.run(chunk)
    assert found is not None
    made, counts = found
    expected = [(3 * place, n) for place, n in enumerate(numbers) if n % 2 and n < 9]
    assert list(zip(made.positions[0].tolist(), made.get_rows(), strict=True)) == expected
    assert counts == [sum(n % 2 for n in numbers)] * 2 + [len(expected)]


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
