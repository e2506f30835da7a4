"""Windows."""

from __future__ import annotations

import datetime as dt

from penstock.operators import aggregates as agg
from penstock.operators.windows import Count, Session, Sliding, Tumbling

from .cases import EVENTS, MESSY, MOMENTS, UNEVEN, Sources, case, events, two
from .state import Summary


@case(MESSY)
def tumbling_by_key(s: Sources) -> None:
    s(time="t", slack=5).key_by("k").window(10).aggregate(n=agg.count(), rows=agg.collect("v")).sink("out")


@case([{"t": t} for t in (-11, -3, 4, 5, 14)], (2, 1), expects=[(-15, -5, 1), (-5, 5, 2), (5, 15, 2)])
def tumbling_of_the_whole_stream_with_offset(s: Sources) -> None:
    s(time="t").window(Tumbling(10, offset=5)).count().sink("out")


@case(MESSY)
def sliding_by_key(s: Sources) -> None:
    s(time="t", slack=4).key_by("k").window(Sliding(10, 4)).aggregate(rows=agg.collect("v")).sink("out")


@case([{"t": t} for t in (0, 4, 7, 12)], (1, 1), expects=[(-5, 5, 2), (0, 10, 3), (5, 15, 2), (10, 20, 1)])
def sliding_of_the_whole_stream(s: Sources) -> None:
    s(time="t").window(Sliding(10, 5)).count().sink("out")


@case(MESSY)
def sessions_by_key(s: Sources) -> None:
    s(time="t", slack=4).key_by("k").window(Session(5)).aggregate(rows=agg.collect("t")).sink("out")


@case([{"t": t} for t in (0, 8, 4, 20)], (1, 1, 1), expects=[(0, 13, 3), (20, 25, 1)])
def sessions_of_the_whole_stream_that_become_one(s: Sources) -> None:
    s(time="t", slack=9).window(Session(5)).count().sink("out")


@case(EVENTS)
def count_windows_by_key(s: Sources) -> None:
    s(time="t").key_by("k").window(Count(4)).aggregate(rows=agg.collect("v")).sink("out")


@case(list(range(7)), (2, 3), expects=[(0, [0, 1, 2]), (1, [3, 4, 5]), (2, [6])])
def count_windows_of_the_whole_stream(s: Sources) -> None:
    s().window(Count(3)).aggregate(rows=agg.collect("value")).sink("out")


@case(MESSY)
def late_rows_of_windows(s: Sources) -> None:
    stream = s(time="t", slack=1)
    for name, spec in {"tumbling": Tumbling(5), "sliding": Sliding(6, 3), "session": Session(3)}.items():
        window = stream.key_by("k").window(spec).count(name=name)
        window.sink(f"{name} out")
        window.late.sink(f"{name} late")


@case(MESSY)
def windows_reduced_and_applied(s: Sources) -> None:
    stream = s(time="t", slack=8)
    stream.key_by("k").window(7).reduce(lambda a, b: a if a.v > b.v else b).sink("reduced")
    stream.window(7).apply(lambda w, rows: (w.start, w.end, [r.v for r in rows])).sink("applied")
    stream.key_by("k").window(Session(4)).apply(
        lambda w, rows: {"k": w.key, "n": len(rows)}, schema={"k": int, "n": int}
    ).sink("sessions out")


@case(
    [{"t": t, "k": k} for t, k in [(5, "z"), (3, "a"), (14, "a"), (12, "q"), (4, "z"), (8, "m"), (99, "x")]],
    (2, 2),
    expects=[("z", 0, 10, 2), ("a", 0, 10, 1), ("m", 0, 10, 1), ("a", 10, 20, 1), ("q", 10, 20, 1), ("x", 90, 100, 1)],
)
def many_keys_closing_at_one_mark(s: Sources) -> None:
    s(time="t", slack=20).key_by("k").window(10).count().sink("out")


@case(events(60, seed=9, keys=20, step=1), (7, 30))
def many_keys_and_many_marks(s: Sources) -> None:
    s(time="t").key_by("k").window(Sliding(6, 2)).count().sink("out")


@case(MESSY)
def nested_windows(s: Sources) -> None:
    inner = s(time="t", slack=6).key_by("k").window(4).aggregate(n=agg.count())
    inner.window(12).aggregate(windows=agg.count(), rows=agg.sum("n")).sink("out")


@case(MESSY)
def sessions_of_sliding_windows_by_another_key(s: Sources) -> None:
    inner = s(time="t", slack=6).key_by("k").window(Sliding(6, 3)).aggregate(n=agg.count())
    inner.key_by("n").window(Session(4)).aggregate(ends=agg.collect("window_end")).sink("out")


@case(MESSY)
def windows_in_the_branches_of_a_fan_out(s: Sources) -> None:
    stream = s(time="t", slack=4)
    large = stream.key_by("k").window(12).aggregate(n=agg.count()).map(lambda w: ("large", w.k, w.window_end, w.n))
    small = stream.window(5).count().map(lambda w: ("small", w.window_end, w.count))
    rows = stream.map(lambda r: ("row", r.t))
    large.union(rows, small).sink("out")


@case(MESSY)
def a_window_below_branches_with_windows(s: Sources) -> None:
    stream = s(time="t", slack=4)
    small = stream.window(3).aggregate(n=agg.count())
    sessions = stream.key_by("k").window(Session(3)).aggregate(n=agg.count()).select("window_start", "window_end", "n")
    small.union(sessions).window(9).aggregate(pieces=agg.count(), rows=agg.sum("n")).sink("out")


@case(two(20, disorder=3), UNEVEN)
def windows_over_two_sources(s: Sources) -> None:
    both = s("a", time="t", slack=2).union(s("b", time="t"))
    window = both.key_by("k").window(8).aggregate(rows=agg.collect("v"))
    window.late.sink("late")
    window.sink("out")


@case(EVENTS)
def count_windows_then_time_windows(s: Sources) -> None:
    """What is left at the end belongs to the last time window, not to one that never closes."""
    counts = s(time="t").key_by("k").window(Count(3)).aggregate(n=agg.count())
    window = counts.window(10).aggregate(n=agg.count())
    window.late.sink("late")
    window.sink("out")


@case(EVENTS)
def a_process_that_emits_at_the_end_into_windows(s: Sources) -> None:
    ends = s(time="t").key_by("k").process(Summary)
    ends.window(10).aggregate(kinds=agg.collect(lambda e: e[0])).sink("out")


@case(MOMENTS, (2, 2))
def timestamps_and_durations(s: Sources) -> None:
    stream = s(time="at", slack="3 min")
    stream.key_by("k").window("10 min").count().sink("out")
    stream.window(Session(dt.timedelta(minutes=2))).count().sink("sessions out")
    stream.sort(slack="1 min").sink("sorted")


@case([{"on": dt.date(2024, 1, day)} for day in (1, 1, 2, 9)], (1,))
def dates_as_times(s: Sources) -> None:
    s(time="on").window("1 week").count().sink("out")
