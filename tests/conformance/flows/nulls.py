"""Nulls, NaN, times without a zone, decimals and numbers that are too large."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock import read
from penstock.flow import Stream, operate
from penstock.operators import aggregates as agg
from penstock.operators import library
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Count, Session, Sliding

from .cases import Sources, case

NAN = math.nan
HALF = {"t": pa.int64(), "k": pa.float64(), "v": pa.int64()}


def typed(s: Sources, name: str, schema: dict[str, Any], **options: Any) -> Stream:
    """Add a source whose rows have a schema."""
    return s.flow.source(name, read.items(s.rows[name], schema=schema), **options)


def sides(left: Any, right: Any) -> tuple[Any, Any]:
    return (left and left.v, right and right.v)


# Keys -------------------------------------------------------------------------------------------------------------

MAYBE = {
    "a": [
        {"t": 1, "k": None, "v": 1},
        {"t": 2, "k": 1, "v": 2},
        {"t": 3, "k": None, "v": 3},
        {"t": 25, "k": 2, "v": 4},
    ],
    "b": [{"t": 1, "k": None, "v": 10}, {"t": 3, "k": 1, "v": 20}, {"t": 25, "k": 9, "v": 30}],
}


def joined_on(s: Sources, how: Any, *key: str) -> None:
    left, right = (typed(s, name, {"t": int, "k": int, "v": int}, time="t") for name in ("a", "b"))
    left.key_by(*key).join(right.key_by(*key), 10, sides, how=how).sink("out")


@case(MAYBE, ({"a": 1, "b": 1},), expects=[(2, 20)])
def null_keys_never_join(s: Sources) -> None:
    joined_on(s, "inner", "k")


@case(MAYBE, ({"a": 1, "b": 1},), expects=[(2, 20), (1, None), (None, 10), (3, None), (None, 30), (4, None)])
def null_keys_in_an_outer_join_are_alone(s: Sources) -> None:
    joined_on(s, "outer", "k")


@case(MAYBE, ({"a": 2, "b": 1},))
def null_keys_in_a_left_join_are_alone(s: Sources) -> None:
    joined_on(s, "left", "k")


@case(MAYBE, ({"a": 2, "b": 1},))
def null_keys_in_a_right_join_are_alone(s: Sources) -> None:
    joined_on(s, "right", "k")


@case(
    {
        "a": [{"t": 1, "k": None, "v": 1}, {"t": 2, "k": 1, "v": 2}, {"t": 3, "k": 1, "v": 2}],
        "b": [{"t": 1, "k": None, "v": 1}, {"t": 3, "k": 1, "v": 2}],
    },
    ({"a": 1, "b": 1},),
    expects=[(2, 2), (2, 2)],
)
def a_key_with_a_null_in_it_never_joins(s: Sources) -> None:
    joined_on(s, "inner", "k", "v")


@case(MAYBE, ({"a": 1, "b": 1},), expects=[(2, 20)])
def null_keys_of_a_function_never_join(s: Sources) -> None:
    left, right = (s(name, time="t").map(lambda row: row).key_by(lambda row: row.k) for name in ("a", "b"))
    left.join(right, 10, sides).sink("out")


NUMBERS = {
    "a": [{"t": 1, "k": NAN, "v": 1}, {"t": 2, "k": -0.0, "v": 2}, {"t": 3, "k": None, "v": 3}],
    "b": [{"t": 1, "k": NAN, "v": 10}, {"t": 3, "k": 0.0, "v": 20}, {"t": 4, "k": None, "v": 30}],
}


@case(NUMBERS, ({"a": 1, "b": 1},), expects=[(1, 10), (2, 20)])
def nan_joins_nan_and_both_zeros_are_one(s: Sources) -> None:
    left, right = (typed(s, name, HALF, time="t").key_by("k") for name in ("a", "b"))
    left.join(right, 10, sides).sink("out")


@case(NUMBERS, ({"a": 1, "b": 1},), expects=[(1, 10), (2, 20)])
def the_join_of_the_library_takes_nulls_as_others_do(s: Sources) -> None:
    left, right = (typed(s, name, HALF) for name in ("a", "b"))
    operate(library.Join("k", sides), left, right).sink("out")


@case(
    {"a": [{"k": k} for k in (None, 1.5, NAN)], "b": [{"k": k} for k in (None, 0.5, math.inf, NAN)]},
    ({"a": 1, "b": 1},),
    expects=["a None", "b None", "b 0.5", "a 1.5", "b inf", "a nan", "b nan"],
)
def the_merge_of_the_library_puts_null_first_and_nan_last(s: Sources) -> None:
    left, right = (s(name).map(lambda row, name=name: (name, row.k)) for name in ("a", "b"))
    operate(library.Merge(lambda pair: pair[1]), left, right).map(lambda pair: f"{pair[0]} {pair[1]}").sink("out")


MANY = [{"t": n, "k": [NAN, None, 0.0, -0.0, 1.5][n % 5], "v": n} for n in range(80)]


class Keeper(Process):
    """Emit the number of the key's rows, at each row, at a timer and at the end."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.emit((context.key, context.state))
        context.set_timer(context.time + 9)

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("timer", context.key, time, context.state))

    def on_end(self, context: ProcessContext) -> None:
        context.emit(("end", context.key, context.state))


