"""Nulls, NaN, both zeros, ties, times with and without a zone, decimals, large numbers, over all operators and paths.

Every engine is held to the sequential one, and that to plain Python where it has an answer of its own.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections import Counter, defaultdict
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.flow import Flow, Stream
from penstock.kernels import keyed
from penstock.operators import aggregates as agg
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Count, Session, Sliding, Tumbling

from .checking import compare, outcome
from .engines import REFERENCE, Engine, Epochs, Threads, on_spark
from .inline import Inline
from .odd_values import NUMBERS, VALUES, Table, canonical, tables

ENGINES = [
    Engine("threads", Threads(50, model="manual")),
    Engine("partitions", Threads(7, workers=2, partitions=3)),
    Engine("inline", Inline(tasks=2, seed=3)),
]
FEW, MORE = (5, 12) if settings.default.derandomize else (25, 60)
"""Examples of a property; more of them where they are new each time."""
quick = settings(max_examples=FEW, deadline=None, suppress_health_check=list(HealthCheck))


def hold(flow: Flow, epochs: Epochs) -> dict[str, list[Any]] | str:
    """Hold all engines to the sequential one, row by row and by columns; return what came out."""
    expected = outcome(REFERENCE, flow, epochs)
    for engine in ENGINES:
        for few in (keyed.FEW_ROWS, 0):  # nothing is so short that it is not taken by columns
            with mock.patch.object(keyed, "FEW_ROWS", few):
                compare(expected, outcome(engine, flow, epochs))
    return expected


def rows_of(expected: dict[str, list[Any]] | str, sink: str = "out") -> list[Any]:
    assert not isinstance(expected, str), expected
    return expected[sink]


PATHS = {
    "columns": lambda stream: stream,
    "rows": lambda stream: stream.map(lambda row: row, name="same", schema=stream.type),
    "undeclared": lambda stream: stream.map(lambda row: row, name="same"),
    "expressions": lambda stream: stream.select("k", t=pc.field("t"), v=pc.field("v")).filter(~pc.field("t").is_null()),
}
"""Ways for the same rows to reach an operator."""
paths = pytest.mark.parametrize("path", PATHS)
ORDERABLE = [pa.float64(), pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.bool_()]


class Counts(Process):
    """Count a key's rows; show what a process sees, at rows, timers and the end."""

    def __init__(self, span: Any) -> None:
        self.span = span

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.emit((context.key, context.time, context.watermark, context.state))
        context.set_timer(context.time + self.span)

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("timer", context.key, time, context.time))

    def on_end(self, context: ProcessContext) -> None:
        context.emit(("end", context.key, context.state))


