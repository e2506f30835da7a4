"""Consecutive selects and filters by expressions share Arrow's plans: nobody can tell but by the clock."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import OperatorError
from penstock.kernels.chains import find_chains, make_segments
from penstock.plan.plan import make_plan

from ..how import how
from .support import ran

A, B = pc.field("a"), pc.field("b")
STEPS: dict[str, tuple[str, Any]] = {
    "add": ("select", {"a": A + 1, "b": B}),
    "swap": ("select", {"a": B, "b": A}),
    "keep": ("select", {"b": A, "keep": B, "a": A * 2}),  # a column with the name that masks have
    "small": ("filter", A < 40),
    "odd": ("filter", pc.bit_wise_and(A, 1) == 1),
    "known": ("filter", B.is_valid()),
    "none": ("filter", A < -1000),
    "null": ("filter", B > 10),
}


def built(names: list[str], rows: list[dict[str, int | None]]) -> ps.Flow:
    flow = ps.Flow("chain")
    stream: Any = flow.source("in", ps.read.items(rows, schema={"a": int, "b": int}))
    for number, name in enumerate(names):
        kind, given_ = STEPS[name]
        label = f"{name}-{number}"
        stream = stream.select(**given_, name=label) if kind == "select" else stream.filter(given_, name=label)
    stream.sink("out")
    return flow


@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=7),
    st.sampled_from([1, 7, 40]),
    st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=25, max_size=25),
)
def test_it_gives_what_the_operators_give(names, batch_rows, values):
    flow = built(names, [{"a": n, "b": value} for n, value in enumerate(values)])
    alone, fused = (ran(flow, fuse=fuse, batch_rows=batch_rows) for fuse in (False, True))
    assert len(fused.element.stations) == 3
    assert fused.results == alone.results
    counts = [
        {each.name: (each.rows_in, each.rows_out) for each in engine.element.statistics().operators.values()}
        for engine in (alone, fused)
    ]
    assert counts[0] == counts[1]


def test_one_plan_for_selects_and_the_filter_behind_them():
    names = ["add", "swap", "small", "odd", "add"]
    operators = [node.operator for node in find_chains(make_plan(built(names, [])))[0]]
    parts = [(len(segment.selects), segment.filter is not None) for segment in make_segments(operators)]
    assert parts == [(2, True), (0, True), (1, False)]


def test_rows_that_only_filters_saw_are_the_rows_themselves():
    """A value that a column would change, as 1 for 1.0, comes out as any filter gives it."""
    flow = ps.Flow("rows")
    source = flow.source("in", ps.read.items(range(9)))
    made = source.map(lambda n: {"x": n}, schema={"x": float}, name="made")
    seen: list[Any] = []
    filtered = made.filter(pc.field("x") > 2, name="low").filter(pc.field("x") < 6, name="high")
    filtered.map(lambda row: seen.append(row) or row, schema={"x": float}, name="look").sink("out")
    for fuse in (False, True):
        seen.clear()
        ran(flow, fuse=fuse, batch_rows=4)
        assert [type(row["x"]) for row in seen] == [int] * 3


def test_an_expression_that_holds_only_for_the_rows_that_are_left():
    flow = ps.Flow("guarded")
    source = flow.source("in", ps.read.items([{"a": n % 3} for n in range(30)], schema={"a": int}))
    source.filter(A != 0, name="some").select(a=pc.divide_checked(pc.scalar(12), A), name="divide").sink("out")
    assert [row.a for row in ran(flow, fuse=True, batch_rows=30).results["out"]] == [12, 6] * 10


@pytest.mark.parametrize("engine", ["threads", "sequential"])
def test_the_error_is_the_one_that_comes_first(engine):
    """Row 7 fails in the second operator; row 8, of the same batch, would fail in the first."""
    flow = ps.Flow("fails")
    source = flow.source("in", ps.read.items([{"a": n} for n in range(20)], schema={"a": int}))
    first = source.select(a=A, b=pc.divide_checked(pc.scalar(1), A - 8), name="first")
    first.select(c=pc.divide_checked(pc.scalar(1), A - 7), name="second").sink("out")
    with pytest.raises(OperatorError, match="second"):
        ps.run(flow, **how(engine))
