"""Nulls, NaN, naive times and records where lists are meant: worked out by hand, on the engines of one process."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

from ..conformance import epochs
from ..conformance.inline import Arriving
from ..conformance.kinds import PartFeed
from ..how import how

ENGINES = pytest.mark.parametrize("engine", ["sequential", "threads"])
NAN = float("nan")
KEYS = [(1, None), (2, 7)]


def results(flow: Any, engine: str) -> list[Any]:
    return ps.run(flow, **how(engine)).results["out"]


@ENGINES
@pytest.mark.parametrize("options", [{"window": 10}, {"within": (-5, 5)}, {"ttl": 10}], ids=["window", "within", "ttl"])
def test_null_keys_meet_nobody(engine, options):
    flow, schema = ps.Flow("nulls"), pa.schema([("t", pa.int64()), ("k", pa.int64()), ("n", pa.int64())])
    left, right = (
        flow.source(
            name, ps.read.items([{"t": 1, "k": None, "n": n}, {"t": 2, "k": 7, "n": n}], schema=schema), time="t"
        )
        for name, n in (("left", 1), ("right", 2))
    )
    joined = left.join(right, on="k", how="inner", **options)
    assert len(results(joined.sink("out"), engine)) == 1


@ENGINES
@pytest.mark.parametrize("key", ["k", lambda row: row.k], ids=["field", "function"])
def test_nan_is_one_key(engine, key):
    rows = [{"k": value, "n": n} for n, value in enumerate([NAN, 1.0, float("nan"), -0.0, NAN, 0.0])]
    keyed = ps.Flow("nan").source("in", rows).key_by(key).scan(lambda count, row: (count + 1, (row.n, count + 1)), 0)
    assert results(keyed.sink("out"), engine) == [(0, 1), (1, 1), (2, 2), (3, 1), (4, 3), (5, 2)]


@ENGINES
@pytest.mark.parametrize("zone", [None, dt.UTC], ids=["naive", "with a zone"])
def test_times_keep_what_they_had_of_a_zone(engine, zone):
    at = dt.datetime(2024, 5, 1, 12, 0, 30, tzinfo=zone)
    seen = []

    class Looking(ps.Process):
        def on_row(self, row, context):
            seen.append(context.time)
            context.emit((context.time,))

    flow = ps.Flow("times")
    rows = flow.source("in", [{"k": 1, "at": at}], time="at")
    counted = rows.key_by("k").window("1 minute").aggregate(n=ps.agg.count())
    counted.map(lambda row: row.window_start, name="start").sink("out")
    rows.key_by("k").process(Looking(), name="looking").sink("looked")
    assert results(flow, engine) == [at.replace(second=0)]
    assert seen == [at]


@ENGINES
@pytest.mark.parametrize("record", [{"a": 1, "b": 2}, "text"], ids=["dict", "text"])
def test_one_record_is_no_list_of_rows(engine, record):
    flow = ps.Flow("one").source("in", [{"n": 1}]).flat_map(lambda row: record, name="one").sink("out")
    with pytest.raises(ps.OperatorError, match="must return a list of rows, or yield them, and returned one row"):
        results(flow, engine)


@ENGINES
@pytest.mark.parametrize("windowed", [False, True], ids=["running", "windowed"])
def test_results_may_be_called_as_options_are(engine, windowed):
    flow = ps.Flow("names")
    rows = flow.source("in", ps.read.items([{"t": 1, "v": 2}, {"t": 2, "v": 5}], schema={"t": int, "v": int}), time="t")
    meant = {"name": ps.agg.sum("v"), "on_error": ps.agg.count(), **({} if windowed else {"ttl": ps.agg.max("v")})}
    found = (rows.window(10) if windowed else rows).aggregate(**meant)
    found.select("*", name=ps.expr("name * 2")).sink("out")
    last = results(flow, engine)[-1]
    assert {field: getattr(last, field) for field in meant} == dict(zip(meant, [14, 2, 5], strict=False))


TIMES = {"t": int, "n": int}
UNTIMED = "the field 't' gives no event time: a time must be a datetime or an integer, not None"


def in_epochs(flow: Any, engine: str, rows: int, **options: Any) -> Any:
    """Run a flow in several epochs, or batches, also as on Spark."""
    if engine == "sequential":
        return ps.run(flow, on=ps.Sequential(epoch_rows=rows)).results
    return getattr(epochs, engine)(flow, epoch_rows=rows, **options)


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("engine", ["sequential", "threads", "inline"])
class TestNoTime:
    @staticmethod
    def flow(times: list[int | None], on_error: Any) -> Any:
        flow, given = ps.Flow("untimed"), [{"t": t, "n": n} for n, t in enumerate(times)]
        stream = flow.source("in", ps.read.items(given, schema=TIMES), time="t", on_error=on_error)
        stream.window(10).aggregate(n=ps.agg.count()).sink("windows")
        if on_error == "dead_letter":
            stream.errors.sink("errors")
            stream.map(lambda row: row.n).union(stream.errors.map(lambda letter: letter.row)).sink("out")
        else:
            stream.map(lambda row: row.n).sink("out")
        return flow

    def test_fails(self, engine, rows):
        with pytest.raises(ps.SourceError) as caught:
            in_epochs(self.flow([3, None, 5, None], "fail"), engine, rows)
        assert str(caught.value).startswith(f"source 'in': {UNTIMED}; row: Row(t=None, n=1); fill it in before")

    def test_is_skipped(self, engine, rows):
        found = in_epochs(self.flow([3, None, 12, None, None, 25], "skip"), engine, rows)
        assert found["out"] == [0, 2, 5]
        assert [tuple(row) for row in found["windows"]] == [(0, 10, 1), (10, 20, 1), (20, 30, 1)]

    def test_is_a_dead_letter_in_its_place(self, engine, rows):
        found = in_epochs(self.flow([None, 12, None, 25], "dead_letter"), engine, rows)
        letters = [f'{{"t": null, "n": {n}}}' for n in (0, 2)]
        assert found["out"] == [letters[0], 1, letters[1], 3]
        assert [(each.operator, each.error, each.row) for each in found["errors"]] == [
            ("in", UNTIMED, letter) for letter in letters
        ]
        assert [tuple(row) for row in found["windows"]] == [(10, 20, 1), (20, 30, 1)]


@pytest.mark.parametrize("engine", ["threads", "inline"])
def test_a_row_without_a_time_does_not_count_for_another_part(engine):
    """Each of two parts has its own highest time; rows that are left out must not shift whose is whose."""
    flow = ps.Flow("parts")
    source = flow.source("in", Arriving([], schema=TIMES), time="t", on_error="skip")
    windows = source.window(10).aggregate(n=ps.agg.count())
    windows.sink("windows")
    windows.late.map(lambda row: row.n).sink("late")
    times: list[dict[int, list[int | None]]]
    times = [{0: [None, None, 5], 1: [1, 35]}, {0: [6], 1: [None, 36]}, {0: [7, None, 37], 1: [37]}]
    given = [{part: [{"t": t, "n": part} for t in some] for part, some in each.items()} for each in times]
    found = in_epochs(flow, engine, 100, feeds={"in": PartFeed(given, (0, 1))})
    assert [tuple(row) for row in found["windows"]] == [(0, 10, 4), (30, 40, 4)]
    assert found["late"] == []
