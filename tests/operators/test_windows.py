"""Windows: what is inside, when they close, in which order, and what comes too late."""

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.operators import aggregates as agg
from penstock.operators.windows import Count, Session, Sliding, Tumbling

from ..running import feed, out, records, run, started


def at(*times, **options):
    """A stream of rows at these times; v numbers them."""
    return records([{"t": t, "v": i} for i, t in enumerate(times)], **options)


def collected(stream, spec):
    """Return (start, end, numbers of the rows) of each window in the order in which they close."""
    return [tuple(row) for row in out(stream.window(spec).aggregate(rows=agg.collect("v")))]


class TestTumbling:
    def test_closes_when_the_watermark_reaches_its_end(self):
        stream = at(0)
        engine = started(stream.window(10).count().sink("out"))
        feed(engine, "in", {"t": 0, "v": 0}, {"t": 9, "v": 0})
        assert engine.results["out"] == []
        feed(engine, "in", {"t": 10, "v": 0})
        assert engine.results["out"] == [(0, 10, 2)]
        engine.end("in")
        assert engine.results["out"] == [(0, 10, 2), (10, 20, 1)]

    def test_a_stop_is_no_end(self):
        assert run(at(0, 12).window(10).count().sink("out"), end=False)["out"] == [(0, 10, 1)]

    def test_offsets_and_negative_times(self):
        assert collected(at(-11, -10, -1, 0, 9, 10), 10) == [
            (-20, -10, [0]),
            (-10, 0, [1, 2]),
            (0, 10, [3, 4]),
            (10, 20, [5]),
        ]
        assert collected(at(-8, 2, 3, 12), Tumbling(10, offset=3)) == [
            (-17, -7, [0]),
            (-7, 3, [1]),
            (3, 13, [2, 3]),
        ]

    def test_slack_waits(self):
        assert collected(at(1, 12, 5, 20, slack=8), 10) == [(0, 10, [0, 2]), (10, 20, [1]), (20, 30, [3])]

    def test_late_rows_leave_on_their_own_port(self):
        window = at(1, 12, 9, 11).window(10).count()
        window.late.sink("late")
        assert run(window.sink("out")) == {"out": [(0, 10, 1), (10, 20, 2)], "late": [(9, 2)]}

    def test_timestamps(self):
        moments = [dt.datetime(2024, 1, 1, 0, m, tzinfo=dt.UTC) for m in (3, 9, 11)]
        stream = Flow("f").source("in", read.items([{"at": m} for m in moments]), time="at")
        hour = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
        minutes = [hour + dt.timedelta(minutes=m) for m in (0, 10, 20)]
        assert out(stream.window("10 min").count()) == [
            (minutes[0], minutes[1], 2),
            (minutes[1], minutes[2], 1),
        ]

    def test_dates(self):
        stream = Flow("f").source("in", read.items([{"on": dt.date(2024, 1, d)} for d in (1, 1, 2)]), time="on")
        days = [dt.datetime(2024, 1, d, tzinfo=dt.UTC) for d in (1, 2, 3)]
        assert out(stream.window("1 day").count()) == [(days[0], days[1], 2), (days[1], days[2], 1)]

    @given(st.lists(st.integers(-30, 30), min_size=1), st.integers(1, 12), st.integers(-5, 5), st.integers(0, 20))
    def test_any_times_size_offset_and_slack(self, times, size, offset, slack):
        """A window has the rows of its span that came before a row `slack` behind its end."""
        expected, late = {}, []
        for number, time in enumerate(times):
            start = (time - offset) // size * size + offset
            highest = max(times[: number + 1])
            if highest - slack >= start + size:
                late.append((time, number))
            else:
                expected.setdefault((start, start + size), []).append(number)
        window = at(*times, slack=slack).window(Tumbling(size, offset)).aggregate(rows=agg.collect("v"))
        window.late.sink("late")
        found = run(window.sink("out"))
        assert [tuple(row) for row in found["out"]] == [(*span, expected[span]) for span in sorted(expected)]
        assert found["late"] == late


