"""A class of the user's own: state, timers, the end, for each key or for the whole stream."""

import datetime as dt

import pytest

from penstock import read
from penstock.flow import Flow
from penstock.operators import aggregates as agg
from penstock.operators.process import Process

from ..running import numbers, out, records, run, started


def events(*pairs, **options):
    """Rows of (time, key)."""
    return records([{"t": t, "k": k} for t, k in pairs], **options)


class Idle(Process):
    """Say so when a key has been silent for ten."""

    def on_row(self, row, context):
        if context.state is not None:
            context.cancel_timer(context.state + 10)
        context.state = row.t
        context.set_timer(row.t + 10)

    def on_timer(self, time, context):
        context.emit((context.key, time, context.time))
        context.state = None


class Log(Process):
    """Emit everything that happens."""

    def on_row(self, row, context):
        context.state = (context.state or 0) + 1
        context.emit(("row", context.key, context.time, context.watermark))

    def on_end(self, context):
        context.emit(("end", context.key, context.state, context.time))


class TestTimers:
    def test_fire_when_the_watermark_reaches_them_before_the_row_that_raised_it(self):
        stream = events((0, "a"), (5, "a"), (14, "b"), (15, "b"), (40, "c"))
        assert out(stream.key_by("k").process(Idle)) == [("a", 15, 15), ("b", 25, 25), ("c", 50, 50)]

    def test_fire_by_time_then_by_the_row_that_opened_the_key(self):
        stream = events((3, "z"), (1, "a"), (2, "m"), (3, "b"), slack=5)
        assert [key for key, *_ in out(stream.key_by("k").process(Idle))] == ["a", "m", "z", "b"]

    def test_of_the_past_fire_at_the_next_mark(self):
        class Past(Process):
            def on_row(self, row, context):
                context.emit(("row", row.t))
                context.state = row.t
                context.set_timer(row.t - 100)

            def on_timer(self, time, context):
                context.emit(("timer", time))

        assert out(events((5, "a"), (5, "a"), (8, "b")).process(Past)) == [
            ("row", 5),
            ("row", 5),
            ("timer", 6),
            ("row", 8),
            ("timer", 9),
        ]

    def test_are_cancelled_by_what_set_timer_returns_even_where_the_time_has_passed(self):
        class Moved(Process):
            """Keep one timer: that of the last row."""

            def on_row(self, row, context):
                if context.state is not None:
                    context.cancel_timer(context.state)
                context.state = context.set_timer(row.t - 100)

            def on_timer(self, time, context):
                context.emit((time, context.state))
                context.state = None

        # Both rows at 5 ask for a time that has passed; the second takes back what the first has asked for.
        assert out(events((5, "a"), (5, "a"), (8, "b"), (8, "b")).process(Moved)) == [(6, 6), (9, 9)]

        class Withdrawn(Moved):
            def on_row(self, row, context):
                context.cancel_timer(context.set_timer(row.t - 100))
                context.cancel_timer(context.set_timer(row.t + 100))

        assert out(events((5, "a"), (5, "a"), (8, "b")).process(Withdrawn)) == []

    @pytest.mark.parametrize("zone", [None, dt.UTC])
    def test_tell_when_they_fire_as_the_time_field_is_and_none_after_the_end(self, zone):
        class Told(Process):
            def on_row(self, row, context):
                context.state = [context.set_timer(row.at - dt.timedelta(days=1))]

            def on_timer(self, time, context):
                assert time == context.state[0]
                context.emit((time, context.watermark, context.set_timer(time)))

        noon = dt.datetime(2024, 1, 1, 12, tzinfo=zone)
        tick = dt.timedelta(microseconds=1)
        stream = Flow("f").source("in", read.items([{"at": noon}, {"at": noon + tick}]), time="at")
        assert out(stream.process(Told)) == [
            (noon + tick, noon + tick, noon + 2 * tick),
            (noon + 2 * tick, dt.datetime.max.replace(tzinfo=zone), None),
        ]

    def test_of_one_time_fire_once(self):
        class Twice(Process):
            def on_row(self, row, context):
                context.state = row
                context.set_timer(10)
                context.set_timer(10)

            def on_timer(self, time, context):
                context.emit(time)

        assert out(events((1, "a"), (2, "a")).process(Twice)) == [10]

    def test_can_be_set_again_by_a_timer(self):
        class Every(Process):
            def on_row(self, row, context):
                if context.state is None:
                    context.state = row.t
                    context.set_timer(row.t + 5)

            def on_timer(self, time, context):
                context.emit(time)
                context.set_timer(time + 5)

        # At the end the last timer fires, and what it sets will never be due.
        assert out(events((0, "a"), (4, "a"), (6, "a"), (11, "a")).process(Every)) == [5, 10, 15]

    def test_keep_a_key_whose_state_is_none(self):
        class Later(Process):
            def on_row(self, row, context):
                context.set_timer(row.t + 1)

            def on_timer(self, time, context):
                context.emit((context.key, time))

        engine = started(events((1, "a"), (1, "b")).key_by("k").process(Later, name="p").sink("out"))
        for row in events((1, "a"), (1, "b")).node.operator.reader.items:
            engine.row("in", engine.plan.nodes["in"].types[0].roundtrip(row))
        assert set(engine.state("p")) == {"a", "b"}
        engine.end("in")
        assert engine.results["out"] == [("a", 2), ("b", 2)]
        assert engine.state("p") == {}

    def test_are_shown_as_the_time_field_is(self):
        class Remind(Process):
            def on_row(self, row, context):
                context.state = row
                context.set_timer(row.at + dt.timedelta(hours=1))

            def on_timer(self, time, context):
                context.emit(time)

        noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
        stream = Flow("f").source("in", read.items([{"at": noon}]), time="at")
        assert out(stream.process(Remind)) == [noon + dt.timedelta(hours=1)]

    def test_without_event_time_fire_at_the_end(self):
        class Flush(Process):
            def on_row(self, row, context):
                context.state = (context.state or 0) + row
                context.set_timer(1)

            def on_timer(self, time, context):
                context.emit(context.state)

        assert out(numbers([1, 2, 3]).process(Flush)) == [6]