@paths
class TestKeyedOperators:
    @quick
    @given(table=tables())
    def test_without_windows(self, table: Table, path: str) -> None:
        stream = PATHS[path](table.source(Flow("f")))
        for name, by in {"k": ["k"], "k v": ["k", "v"], "f": [lambda row: (row.v, row.k)]}.items():
            by_key = stream.key_by(*by)
            by_key.scan(lambda n, row: (n + 1, (n, row.v)), 0).sink(f"{name} scan")
            by_key.flat_scan(lambda n, row: (n + 1, [row.k] * n), 0).sink(f"{name} flat_scan")
            by_key.reduce(lambda a, b: b).sink(f"{name} reduce")
            by_key.process(Counts(table.span(4))).sink(f"{name} process")
            by_key.aggregate(n=agg.count(), all=agg.collect("v"), last=agg.last("v")).sink(f"{name} aggregate")
        found = hold(stream.flow, table.epochs())
        seen: Counter[Any] = Counter()
        numbers = []
        for _, k, _ in table.rows:  # what SQL calls the row number of a group, null being one
            numbers.append(seen[canonical(k)])
            seen[canonical(k)] += 1
        assert [row[0] for row in rows_of(found, "k scan")] == numbers

    @quick
    @given(table=tables(), spec=st.sampled_from(["tumbling", "sliding", "session", "count"]))
    def test_windows(self, table: Table, path: str, spec: str) -> None:
        span = table.span
        kinds = {"tumbling": Tumbling(span(7)), "sliding": Sliding(span(6), span(2)), "session": Session(span(3))}
        stream = PATHS[path](table.source(Flow("f"), slack=span(30)))
        by_key = stream.key_by("k").window(kinds.get(spec, Count(3)))
        counts = by_key.aggregate(n=agg.count(), all=agg.distinct("v"), last=agg.last("v", skip_nulls=True))
        counts.sink("out")
        by_key.apply(lambda window, rows: (window, len(rows))).sink("applied")
        found = hold(stream.flow, table.epochs())
        rows = rows_of(found)
        if spec == "tumbling":  # with so much slack nothing is late
            groups = Counter((canonical(k), seconds(t) // 7) for t, k, _ in table.rows)
            assert sorted(row.n for row in rows) == sorted(groups.values())
        if spec in kinds and table.in_seconds:
            bounds = [row.window_start for row in rows] + [window.end for window, _ in rows_of(found, "applied")]
            assert {bound.tzinfo for bound in bounds} == {table.rows[0][0].tzinfo}
        if spec != "sliding":
            assert sum(row.n for row in rows) == len(table.rows)

    @quick
    @given(left=tables(time=pa.int64()), right=st.data(), how=st.sampled_from(["inner", "left", "right", "outer"]))
    def test_joins(self, left: Table, right: Any, how: Any, path: str) -> None:
        other = right.draw(tables(time=left.time, key=left.key))
        other = dataclasses.replace(other, size=left.size)
        flow = Flow("f")
        a, b = left.source(flow, "a"), other.source(flow, "b").select("t", "k", v=pc.field("v"))
        joined = PATHS[path](a).key_by("k").join(b.key_by("k"), 100, lambda x, y: (x and x.v, y and y.v), how=how)
        joined.late.sink("late")
        epochs = [{**x, **y} for x, y in zip_longest(left.epochs("a"), other.epochs("b"))]
        found = rows_of(hold(joined.sink("out"), epochs))
        # Nothing is late in so large a window: all pairs of equal keys that are not null, each row otherwise alone.
        pairs = Counter()
        for _, k, v in left.rows:
            met = [w for _, c, w in other.rows if k is not None and canonical(k) == canonical(c)]
            pairs.update((repr(v), repr(w)) for w in met)
            pairs.update([(repr(v), "None")] if not met and how in ("left", "outer") else [])
        for _, c, w in other.rows:
            met = [1 for _, k, _ in left.rows if c is not None and canonical(k) == canonical(c)]
            pairs.update([("None", repr(w))] if not met and how in ("right", "outer") else [])
        if left.value == other.value:
            assert Counter((repr(x), repr(y)) for x, y in found) == pairs
        assert len(found) == pairs.total()


def zip_longest(left: Epochs, right: Epochs) -> list[tuple[dict, dict]]:
    count = max(len(left), len(right))
    return list(zip(left + [{}] * (count - len(left)), right + [{}] * (count - len(right)), strict=True))


def seconds(moment: Any) -> int:
    """Return a time as a number; one without a zone counts as UTC."""
    return moment if isinstance(moment, int) else int(moment.replace(tzinfo=dt.UTC).timestamp())


@paths
class TestAggregates:
    @quick
    @given(
        table=tables(numbers=True), windowed=st.booleans(), on_error=st.sampled_from(["fail", "skip", "dead_letter"])
    )
    def test_as_plain_python(self, table: Table, windowed: bool, on_error: Any, path: str) -> None:
        stream = PATHS[path](table.source(Flow("f"), slack=table.span(30)))
        results = {"sum": agg.sum("v"), "mean": agg.mean("v"), "min": agg.min("v"), "max": agg.max("v")}
        results |= {"all": agg.collect("v"), "first": agg.first("v", skip_nulls=True), "n": agg.count()}
        by_key = stream.key_by("k")
        made = (by_key.window(table.span(40)) if windowed else by_key).aggregate(**results, on_error=on_error)
        if on_error == "dead_letter":
            made.errors.sink("errors")
        found = hold(made.sink("out"), table.epochs())
        if isinstance(found, str) or not windowed:
            return
        assert not isinstance(found, str)
        groups: dict[Any, list[Any]] = defaultdict(list)
        for t, k, v in table.rows:
            groups[canonical(k), seconds(t) // 40].append(v)
        fit = [values for values in groups.values() if fits(values, table.value, path)]
        assert Counter(shown(row.all) for row in found["out"]) == Counter(map(shown, fit))
        for row in found["out"]:
            check_aggregates(row, table.value, path)
        if on_error == "dead_letter":
            assert len(found["errors"]) == len(groups) - len(fit)


def shown(values: list[Any]) -> str:
    """Show values so that NaN is equal to NaN."""
    return repr(list(map(canonical, values)))


def fits(values: list[Any], kind: pa.DataType, path: str) -> bool:
    """Tell whether the sum of a window stays in its type; where no type is declared, it may have any size."""
    there = [value for value in values if value is not None]
    if path == "undeclared" or not there or pa.types.is_floating(kind):
        return True
    total = sum(map(Fraction, there))
    if pa.types.is_integer(kind):
        return -(2**63) <= total < 2**63
    return abs(total) < 10 ** (min(38, kind.precision + 10) - kind.scale)


def check_aggregates(row: Any, kind: pa.DataType, path: str) -> None:
    """Hold the aggregates of a window to plain Python, over the values that it collected."""
    there = [value for value in row.all if value is not None]
    assert row.n == len(row.all)
    assert repr(row.first) == repr(there[0] if there else None)
    if not there:
        assert (row.sum, row.mean, row.min, row.max) == (None, None, None, None)
        return
    numbers = [value for value in there if not (isinstance(value, float) and math.isnan(value))]
    if numbers:
        assert row.min == min(numbers)
    assert math.isnan(row.max) if len(numbers) < len(there) else row.max == max(there)
    if pa.types.is_floating(kind):
        total = there[0]
        for value in there[1:]:
            total += value
        assert repr(row.sum) == repr(total)
        return
    exact = sum(map(Fraction, there))
    if pa.types.is_integer(kind):
        assert row.sum == exact
        assert row.mean == int(exact) / len(there)
    elif path != "undeclared":
        assert Fraction(row.sum) == exact
        places = kind.scale + min(4, 38 - kind.precision)
        with localcontext(prec=100):
            whole = exact / len(there) * 10**places
            rounded = (Decimal(whole.numerator) / whole.denominator).quantize(Decimal(1), ROUND_HALF_UP)
        assert Fraction(row.mean) * 10**places == Fraction(rounded)


class TestTimes:
    @quick
    @given(
        table=tables(null_times=True),
        on_error=st.sampled_from(["fail", "skip", "dead_letter"]),
        slack=st.integers(0, 9),
    )
    def test_rows_without_a_time(self, table: Table, on_error: Any, slack: int) -> None:
        stream = table.source(Flow("f"), on_error=on_error, slack=table.span(slack))
        counts = stream.key_by("k").window(table.span(5)).count()
        counts.sink("out")
        counts.late.sink("late")
        stream.map(lambda row: row.t).sink("times")
        if on_error == "dead_letter":
            stream.errors.sink("errors")
            stream.map(lambda row: ("row", row.t)).union(stream.errors.map(lambda _: ("error", None))).sink("all")
        found = hold(stream.flow, table.epochs())
        times = [t for t, _, _ in table.rows]
        if on_error == "fail" and None in times:
            assert isinstance(found, str)
            assert "the field 't' gives no event time" in found
            return
        assert rows_of(found, "times") == [t for t in times if t is not None]
        assert sum(row.count for row in rows_of(found)) + len(rows_of(found, "late")) == len(times) - times.count(None)
        if on_error == "dead_letter":
            assert rows_of(found, "all") == [("error", None) if t is None else ("row", t) for t in times]

    @settings(quick, max_examples=MORE)
    @given(data=st.data(), order=st.sampled_from(["k", "t"]), diverts=st.booleans())
    def test_order_by(self, data: Any, order: str, diverts: bool) -> None:
        table = data.draw(tables(null_times=True, key=data.draw(st.sampled_from(ORDERABLE))))
        # The least integer of its type is where null is, so that they tie; nothing is below it to be cut wrongly.
        table = dataclasses.replace(table, rows=tuple(row for row in table.rows if -(2**63) not in row[1:]), size=40)
        options = {"on_late": "divert"} if diverts else {}
        stream = table.source(Flow("f"), order_by=order, on_error="skip", **options)
        if diverts:
            stream.late.sink("late")
        stream.window(table.span(5)).count().sink("counts")
        found = hold(stream.sink("out"), table.epochs())
        place = "tkv".index(order)
        kept, late, top = [], [], sort_key(None)
        for row in table.rows:
            if sort_key(row[place]) < top:  # below the highest before it, whether that had a time or not
                late.append(row)
                continue
            top = sort_key(row[place])
            if row[0] is not None:
                kept.append(row[place])
        if late and not diverts:
            assert isinstance(found, str)
            assert "order_by goes back" in found
            return
        assert shown([row[place] for row in rows_of(found)]) == shown(kept)
        if diverts:
            timed = [row[place] for row in late if row[0] is not None]  # the others are skipped like those on time
            assert shown([row[place] for row in rows_of(found, "late")]) == shown(timed)

    @quick
    @given(table=tables(), slack=st.integers(0, 9))
    def test_sort(self, table: Table, slack: int) -> None:
        stream = table.source(Flow("f")).sort(slack=table.span(slack))
        stream.late.sink("late")
        found = hold(stream.sink("out"), table.epochs())
        times = [row.t for row in rows_of(found)]
        assert times == sorted(times)
        assert len(times) + len(rows_of(found, "late")) == len(table.rows)


def sort_key(value: Any) -> Any:
    """Order null first and NaN last."""
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("then", ["sink", "map", "select", "window"])
def test_whatever_follows_a_sum_fails_alike(kind: pa.DataType, then: str) -> None:
    """Where a sum cannot be held by its type, the flow fails at that sum, not at whoever reads it."""
    large = max((value for value in VALUES[kind] if math.isfinite(value)), key=abs)
    rows = tuple((n, 1, large) for n in range(60))
    table = Table(pa.int64(), pa.int64(), kind, rows, 45)
    made: Stream = table.source(Flow("f")).key_by("k").aggregate(sum=agg.sum("v"))
    followed = {
        "sink": lambda: made,
        "map": lambda: made.map(lambda row: row["sum"]),
        "select": lambda: made.select(twice=pc.field("sum")),
        "window": lambda: made.window(30).aggregate(last=agg.last("sum")),
    }[then]()
    found = hold(followed.sink("out"), table.epochs())
    fails = not fits([large] * 60, kind, "columns")
    assert isinstance(found, str) == fails
    if fails:
        assert "operator 'aggregate' failed: OverflowError: the sum" in found


@pytest.mark.spark
def test_on_spark(spark: Any) -> None:
    """Once with Spark itself: keys, times, decimals and dead letters across its shuffles and its checkpoint."""
    rows = tuple(
        (None if n % 11 == 5 else n, [math.nan, None, 0.0, -0.0, 1.5][n % 5], [Decimal("0.05"), None][n % 2])
        for n in range(60)
    )
    table = Table(pa.int64(), pa.float64(), pa.decimal128(8, 2), rows, 25)
    stream = table.source(Flow("f"), on_error="dead_letter")
    stream.errors.sink("errors")
    stream.key_by("k").window(20).aggregate(n=agg.count(), mean=agg.mean("v")).sink("windows")
    stream.key_by("k").join(stream.filter(lambda row: row.v is not None).key_by("k"), 20, how="left").sink("joined")
    expected = outcome(REFERENCE, stream.flow, table.epochs())
    assert not isinstance(expected, str)
    compare(expected, outcome(Engine("spark", on_spark), stream.flow, table.epochs()))
