"""Keyed state with a time to live."""

from __future__ import annotations

from typing import Any

from penstock.flow.pipes import count_window
from penstock.operators import aggregates as agg
from penstock.operators.process import Process, ProcessContext

from .cases import UNEVEN, Sources, case, events, two

SPARSE = events(40, keys=6, disorder=3, step=4)


def nth(count: int, row: Any) -> tuple[int, tuple[int, int]]:
    """Number the rows of a key."""
    return count + 1, (row.t, count + 1)


class Remind(Process):
    """Number rows, say so some time after, and at the end."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(context.time + 4)
        context.emit(("row", context.key, row.t, context.state))

    on_left = on_row

    def on_right(self, row: Any, context: ProcessContext) -> None:
        context.emit(("right", context.key, row.t, context.state))

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("timer", context.key, time, context.state))

    def on_end(self, context: ProcessContext) -> None:
        context.emit(("end", context.key, context.time, context.state))


@case(
    [{"t": t, "k": 0, "v": 0} for t in (0, 5, 14, 24, 30, 41)],
    (1, 2),
    expects=[(0, 1), (5, 2), (14, 3), (24, 1), (30, 2), (41, 1)],
)
def scan_forgets(s: Sources) -> None:
    s(time="t").key_by("k").scan(nth, 0, ttl=10).sink("out")


@case(SPARSE)
def scan_that_forgets_with_slack(s: Sources) -> None:
    s(time="t", slack=3).key_by("k").scan(nth, 0, ttl=7).sink("out")


@case(SPARSE)
def flat_scan_that_forgets(s: Sources) -> None:
    def repeat(count: int, row: Any) -> tuple[int, list[Any]]:
        return count + 1, [(row.t, count)] * (count % 3)

    s(time="t", slack=2).key_by("k").flat_scan(repeat, 0, ttl=9).sink("out")


@case(SPARSE)
def reduce_that_forgets(s: Sources) -> None:
    s(time="t").map(lambda row: {"t": row.t, "k": row.k, "v": row.v}, schema={"t": int, "k": int, "v": int}).key_by(
        "k"
    ).reduce(lambda one, two: (two[0], two[1], one[2] + two[2]), ttl=6).sink("out")


@case(SPARSE)
def aggregate_that_forgets(s: Sources) -> None:
    s(time="t", slack=1).key_by("k").aggregate(n=agg.count(), v=agg.sum("v"), ttl=40).sink("out")


@case(SPARSE)
def state_of_the_whole_stream_that_is_forgotten(s: Sources) -> None:
    s(time="t").scan(nth, 0, ttl=2).sink("out")


@case(SPARSE)
def process_that_forgets(s: Sources) -> None:
    s(time="t", slack=2).key_by("k").process(Remind, ttl=6).sink("out")


@case(SPARSE)
def process_whose_timers_are_just_when_it_forgets(s: Sources) -> None:
    s(time="t").key_by("k").process(Remind, ttl=4).sink("out")


@case(two(18, disorder=4), UNEVEN)
def connected_streams_that_forget(s: Sources) -> None:
    s("a", time="t", slack=2).key_by("k").connect(s("b", time="t").key_by("k"), Remind, ttl=5).sink("out")


@case(SPARSE)
def the_first_of_rows_that_are_alike(s: Sources) -> None:
    stream = s(time="t", slack=2)
    stream.distinct("k", "v").sink("for ever")
    stream.distinct("k", within=9).sink("within")
    stream.distinct().sink("whole rows")


@case(SPARSE)
def count_windows_that_are_forgotten(s: Sources) -> None:
    windows = s(time="t", slack=2).key_by("k").window(count_window(3, ttl=6))
    windows.aggregate(n=agg.count(), v=agg.sum("v")).sink("out")
