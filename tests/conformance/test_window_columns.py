"""Windows by columns give what the loop over rows gives: rows, positions, times, what is late, and the state behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.kernels import keyed
from penstock.kernels.failures import Failures
from penstock.kernels.marks import Steps
from penstock.operators import aggregates as agg
from penstock.operators.base import Keyed
from penstock.operators.window_folds import AggregateFold, ApplyFold
from penstock.operators.windows import Count, Session, Sliding, Tumbling
from penstock.plan.plan import make_plan
from penstock.rows.chunk import Chunk
from penstock.rows.records import record_type
from penstock.rows.timing import BEFORE, FOREVER

from .one_operator import Part, chunk_of, run_by_columns, times_of
from .shards_in_memory import SHARDS, InMemory

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
SPECS = [Tumbling(5), Sliding(6, 2), Session(1), Session(4)]
AGGREGATES = {
    "n": agg.count(),
    "sum": agg.sum("v"),
    "last": agg.last("v", skip_nulls=True),
    "all": agg.collect("v"),
    "different": agg.distinct("v"),
    "values": agg.count("v"),
    "how_many": agg.count_distinct("v"),
    "odd": agg.count(where=pc.field("v") != 2),
    "first_odd": agg.first("v", where=pc.field("v") != 2),
    "all_odd": agg.collect("t", where=pc.field("v") != 2),
    "early": agg.sum(lambda row: row.v, where=lambda row: row.t < 9),
    "half": agg.mean(pc.field("v") / 2.0, where=pc.field("v") != 2),
    "when": agg.argmax("t", by="v"),
    "when_low": agg.argmin("t", by=lambda row: row.v, where=pc.field("t") > 2),
    "median": agg.median("v"),
    "upper": agg.quantile(pc.field("v") * 2, 0.75, interpolation="higher"),
}
WAYS = (([True], True), ([True], False), ([True, True, False], False))
"""Which pieces are taken by columns, and whether state is saved and loaded between them."""
Entry = tuple[int, int, int | None, bool, bool]
"""Of a row: how far time goes on, its key, its value, whether it gets as far as the window, whether a cut follows."""
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 1, 2, 9]),
        st.integers(0, 1) | st.integers(0, 4),
        st.sampled_from([1, 2, 3, None]),
        st.integers(0, 4).map(bool),
        st.integers(0, 9).map(lambda n: n == 0),
    ),
    min_size=1,
    max_size=60,
)


def run(flow: Flow, entries: list[Entry], back: list[int], columns: list[bool], reload: bool = True) -> list[Any]:
    """Run the operator "window" over the entries, cut as they say; return all that can be seen of it.

    `columns` says of each piece whether it is to be taken by columns, over and over again. With `reload`, state is
    saved and loaded between two pieces.
    """
    plan = make_plan(flow)
    row_type = plan.nodes["in"].types[0]
    times = times_of((step for step, *_ in entries), back)

    def parts(numbers: list[int]) -> Iterator[Part]:
        here = [n for n in numbers if entries[n][3]]
        rows = [(int(times[n]), entries[n][1], entries[n][2]) for n in here]
        yield 0, chunk_of(here, times, row_type, rows), np.array([entries[n][1] % SHARDS for n in here], np.int64)

    return run_by_columns(plan.nodes["window"], entries, times, parts, columns, reload)


def windows(spec: Any, whole: bool | None) -> Flow:
    """Make windows of aggregates, of whole rows, or (None) of the first rows."""
    window = Flow("w").source("in", read.items([], schema=SCHEMA), time="t").key_by("k").window(spec)
    if whole is None:
        made = window.top(2, by="v", name="window")
    elif whole:
        made = window.apply(lambda window, rows: (window, rows), name="window")
    else:
        made = window.aggregate(**AGGREGATES, name="window")
    made.late.sink("late")
    return made.sink("out")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ENTRIES,
    st.sampled_from(SPECS),
    st.sampled_from([False, True, None]),
    st.just([0]) | st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, 12]), min_size=1),
)
@example(
    [(0, 0, 1, True, False), *[(2, 0, 2, True, False)] * 3, (0, 0, 3, True, False)], Session(4), False, [0] * 4 + [5]
)
@example(
    [(20, 1, 1, True, False), (0, 1, 1, True, False), (0, 0, 2, True, False), (1, 0, 3, True, False)],
    Session(4),
    False,
    [0, 1, 12, 0],
)
def test_columns_and_rows_are_the_same(entries: list[Entry], spec: Any, whole: bool | None, back: list[int]) -> None:
    """`back` is how much later than its time each row comes: with some of it rows are late, or against all order."""
    flow = windows(spec, whole)
    expected = run(flow, entries, back, columns=[False])
    for columns, reload in WAYS:
        assert repr(run(flow, entries, back, columns, reload)) == repr(expected)


COUNTED = {"n": agg.count(), "sum": agg.sum("v"), "mean": agg.mean("v"), "last": agg.last("v"), "low": agg.min("v")}


def counted(size: int) -> Flow:
    keyed_stream = Flow("w").source("in", read.items([], schema=SCHEMA), time="t").key_by("k")
    return keyed_stream.window(Count(size)).aggregate(**COUNTED, name="window").sink("out")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ENTRIES, st.integers(1, 5))
def test_windows_of_so_many_rows(entries: list[Entry], size: int) -> None:
    flow = counted(size)
    expected = run(flow, entries, [0], columns=[False])
    for columns, reload in WAYS:
        assert repr(run(flow, entries, [0], columns, reload)) == repr(expected)


def test_no_row_of_a_count_window_is_taken_by_itself(monkeypatch: Any) -> None:
    entries = [(1, n % 5, n, True, n % 20 == 0) for n in range(100)]
    expected = run(counted(3), entries, [0], columns=[False])
    monkeypatch.setattr(AggregateFold, "add", lambda *_: pytest.fail("row by row"))
    assert repr(run(counted(3), entries, [0], columns=[True])) == repr(expected)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("back", [[0], [0, 0, 1], [0, 0, 0, 30]], ids=["in order", "nearly in order", "some are late"])
def test_no_row_is_taken_by_itself(spec: Any, whole: bool, back: list[int], monkeypatch: Any) -> None:
    # Late rows are of a key of their own: one whose session is open may still belong to it, which the loop finds out.
    entries = [(n % 2, 9 if n % 4 == 3 else n % 5, n, n % 7 > 0, n % 20 == 0) for n in range(100)]
    flow = windows(spec, whole)
    expected = run(flow, entries, back, columns=[False])
    for fold in (AggregateFold, ApplyFold):
        monkeypatch.setattr(fold, "add", lambda *_: pytest.fail("row by row"))
    assert repr(run(flow, entries, back, columns=[True])) == repr(expected)


def test_windows_that_open_and_close_at_once_are_never_in_the_state(monkeypatch: Any) -> None:
    monkeypatch.setattr(AggregateFold, "close", lambda *_: pytest.fail("window by window"))
    entries = [(1, n % 5, n, True, False) for n in range(100)]
    for spec in SPECS:
        seen = run(windows(spec, whole=False), entries, [0], columns=[True])
        assert [port for port, *_ in seen[:-1]] == [0]
        assert seen[-1] == "[]"


def run_failing(size: Any, few: int) -> tuple[list[Any], dict[str, int]]:
    """Take eight rows into windows; the mean of the first four cannot be had."""
    rows = [{"t": n, "k": 1, "v": 2**62 if n < 4 else 3} for n in range(8)]
    huge = agg.mean(lambda row: row.v**20)
    window = Flow("w").source("in", read.items(rows, schema=SCHEMA), time="t").key_by("k").window(size)
    made = window.aggregate(mean=huge, name="window", on_error="skip")
    node = make_plan(made.sink("out")).nodes["window"]
    assert isinstance(node.operator, Keyed)
    failures = Failures()
    row_type = record_type(SCHEMA)
    chunk = Chunk([np.arange(8) * 2 + 1], np.arange(8), row_type, None, list(map(row_type.normalize, rows)))
    runner = keyed.KeyedRunner(node, 1, 0, InMemory(node.operator.logic), failures)
    marks = Steps([np.array([16])], np.array([FOREVER]))
    with mock.patch.object(keyed, "FEW_ROWS", few):
        found = runner.run([(0, chunk, np.zeros(8, np.int64))], marks, BEFORE)
    return [tuple(row) for out in found.values() for row in out.get_rows()], failures.passed_over


def test_a_result_that_fails_fails_at_its_own_window() -> None:
    """A mean of whole numbers can be too large for a float: that window's row is an error, the others are there."""
    assert run_failing(4, few=0) == ([(1, 4, 8, float(3**20))], {"window": 1})


def test_a_result_that_fails_leaves_a_count_window_open() -> None:
    for size in (3, 4, 5):
        assert run_failing(Count(size), few=0) == run_failing(Count(size), few=100)
