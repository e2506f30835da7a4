"""State with a time to live, held to plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import CheckpointError, FlowError
from penstock.plan.plan import make_plan
from penstock.store.identity import check_fits, identity_of

from ..how import how
from ..patience import PATIENCE


def numbered(rows: list[tuple[int, int]], slack: int, ttl: int) -> list[tuple[int, int, int]]:
    """Number the rows of each key, from 1 again where it is forgotten: the latest row ttl or more before the mark.

    What is forgotten is judged at the multiples of a thirty-second of the ttl.
    """
    mark, seen, out, period = -(10**9), {}, [], max(1, ttl // 32)
    for time, key in rows:
        mark = max(mark, time - slack)
        latest, count = seen.get(key, (time, 0))
        if latest + ttl <= mark // period * period:
            latest, count = time, 0
        seen[key] = (max(latest, time), count + 1)
        out.append((time, key, count + 1))
    return out


@given(
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 3)), max_size=40),
    st.integers(0, 6),
    st.sampled_from([1, 2, 10, 33, 100]),
    st.booleans(),
)
def test_as_in_plain_python(rows, slack, ttl, ordered):
    rows = sorted(rows) if ordered else rows
    flow = ps.Flow("ttl")
    reader = ps.read.items([{"t": t, "k": k} for t, k in rows], schema={"t": int, "k": int})
    keyed = flow.source("in", reader, time="t", slack=slack).key_by("k")
    keyed.scan(lambda n, row: (n + 1, (row.t, row.k, n + 1)), 0, ttl=ttl).sink("out")
    assert ps.run(flow, **how("sequential")).results["out"] == numbered(rows, slack, ttl)


def windows(rows: list[tuple[int, int]], slack: int, ttl: int, size: int) -> list[tuple[int, int, int]]:
    """Return (key, number, sum of times) of windows of so many rows; what is forgotten never comes out."""
    mark, period = -(10**9), max(1, ttl // 32)
    held: dict[int, tuple[int, int, list[int], int]] = {}  # latest time, number, times, where the window began
    out = []
    for index, (time, key) in enumerate(rows):
        mark = max(mark, time - slack)
        latest, number, times, began = held.get(key, (time, 0, [], index))
        if latest + ttl <= mark // period * period:
            latest, number, times = time, 0, []
        began = began if times else index
        times = [*times, time]
        if len(times) == size:
            out.append((key, number, sum(times)))
            number, times = number + 1, []
        held[key] = (max(latest, time), number, times, began)
    left = sorted(
        (began, key, number, times)
        for key, (latest, number, times, began) in held.items()
        if times and latest + ttl > mark // period * period
    )
    return [*out, *((key, number, sum(times)) for _, key, number, times in left)]


@given(
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 3)), max_size=40),
    st.integers(0, 6),
    st.sampled_from([1, 2, 10, 33, 100]),
    st.integers(1, 4),
    st.booleans(),
)
def test_count_windows_as_in_plain_python(rows, slack, ttl, size, ordered):
    rows = sorted(rows) if ordered else rows
    flow = ps.Flow("ttl")
    reader = ps.read.items([{"t": t, "k": k} for t, k in rows], schema={"t": int, "k": int})
    keyed = flow.source("in", reader, time="t", slack=slack).key_by("k")
    keyed.window(ps.count_window(size, ttl=ttl)).sum("t").sink("out")
    assert ps.run(flow, **how("sequential")).results["out"] == windows(rows, slack, ttl, size)


def test_memory_is_given_back():
    rows = [{"t": t, "k": t} for t in range(200)]
    flow = ps.Flow("ttl")
    keyed = flow.source("in", ps.read.items(rows), time="t").key_by("k")
    keyed.scan(lambda n, row: (n + 1, n), 0, name="count", ttl=10).sink("out")
    run = ps.start(flow, on=ps.Threads(), end=False)
    assert run.await_end(PATIENCE)
    kept = run.engine.element.stations["count"].states()
    assert sorted(kept) == list(range(190, 200))


def forgotten(engine: str, **options) -> int:
    """Keys 0 to 199, one a tick, each forgotten after ten; key 0 comes again at the end."""
    rows = [{"t": t, "k": t % 199} for t in range(200)]
    flow = ps.Flow("ttl")
    keyed = flow.source("in", ps.read.items(rows), time="t").key_by("k")
    keyed.scan(lambda n, row: (n + 1, n), 0, name="count", ttl=10).sink("out")
    run = ps.run(flow, end=False, **how(engine, **options))
    assert run.stats.operators["in"].forgotten == 0
    assert run.results["out"][-1] == 0
    return run.stats.operators["count"].forgotten


def test_what_is_forgotten_is_counted_in_threads():
    assert forgotten("threads") == 190


@pytest.mark.spark
def test_what_is_forgotten_is_counted_on_spark(spark, tmp_path):
    assert forgotten("spark", spark=spark, epoch_rows=70, checkpoint=str(tmp_path / "c")) == 190


def source(**options):
    return ps.Flow("ttl").source("in", ps.read.items([{"t": 1, "k": 1}]), **options).key_by("k")


class TestRefused:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: source().scan(max, 0, ttl=5), "ttl= needs event time"),
            (lambda: source(time="t").scan(max, 0, ttl=0), "ttl=0 keeps nothing"),
            (lambda: source(time="t").process(ps.Process, ttl="5 s", name="p"), "has no on_row"),
            (lambda: source(time="t").aggregate(n=ps.agg.count(), ttl="5 s"), "ttl='5 s'"),
        ],
    )
    def test_what_cannot_be(self, build, message):
        with pytest.raises(FlowError, match=message):
            build()

    def test_a_field_may_be_called_ttl(self):
        stream = source(time="t").aggregate(ttl=ps.agg.count())
        assert stream.type.names[-1] == "ttl"

    @pytest.mark.parametrize("ttl", [None, 20])
    def test_another_time_for_the_same_checkpoint(self, ttl):
        first, second = (
            identity_of(make_plan(source(time="t").scan(max, 0, name="largest", ttl=each).sink("out")))
            for each in (10, ttl)
        )
        with pytest.raises(CheckpointError, match=r"'largest' had the window or time to live .*'ttl': 10"):
            check_fits("kept", first, second)


@given(
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 3)), max_size=40),
    st.sampled_from([None, 1, 10, 33, 100]),
)
def test_distinct_as_in_plain_python(rows, within):
    flow = ps.Flow("distinct")
    reader = ps.read.items([{"t": t, "k": k} for t, k in rows], schema={"t": int, "k": int})
    flow.source("in", reader, time="t").distinct("k", within=within).sink("out")
    mark, kept, meant = -(10**9), {}, []
    for time, key in rows:
        mark = max(mark, time)
        known = kept.get(key)
        if known is None or (within and known + within <= mark // max(1, within // 32) * max(1, within // 32)):
            kept[key] = time
            meant.append((time, key))
    assert ps.run(flow, **how("sequential")).results["out"] == meant
