"""Aggregates per window are what a database says of the same rows."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.operators import aggregates as agg
from penstock.options import Threads
from penstock.run import run

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
ROWS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(-9, 9),
        st.none() | st.integers(-40, 40).map(lambda n: n / 4),
    ),
    max_size=60,
).map(lambda rows: [dict(zip(SCHEMA.names, row, strict=True)) for row in sorted(rows, key=lambda row: row[0])])
V, X = pc.field("v"), pc.field("x")
EACH: dict[str, tuple[agg.Agg, str]] = {
    "n": (agg.count("v"), "count(v)"),
    "low": (agg.count(where=V < 0), "count(*) filter (v < 0)"),
    "different": (agg.count_distinct("x"), "count(distinct x)"),
    "products": (agg.sum(V * X, where=X > 1), "sum(v * x) filter (x > 1)"),
    "most": (agg.max("x", where=V > 0), "max(x) filter (v > 0)"),
    "mean": (agg.mean(V, where=X.is_null()), "avg(v) filter (x is null)"),
    "where_most": (agg.argmax("v", by="x"), "first(v order by x desc, i) filter (x is not null)"),
    "where_least": (agg.argmin("v", by=X * X), "first(v order by x * x, i) filter (x is not null)"),
    "median": (agg.median("x"), "quantile_cont(x, 0.5)"),
    "part": (agg.quantile("v", 0.25, where=V != 2), "quantile_cont(v::double, 0.25) filter (v != 2)"),
    "first": (agg.first("v", where=X < 0), "first(v order by i) filter (x < 0)"),
    "last": (agg.last("v", where=X < 0), "last(v order by i) filter (x < 0)"),
}


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_windows(rows: list[dict[str, Any]]) -> None:
    window = Flow("w").source("in", read.items(rows, schema=SCHEMA), time="t").key_by("k").window(7)
    made = window.aggregate(**{name: each for name, (each, _) in EACH.items()})
    found = run(made.sink("out"), on=Threads(workers=1)).results["out"]
    table = pa.Table.from_pylist([{**row, "i": i} for i, row in enumerate(rows)], SCHEMA.append(pa.field("i", "int64")))
    database = duckdb.connect()
    database.register("input", table)
    results = ", ".join(f"{text} as {name}" for name, (_, text) in EACH.items())
    expected = database.sql(
        f"select k, t - t % 7 as start, t - t % 7 + 7 as stop, {results} from input group by all order by stop, min(i)"
    ).fetchall()
    assert [tuple(row) for row in found] == expected
