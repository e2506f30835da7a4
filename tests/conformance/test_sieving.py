"""Rows that are left out by columns change nothing: a running top and `distinct` are what the loop over rows gives."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.kernels import column_kernels, keyed
from penstock.kernels.failures import Failures
from penstock.operators.window_folds import Ranking
from penstock.plan.plan import make_plan
from penstock.rows.chunk import Chunk
from penstock.rows.timing import BEFORE

from .one_operator import NO_MARKS
from .shards_in_memory import SHARDS, InMemory

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("n", pa.int32())])
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2) | st.none(),
        st.sampled_from([0.0, -0.0, 1.0, 2.0, -3.5, math.inf, -math.inf, math.nan, None]),
        st.sampled_from([1, 2, 3, None]),
    ),
    min_size=1,
    max_size=80,
)
BUILD: dict[str, Any] = {
    "largest": lambda rows: rows.top(2, by="x", name="op"),
    "smallest": lambda rows: rows.top(3, by="x", largest=False, name="op"),
    "whole": lambda rows: rows.top(1, by="n", name="op"),
    "expression": lambda rows: rows.top(2, by=ps.expr("x + n"), name="op"),
    "function": lambda rows: rows.top(2, by=lambda row: row.n or 0, name="op"),
}


def run(flow: Any, rows: list[Any], few: int, size: int) -> list[Any]:
    """Run the operator over the rows in pieces; return what comes out, the state, and how many rows shards had."""
    plan = make_plan(flow)
    node: Any = plan.nodes["op"]
    row_type = plan.nodes["in"].types[0]
    assert row_type is not None
    shards, failures, seen = InMemory(node.operator.logic), Failures(), list[Any]()
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        places = np.arange(start, start + len(some))
        chunk = Chunk([places], None, row_type, row_type.encode(some))
        of = np.array([(row[0] or 0) % SHARDS for row in some], np.int64)
        with mock.patch.object(keyed, "FEW_ROWS", few), mock.patch.object(column_kernels, "FIRST_ROWS", 4):
            runner = keyed.KeyedRunner(node, 1, 0, shards, failures)
            made = runner.run([(0, chunk, of)], NO_MARKS, BEFORE)
        for port, out in made.items():
            seen.append((port, [p.tolist() for p in out.positions], out.get_rows()))
        seen.append((shards.shown(), sorted((number, shard.rows) for number, shard in shards.shards.items())))
    assert not failures.fatal
    return seen


@settings(max_examples=80, deadline=None)
@given(ROWS, st.sampled_from([7, 30, 80]))
def test_what_is_left_out_changes_nothing(rows: list[Any], size: int) -> None:
    for build in BUILD.values():
        flow = build(ps.Flow("f").source("in", ps.read.items([], schema=SCHEMA)).key_by("k")).sink("out")
        assert repr(run(flow, rows, 0, size)) == repr(run(flow, rows, 1000, size))
    flow = ps.Flow("f").source("in", ps.read.items([], schema=SCHEMA)).distinct("k", name="op").sink("out")
    assert repr(run(flow, rows, 0, size)) == repr(run(flow, rows, 1000, size))


def test_few_rows_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    enter = Ranking.enter
    monkeypatch.setattr(Ranking, "enter", lambda *given: (looked.append(1), enter(*given))[1])
    rows = [(n % 3, float(n * 7 % 1000), 1) for n in range(3000)]
    flow = BUILD["largest"](ps.Flow("f").source("in", ps.read.items([], schema=SCHEMA)).key_by("k")).sink("out")
    run(flow, rows, 0, 3000)
    assert len(looked) < 300