class TestSliding:
    def test_a_row_is_in_each_window_over_its_time(self):
        assert collected(at(0, 4, 7), Sliding(10, 5)) == [(-5, 5, [0, 1]), (0, 10, [0, 1, 2]), (5, 15, [2])]

    def test_a_size_that_is_no_multiple(self):
        assert collected(at(0), Sliding(10, 4)) == [(-8, 2, [0]), (-4, 6, [0]), (0, 10, [0])]

    def test_offset(self):
        assert collected(at(0), Sliding(4, 2, offset=1)) == [(-3, 1, [0]), (-1, 3, [0])]

    def test_late_only_when_all_windows_have_closed(self):
        window = at(7, 16, 6, 4).window(Sliding(10, 5)).aggregate(rows=agg.collect("v"))
        window.late.sink("late")
        found = run(window.sink("out"))
        # At watermark 16 the windows up to [5, 15) have closed, and 6 was in [0, 10) and [5, 15).
        assert found["late"] == [(6, 2), (4, 3)]
        assert run((w := at(7, 12, 6).window(Sliding(10, 5)).count()).late.sink("late"))["late"] == []
        assert w.node.operator.logic.mark_grid == (5, 0)

    @given(st.lists(st.integers(-20, 20), min_size=1), st.integers(1, 9), st.integers(1, 9), st.integers(-3, 3))
    def test_any_times_size_and_period(self, times, size, every, offset):
        times, every = sorted(times), min(size, every)
        starts = [s for s in range(-60, 60) if (s - offset) % every == 0]
        inside = {s: [n for n, t in enumerate(times) if s <= t < s + size] for s in starts}
        expected = [(s, s + size, inside[s]) for s in starts if inside[s]]
        assert collected(at(*times), Sliding(size, every, offset)) == expected


def sessions(times, gap):
    """Cut sorted (time, number) pairs wherever `gap` or more lies between two."""
    ordered = sorted((time, number) for number, time in enumerate(times))
    found = [[ordered[0]]]
    for before, now in pairwise(ordered):
        if now[0] - before[0] >= gap:
            found.append([])
        found[-1].append(now)
    return [(s[0][0], s[-1][0] + gap, sorted(number for _, number in s)) for s in found]


class TestSession:
    def test_ends_a_gap_behind_its_last_row(self):
        assert collected(at(0, 3, 7, 20), Session(5)) == [(0, 12, [0, 1, 2]), (20, 25, [3])]

    def test_rows_a_gap_apart_are_in_two_sessions_whatever_the_slack(self):
        assert (
            collected(at(0, 5), Session(5)) == collected(at(0, 5, slack=9), Session(5)) == [(0, 5, [0]), (5, 10, [1])]
        )

    def test_a_row_between_two_sessions_joins_them(self):
        """Rows fold in the order in which they came, not in which their sessions were."""
        assert collected(at(0, 8, 1, 4, slack=20), Session(5)) == [(0, 13, [0, 1, 2, 3])]

    def test_an_early_row_moves_the_start(self):
        assert collected(at(10, 7, slack=20), Session(5)) == [(7, 15, [0, 1])]

    def test_late(self):
        window = at(0, 20, 3, 16).window(Session(5)).aggregate(rows=agg.collect("v"))
        window.late.sink("late")
        assert run(window.sink("out")) == {"out": [(0, 5, [0]), (16, 25, [1, 3])], "late": [(3, 2)]}

    def test_other_folds_see_the_same_rows(self):
        window = at(0, 8, 4, slack=20).window(Session(5))
        assert out(window.reduce(lambda _, row: row)) == [(4, 2)]
        window = at(0, 8, 4, slack=20).window(Session(5))
        assert out(window.apply(lambda window, rows: (window.start, window.end, len(rows)))) == [(0, 13, 3)]

    @given(st.lists(st.integers(-30, 30), min_size=1), st.integers(1, 8))
    def test_any_order_of_arrival(self, times, gap):
        found = collected(at(*times, slack=1000), Session(gap))
        assert found == sorted(sessions(times, gap), key=lambda session: session[1])


