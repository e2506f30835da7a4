"""Nulls, NaN, naive times and records where lists are meant: worked out by hand, on both engines of one process."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

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
