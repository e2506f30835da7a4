"""Joins by columns give what the loop over rows gives: rows, positions, times, what is late, and the state behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.kernels import join_columns
from penstock.operators.join import Join
from penstock.plan.plan import make_plan

from .one_operator import Part, chunk_of, run_by_columns, times_of
from .shards_in_memory import SHARDS

LEFT = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("v", pa.float64()), ("s", pa.string())])
RIGHT = pa.schema([("s", pa.string()), ("t", pa.int64()), ("k", pa.int64()), ("w", pa.float64())])
WAYS = (([True], True), ([True], False), ([True, True, False], False))
"""Which pieces are taken by columns, and whether state is saved and loaded between them."""
Entry = tuple[int, int | None, float | None, int, bool]
"""Of a row: how far time goes on, its key, its value, its side, and whether a cut follows."""
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 1, 2, 9]),
        st.sampled_from([0, 0, 1, 2, None]),
        st.sampled_from([0.5, -0.0, float("nan"), None]),
        st.integers(0, 1),
        st.integers(0, 9).map(lambda n: n == 0),
    ),
    min_size=1,
    max_size=60,
)


def joined(size: int, offset: int, how: Any) -> Flow:
    from penstock.operators.windows import Tumbling

    flow = Flow("j")
    left = flow.source("left", read.items([], schema=LEFT), time="t").key_by("k")
    right = flow.source("right", read.items([], schema=RIGHT), time="t").key_by("k")
    made = left.join(right, Tumbling(size, offset), how=how, name="join")
    made.late.sink("late")
    return made.sink("out")


def run(flow: Flow, entries: list[Entry], back: list[int], columns: list[bool], reload: bool = True) -> list[Any]:
    """Run the join over the entries, cut as they say; return all that can be seen of it.

    With `reload`, state is saved and loaded between two pieces.
    """
    plan = make_plan(flow)
    types = [plan.nodes[name].types[0] for name in ("left", "right")]
    times = times_of((step for step, *_ in entries), back)

    def parts(numbers: list[int]) -> Iterator[Part]:
        for side, row_type in enumerate(types):
            here = [n for n in numbers if entries[n][3] == side]
            rows: list[Any] = [(int(times[n]), entries[n][1], entries[n][2], f"é{n}") for n in here]
            rows = rows if side == 0 else [(s, t, k, v) for t, k, v, s in rows]
            shards = np.array([(entries[n][1] or 0) % SHARDS for n in here], np.int64)
            yield side, chunk_of(here, times, row_type, rows), shards

    return run_by_columns(plan.nodes["join"], entries, times, parts, columns, reload)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ENTRIES,
    st.sampled_from([(1, 0), (4, 0), (5, 3)]),
    st.sampled_from(["inner", "inner", "outer"]),
    st.just([0]) | st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, 12]), min_size=1),
)
def test_columns_and_rows_are_the_same(entries: list[Entry], window: Any, how: Any, back: list[int]) -> None:
    flow = joined(*window, how)
    expected = run(flow, entries, back, columns=[False])
    for columns, reload in WAYS:
        assert repr(run(flow, entries, back, columns, reload)) == repr(expected)


def test_no_row_of_a_window_that_begins_and_ends_in_a_chunk_is_taken_by_itself(monkeypatch: Any) -> None:
    entries: list[Entry] = [(1, n % 3, 0.5, n // 3 % 2, False) for n in range(100)]
    expected = run(joined(5, 0, "inner"), entries, [0], columns=[False])
    monkeypatch.setattr(Join, "on_row", lambda *_: pytest.fail("row by row"))
    found = run(joined(5, 0, "inner"), entries, [0], columns=[True])
    assert repr(found) == repr(expected)
    assert len(found[0][3]) > 20


def test_more_pairs_than_fit_in_memory_are_made_one_by_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(join_columns, "MOST_PAIRS", 3)
    entries: list[Entry] = [(1, n % 3, 0.5, n // 3 % 2, False) for n in range(40)]
    flow = joined(5, 0, "inner")
    assert repr(run(flow, entries, [0], [True])) == repr(run(flow, entries, [0], [False]))