@case(MANY, (33, 7))
def nan_and_null_are_one_key_each(s: Sources) -> None:
    rows = typed(s, "in", HALF, time="t")
    keyed = rows.key_by("k")
    keyed.aggregate(n=agg.count(), all=agg.sum("v")).sink("running out")
    keyed.scan(lambda n, row: (n + 1, (row.v, n)), 0).sink("scan out")
    keyed.flat_scan(lambda n, row: (n + 1, [(row.v, n)] * 2), 0).sink("flat scan out")
    keyed.reduce(lambda a, b: a.replace(v=a.v + b.v)).sink("reduce out")
    keyed.process(Keeper).sink("process out")
    for name, spec in {"tumbling": 20, "sliding": Sliding(20, 10), "session": Session(9), "count": Count(3)}.items():
        keyed.window(spec).aggregate(n=agg.count(), all=agg.collect("v")).sink(f"{name} out")
    keyed.window(20).apply(lambda window, rows: (window, len(rows))).sink("apply out")
    rows.key_by("k", "v").window(40).count().sink("two fields out")
    rows.key_by(lambda row: (row.v % 2, (row.k,))).window(40).count().sink("nested out")
    rows.key_by("k", ranges=[0.0, 1.0]).window(20).count().sink("ranges out")


@case(
    [{"t": 1, "k": NAN, "v": 1}, {"t": 2, "k": NAN, "v": 2}, {"t": 3, "k": None, "v": 3}, {"t": 4, "k": None, "v": 4}],
    (1, 1, 1),
    expects=[(2,), (2,)],
)
def nan_is_one_group_and_null_another(s: Sources) -> None:
    counts = typed(s, "in", HALF, time="t").key_by("k").window(10).count()
    counts.map(lambda row: {"n": row.count}, schema={"n": int}).sink("out")


# Event times ------------------------------------------------------------------------------------------------------

GAPS: list[Any] = [{"t": t, "k": n % 2} for n, t in enumerate([1, 4, None, 3, 9, None, 12, 2])]


def timed(s: Sources, **options: Any) -> Stream:
    return typed(s, "in", {"t": int, "k": int}, time="t", **options)


@case(GAPS, (1, 3), fails=True)
def a_null_time_fails(s: Sources) -> None:
    timed(s).window(5).count().sink("out")


@case(GAPS, (3, 3), fails=True)
def a_null_time_fails_where_nobody_asks_for_it(s: Sources) -> None:
    timed(s).filter(lambda row: row.k == 0).sink("out")


@case(GAPS, (1, 3), expects={"out": [(0, 5, 3), (5, 10, 1), (10, 15, 1)], "late": [(2, 1)]})
def a_null_time_is_skipped(s: Sources) -> None:
    counts = timed(s, on_error="skip").window(5).count()
    counts.late.sink("late")
    counts.sink("out")


@case(GAPS, (1, 3))
def a_null_time_is_a_dead_letter(s: Sources) -> None:
    rows = timed(s, on_error="dead_letter", slack=3)
    rows.window(5).count().sink("out")
    rows.errors.sink("errors")
    rows.map(lambda row: row.t).union(rows.errors.map(lambda letter: letter.row)).sink("both")
    rows.errors.key_by("operator").aggregate(n=agg.count()).sink("counted")


@case(GAPS, (4, 8))
def a_null_time_with_order_by(s: Sources) -> None:
    rows = timed(s, on_error="dead_letter", order_by="t", on_late="divert")
    rows.window(5).count().sink("out")
    rows.errors.sink("errors")
    rows.late.sink("late")


@case(GAPS, (4, 8), fails=True)
def a_null_time_with_order_by_fails(s: Sources) -> None:
    timed(s, order_by="k", on_late="divert").window(5).count().sink("out")


