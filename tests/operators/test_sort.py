"""Event-time order: sort with slack, and merge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow

from ..running import feed, out, records, run, started


def at(*times, **options):
    return records([{"t": t, "v": i} for i, t in enumerate(times)], **options)


def sorted_and_late(stream, slack=0):
    result = stream.sort(slack=slack)
    result.late.sink("late")
    found = run(result.sink("out"))
    return [r.v for r in found["out"]], [r.v for r in found["late"]]


class TestSort:
    def test_equal_times_keep_their_order(self):
        assert out(at(3, 1, 2, 1, 3).sort(slack=10)) == [(1, 1), (1, 3), (2, 2), (3, 0), (3, 4)]

    def test_rows_wait_until_the_watermark_is_the_slack_past_them(self):
        engine = started(at(0).sort(slack=2).sink("out"))
        released = []
        for time in (5, 4, 6, 7, 9):
            feed(engine, "in", {"t": time, "v": 0})
            released.append([row.t for row in engine.results["out"]])
        assert released == [[], [], [4], [4, 5], [4, 5, 6, 7]]
        engine.end("in")
        assert [row.t for row in engine.results["out"]] == [4, 5, 6, 7, 9]

    def test_a_row_exactly_the_slack_behind_is_in_time_and_in_order(self):
        """It may follow the rows of its own time, which have left, but no later one, which has not."""
        assert sorted_and_late(at(10, 6, 5), slack=5) == ([2, 1, 0], [])

    def test_a_row_further_behind_is_late(self):
        assert sorted_and_late(at(10, 4, 5), slack=5) == ([2, 0], [1])

    def test_the_slack_of_the_source_counts_too(self):
        assert sorted_and_late(at(10, 6, 5, 4, slack=5)) == ([2, 1, 0], [3])

    def test_marks_behind_a_sorter_are_as_late_as_its_rows(self):
        """The window below must stay open for rows that are still held back."""
        windows = at(1, 12, 8, 9, 25).sort(slack=5).window(10).count()
        windows.late.sink("late")
        assert run(windows.sink("out")) == {"out": [(0, 10, 3), (10, 20, 1), (20, 30, 1)], "late": []}

    @given(st.lists(st.integers(0, 30), min_size=1), st.integers(0, 10), st.integers(0, 10))
    def test_any_times(self, times, slack, source_slack):
        late = [n for n, t in enumerate(times) if max(times[: n + 1]) - source_slack > t + slack]
        rest = sorted((n for n in range(len(times)) if n not in late), key=lambda n: (times[n], n))
        assert sorted_and_late(at(*times, slack=source_slack), slack) == (rest, late)


def merged(sequence, names=("a", "b"), **options):
    flow = Flow("f")
    streams = [flow.source(n, read.items([], schema={"t": int, "n": int}), time="t", **options) for n in names]
    return [row.n for row in run(streams[0].merge(*streams[1:], by="t").sink("out"), sequence)["out"]]


class TestMerge:
    def test_by_time_then_by_arrival(self):
        sequence = [("a", 1), ("a", 5), ("b", 2), ("a", 9), ("b", 5), ("b", 7)]
        rows = [(source, {"t": t, "n": n}) for n, (source, t) in enumerate(sequence)]
        assert merged(rows) == [0, 2, 1, 4, 5, 3]

    def test_a_silent_source_holds_all_back_until_it_ends(self):
        flow = Flow("f")
        a, b = (flow.source(n, read.items([], schema={"t": int}), time="t") for n in "ab")
        engine = started(a.merge(b, by="t").sink("out"))
        feed(engine, "a", {"t": 1}, {"t": 2})
        engine.end("a")
        assert engine.results["out"] == []
        feed(engine, "b", {"t": 1})
        assert engine.results["out"] == [(1,), (1,)]
        engine.end("b")
        assert engine.results["out"] == [(1,), (1,), (2,)]

    def test_late_rows(self):
        flow = Flow("f")
        a, b = (flow.source(n, read.items([], schema={"t": int}), time="t") for n in "ab")
        stream = a.merge(b, by="t", name="m")
        stream.late.sink("late")
        rows = [("a", {"t": 5}), ("b", {"t": 6}), ("a", {"t": 4}), ("a", {"t": 7})]
        assert run(stream.sink("out"), rows) == {"out": [(5,), (6,), (7,)], "late": [(4,)]}

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=20))
    def test_sources_that_are_in_order_are_merged_whole(self, drawn):
        clocks = {"a": 0, "b": 0, "c": 0}
        rows = []
        for number, (source, step) in enumerate(drawn):
            clocks[source] += step
            rows.append((source, {"t": clocks[source], "n": number}))
        expected = sorted(range(len(rows)), key=lambda n: (rows[n][1]["t"], n))
        assert merged(rows, "abc") == expected


@pytest.mark.parametrize("slack", [0, 3])
def test_no_rows(slack):
    assert out(at(1).filter(lambda _: False).sort(slack=slack)) == []