class TestCount:
    def test_every_n_rows_and_the_rest_at_the_end(self):
        rows = at(*range(5)).window(Count(2)).aggregate(rows=agg.collect("v"))
        assert out(rows) == [(0, [0, 1]), (1, [2, 3]), (2, [4])]

    def test_nothing_is_left_after_a_full_window(self):
        assert out(at(0, 1).window(Count(2)).count()) == [(0, 2)]

    def test_needs_no_time(self):
        assert out(at(0, 1, 2, time=None).window(Count(2)).count()) == [(0, 2), (1, 1)]

    def test_keys_are_numbered_each_and_close_in_the_order_of_their_opening(self):
        rows = [{"k": k} for k in "abbacb"]
        found = out(records(rows, time=None).key_by("k").window(Count(2)).count())
        assert found == [("b", 0, 2), ("a", 0, 2), ("c", 0, 1), ("b", 1, 1)]

    def test_what_is_left_at_the_end_has_the_time_of_the_end(self):
        """Otherwise a window below would call it late, or never close."""
        stream = records([{"k": k, "t": t} for t, k in enumerate("aaabbbb")])
        counts = stream.key_by("k").window(Count(3)).count()
        # a closes at 2, b at 5, and the fourth b is left over at 6.
        windows = counts.window(4).aggregate(n=agg.count())
        windows.late.sink("late")
        assert run(windows.sink("out")) == {"out": [(0, 4, 1), (4, 8, 2)], "late": []}

    def test_a_key_that_was_silent_is_not_late_at_the_end(self):
        stream = records([{"k": k, "t": t} for k, t in [("a", 0), ("b", 50), ("b", 51)]])
        windows = stream.key_by("k").window(Count(2)).count().window(10).aggregate(n=agg.count())
        assert out(windows) == [(50, 60, 2)]


class TestKeysAndFolds:
    def test_many_keys_that_close_at_one_mark_come_by_end_then_by_opening_row(self):
        rows = [{"t": t, "k": k} for t, k in [(3, "z"), (1, "a"), (2, "m"), (0, "z"), (12, "m"), (11, "b"), (40, "q")]]
        found = out(records(rows, slack=10).key_by("k").window(10).count())
        first, second = (
            [("z", 0, 10, 2), ("a", 0, 10, 1), ("m", 0, 10, 1)],
            [("m", 10, 20, 1), ("b", 10, 20, 1)],
        )
        assert found == [*first, *second, ("q", 40, 50, 1)]

    def test_sessions_of_many_keys_come_by_end(self):
        rows = [{"t": t, "k": k} for t, k in [(0, "a"), (1, "b"), (2, "a"), (3, "c"), (50, "x")]]
        found = out(records(rows).key_by("k").window(Session(5)).count())
        assert found == [("b", 1, 6, 1), ("a", 0, 7, 2), ("c", 3, 8, 1), ("x", 50, 55, 1)]

    def test_each_fold(self):
        def stream():
            return at(1, 4, 12).window(10)

        assert out(stream().count()) == [(0, 10, 2), (10, 20, 1)]
        assert out(stream().sum("v")) == [(0, 10, 1), (10, 20, 2)]
        assert out(stream().min("v")) == [(0, 10, 0), (10, 20, 2)]
        assert out(stream().max("v")) == [(0, 10, 1), (10, 20, 2)]
        assert out(stream().mean("v")) == [(0, 10, 0.5), (10, 20, 2.0)]
        assert out(stream().reduce(lambda _, row: row)) == [(4, 1), (12, 2)]
        assert out(stream().apply(lambda w, rows: (w.key, w.start, len(rows)))) == [
            (None, 0, 2),
            (None, 10, 1),
        ]

    def test_apply_with_a_schema_gives_records(self):
        stream = at(1, 4).window(10).apply(lambda _, rows: {"n": len(rows)}, schema={"n": int})
        assert out(stream.map(lambda row: row.n)) == [2]

    def test_apply_gets_the_key(self):
        rows = [{"t": 1, "k": "a"}, {"t": 1, "k": "b"}]
        assert out(records(rows).key_by("k").window(5).apply(lambda w, _: w.key)) == ["a", "b"]

    def test_nested_windows_get_what_closes_at_one_mark_and_at_the_end(self):
        stream = at(0, 1, 5, 6, 7, 12, 31)
        inner = stream.window(5).count()
        assert out(inner.window(10).aggregate(n=agg.count(), rows=agg.sum("count"))) == [
            (0, 10, 2, 5),
            (10, 20, 1, 1),
            (30, 40, 1, 1),
        ]

    @pytest.mark.parametrize("spec", [Tumbling(10), Sliding(10, 5), Session(5), Count(2)], ids=str)
    def test_no_rows_no_windows(self, spec):
        assert out(at(0).filter(lambda _: False).window(spec).count()) == []