BEFORE_1970 = dt.datetime(1960, 1, 1)


@case(
    # In order, with both zeros and both NaN alike; then two that are below what came before them.
    [
        {"f": f, "n": n}
        for n, f in enumerate([None, -math.inf, 0.0, -0.0, 0.5, math.inf, NAN, -math.nan, NAN, math.inf, None])
    ],
    (3, 4),
    expects={"out": [0, 1, 2, 3, 4, 5, 6, 7, 8], "late": [9, 10]},
)
def order_by_floats_puts_null_first_and_nan_last(s: Sources) -> None:
    rows = typed(s, "in", {"f": float, "n": int}, order_by="f", on_late="divert")
    rows.map(lambda row: row.n).sink("out")
    rows.late.map(lambda row: row.n).sink("late")


@case(
    [{"at": at, "n": n} for n, at in enumerate([None, BEFORE_1970, None])],
    (),
    expects={"out": [0, 1], "late": [2]},
)
def order_by_times_puts_null_first(s: Sources) -> None:
    rows = typed(s, "in", {"at": pa.timestamp("us"), "n": pa.int64()}, order_by="at", on_late="divert")
    rows.map(lambda row: row.n).sink("out")
    rows.late.map(lambda row: row.n).sink("late")


NOON = dt.datetime(2024, 3, 1, 12)
NAIVE = [{"at": NOON + dt.timedelta(minutes=m), "k": m % 2} for m in [0, 3, 1, 9, 10, 8, 25, *range(30, 70)]]