class TestEnd:
    def test_runs_once_for_each_key_in_the_order_of_their_opening(self):
        found = out(events((1, "b"), (2, "a"), (2, "b")).key_by("k").process(Log))
        assert found == [
            ("row", "b", 1, 1),
            ("row", "a", 2, 2),
            ("row", "b", 2, 2),
            ("end", "b", 2, 2),
            ("end", "a", 1, 2),
        ]

    def test_does_not_run_when_the_flow_is_stopped(self):
        assert len(run(events((1, "b")).process(Log).sink("out"), end=False)["out"]) == 1

    def test_comes_behind_all_timers(self):
        class Both(Process):
            def on_row(self, row, context):
                context.state = row.t
                context.set_timer(row.t + 1000)

            def on_timer(self, time, context):
                context.emit(("timer", time))

            def on_end(self, context):
                context.emit(("end", context.time))

        assert out(events((1, "b"), (7, "a")).key_by("k").process(Both)) == [
            ("timer", 1001),
            ("timer", 1007),
            ("end", 1001),
            ("end", 1007),
        ]

    def test_rows_of_the_end_are_not_late_below(self):
        class Total(Process):
            def on_row(self, row, context):
                context.state = (context.state or 0) + 1

            def on_end(self, context):
                context.emit((context.key, context.state))

        totals = events((1, "a"), (2, "b"), (57, "b")).key_by("k").process(Total)
        windows = totals.window(10).aggregate(n=agg.count())
        windows.late.sink("late")
        assert run(windows.sink("out")) == {"out": [(50, 60, 2)], "late": []}
        assert out(events((1, "a"), (2, "b"), (57, "b")).key_by("k").process(Total).sort(slack=5)) == [
            ("a", 1),
            ("b", 2),
        ]

    def test_a_key_that_was_forgotten_has_no_end(self):
        class Forget(Log):
            def on_row(self, row, context):
                context.state = None if row.k == "a" else 1

        assert out(events((1, "a"), (2, "b")).key_by("k").process(Forget)) == [("end", "b", 1, 2)]

    def test_keys_that_are_forgotten_leave_nothing_behind(self):
        class Pass(Log):
            def on_row(self, row, context):
                context.emit(row.k)

        engine = started(events((1, "a")).key_by("k").process(Pass, name="p").sink("out"))
        for n in range(5):
            engine.row("in", engine.plan.nodes["in"].types[0].roundtrip({"t": n, "k": "a"}))
        assert engine.state("p") == {}
        assert engine._keyed["p"].timers == []


class TestContext:
    def test_watermark_is_none_before_the_first(self):
        assert out(numbers([7]).process(Log)) == [("row", None, 0, None), ("end", None, 1, 0)]

    def test_declared_rows_become_records(self):
        class Named(Process):
            def on_row(self, row, context):
                context.emit({"b": row.k, "a": row.t})

        stream = events((1, "x")).process(Named, schema={"a": int, "b": str})
        assert out(stream.map(lambda row: (row.a, row.b))) == [(1, "x")]


class Within(Process):
    """Tell of orders that are paid, and of those that are not paid within ten."""

    def on_left(self, row, context):
        context.state = (context.state or ()) + (row.v,)
        context.set_timer(context.time + 10)
        context.emit(("order", context.key, context.state))

    def on_right(self, row, context):
        context.emit(("paid", context.key, context.state))
        context.state = None

    def on_timer(self, time, context):
        if context.state is not None:
            context.emit(("unpaid", context.key, time))

    def on_end(self, context):
        context.emit(("end", context.key, context.state))


def connected(**options):
    flow = Flow("f")
    kind = {"t": int, "k": str, "v": int}
    left, right = (flow.source(name, read.items([], schema=kind), time="t") for name in ("L", "R"))
    return left.key_by("k").connect(right.key_by("k"), Within, **options)


def given(side, t, k, v=0):
    return side, {"t": t, "k": k, "v": v}


class TestConnected:
    def test_one_state_and_a_handler_for_each_side(self):
        sequence = [given("L", 1, "a", 1), given("R", 2, "b"), given("L", 3, "a", 2), given("R", 3, "a")]
        assert run(connected().sink("out"), sequence)["out"] == [
            ("order", "a", (1,)),
            ("paid", "b", None),
            ("order", "a", (1, 2)),
            ("paid", "a", (1, 2)),
        ]

    def test_timers_fire_by_the_slower_side(self):
        sequence = [given("L", 1, "a", 1), given("R", 30, "b"), given("L", 11, "c", 2), given("R", 31, "a")]
        assert run(connected().sink("out"), sequence)["out"] == [
            ("order", "a", (1,)),
            ("paid", "b", None),
            ("unpaid", "a", 11),
            ("order", "c", (2,)),
            ("paid", "a", (1,)),
            ("unpaid", "c", 21),
            ("end", "c", (2,)),
        ]

    def test_keys_of_other_names(self):
        flow = Flow("f")
        left = flow.source("L", [{"t": 1, "k": "a", "v": 1}], time="t")
        right = flow.source("R", [{"t": 2, "who": "a"}], time="t")
        made = left.key_by("k").connect(right.key_by("who"), Within)
        assert run(made.sink("out"))["out"] == [("order", "a", (1,)), ("paid", "a", (1,))]