class Clock(Process):
    """Show the times that a process sees."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.emit((row.at, context.time, context.watermark))
        context.set_timer(context.time + dt.timedelta(minutes=5))

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("timer", time, context.time))


def clocks(rows: Stream) -> None:
    rows.window("10 min").count().sink("tumbling")
    rows.key_by("k").window("10 min").count().sink("keyed")
    rows.key_by("k").window(Session("4 min")).count().sink("sessions")
    rows.window("10 min").apply(lambda window, rows: (window.start, window.end, len(rows))).sink("applied")
    rows.process(Clock).sink("process")
    rows.sort(slack="5 min").sink("sorted")
    rows.key_by("k").join(rows.key_by("k"), "10 min").sink("joined")


@case(NAIVE, (5, 2))
def times_without_a_zone_stay_without_one(s: Sources) -> None:
    clocks(typed(s, "in", {"at": pa.timestamp("us"), "k": pa.int64()}, time="at"))


@case([{**row, "at": row["at"].replace(tzinfo=dt.UTC)} for row in NAIVE], (5, 2))
def times_with_a_zone_keep_it(s: Sources) -> None:
    clocks(typed(s, "in", {"at": dt.datetime, "k": int}, time="at"))


@case([{**row, "at": row["at"].date() + dt.timedelta(days=n // 4)} for n, row in enumerate(NAIVE)], (5, 2))
def dates_are_days_in_utc(s: Sources) -> None:
    rows = s(time="at")
    rows.window("2 days").apply(lambda window, rows: (window.start, window.end, len(rows))).sink("out")
    rows.key_by("k").window("1 day").count().sink("counts")


@case(
    [{"at": NOON, "k": 1}, {"at": NOON + dt.timedelta(minutes=7), "k": 1}],
    (1,),
    expects=[(NOON, NOON + dt.timedelta(minutes=5), 1), (*[NOON + dt.timedelta(minutes=m) for m in (5, 10)], 1)],
)
def a_window_of_times_without_a_zone(s: Sources) -> None:
    s(time="at").window("5 min").count().sink("out")


# Decimals and large numbers ---------------------------------------------------------------------------------------

PRICES = [{"t": n, "k": n % 2, "p": None if n % 7 == 3 else Decimal(n * 37 % 100) / 100} for n in range(60)]
MONEY = {"t": pa.int64(), "k": pa.int64(), "p": pa.decimal128(6, 2)}
OF_MONEY = {"n": agg.count(), "mean": agg.mean("p"), "sum": agg.sum("p"), "low": agg.min("p"), "high": agg.max("p")}


@case(PRICES, (35, 3))
def aggregates_of_decimals(s: Sources) -> None:
    rows = typed(s, "in", MONEY, time="t")
    rows.key_by("k").window(10).aggregate(**OF_MONEY, all=agg.distinct("p")).sink("windows")
    rows.key_by("k").aggregate(**OF_MONEY).sink("running")
    rows.key_by("p").window(20).count().sink("by price")
    rows.map(lambda row: row).key_by(lambda row: row.k).aggregate(**OF_MONEY).sink("untyped")


@case(
    [{"t": n, "k": 0, "p": p} for n, p in enumerate([Decimal("0.01"), Decimal("0.01"), Decimal("0.00"), None])],
    (2,),
    expects=[(0, 0, 10, Decimal("0.006667"), Decimal("0.02"))],
)
def a_mean_of_decimals_has_four_places_more(s: Sources) -> None:
    window = typed(s, "in", MONEY, time="t").key_by("k").window(10)
    window.aggregate(mean=agg.mean("p"), sum=agg.sum("p")).sink("out")


@case([{"t": n, "p": Decimal("12345678901234567890123456789012.34")} for n in range(3)], (2,))
def decimals_of_many_digits_are_added_exactly(s: Sources) -> None:
    rows = typed(s, "in", {"t": pa.int64(), "p": pa.decimal128(38, 2)}, time="t")
    rows.window(10).aggregate(sum=agg.sum("p")).sink("out")


LARGE = [{"t": n, "k": n % 2, "v": 2**62 if n % 10 < 4 else -(2**62)} for n in range(60)]


def summed(s: Sources, windowed: bool, **options: Any) -> Stream:
    rows = typed(s, "in", {"t": int, "k": int, "v": int}, time="t").key_by("k")
    return (rows.window(4) if windowed else rows).aggregate(sum=agg.sum("v"), all=agg.collect("v"), **options)


@case(LARGE, (40, 3), fails=True)
def a_window_sum_that_leaves_its_type_fails(s: Sources) -> None:
    summed(s, True).map(lambda row: row["sum"] % 3).sink("out")


@case(LARGE, (40, 3), fails=True)
def a_running_sum_that_leaves_its_type_fails(s: Sources) -> None:
    summed(s, False).map(lambda row: row["sum"] % 3).sink("out")


@case(LARGE, (40, 3))
def a_window_sum_that_leaves_its_type_is_a_dead_letter(s: Sources) -> None:
    made = summed(s, True, on_error="dead_letter")
    made.errors.sink("errors")
    made.sink("out")


@case(LARGE, (40, 3))
def a_running_sum_that_leaves_its_type_is_a_dead_letter(s: Sources) -> None:
    made = summed(s, False, on_error="dead_letter")
    made.errors.sink("errors")
    made.sink("out")


FLOATS = [{"t": n, "k": n % 3, "f": [1.5, NAN, -0.0, 0.0, None, math.inf, -math.inf][n % 7]} for n in range(63)]


@case(FLOATS, (40, 3))
def aggregates_of_floats(s: Sources) -> None:
    rows = typed(s, "in", {"t": int, "k": int, "f": float}, time="t").key_by("k")
    results = {"low": agg.min("f"), "high": agg.max("f"), "n": agg.distinct("f"), "mean": agg.mean("f")}
    rows.window(6).aggregate(**results).sink("windows")
    rows.aggregate(**results).sink("running")


# Functions that return the wrong thing ----------------------------------------------------------------------------


@case([{"t": 1, "k": 2}, {"t": 3, "k": 4}], (1,), fails=True)
def a_record_instead_of_a_list_fails(s: Sources) -> None:
    s().flat_map(lambda row: row).sink("out")


@case([{"t": n, "k": n % 3} for n in range(9)], (4,))
def a_record_instead_of_a_list_is_skipped(s: Sources) -> None:
    rows = s()

    def wrong(row: Any) -> Any:
        return [[row], row, row.asdict()][row.k]

    rows.flat_map(wrong, on_error="skip").sink("out")
    rows.flat_map(wrong, on_error="skip", waits=True).sink("waits")
    letters = rows.key_by("k").flat_scan(lambda n, row: (n + 1, wrong(row)), 0, on_error="dead_letter")
    letters.errors.sink("errors")
    letters.sink("flat scan")


@case(
    {"a": [{"t": 1, "k": 1}, {"t": 30, "k": 1}, {"t": 2, "k": 2}], "b": [{"t": 30, "k": 1}, {"t": 3, "k": 3}]},
    ({"a": 2, "b": 1},),
    expects={"late": [(2, 2), (3, 3)], "out": []},
)
def late_rows_of_both_sides_of_a_join(s: Sources) -> None:
    joined = s("a", time="t").key_by("k").join(s("b", time="t").key_by("k"), 10, lambda left, right: None)
    joined.late.sink("late")
    joined.filter(lambda row: row is not None).sink("out")
