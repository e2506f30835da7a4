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


def source(rows: list[dict[str, Any]]) -> Any:
    return Flow("w").source("in", read.items(rows, schema=SCHEMA), time="t")


def database_of(rows: list[dict[str, Any]]) -> Any:
    """Return a database with the table `input`, in which `i` is the number of the row."""
    table = pa.Table.from_pylist([{**row, "i": i} for i, row in enumerate(rows)], SCHEMA.append(pa.field("i", "int64")))
    database = duckdb.connect()
    database.register("input", table)
    return database


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_windows(rows: list[dict[str, Any]]) -> None:
    made = source(rows).key_by("k").window(7).aggregate(**{name: each for name, (each, _) in EACH.items()})
    found = run(made.sink("out"), on=Threads(workers=1)).results["out"]
    results = ", ".join(f"{text} as {name}" for name, (_, text) in EACH.items())
    expected = (
        database_of(rows)
        .sql(
            f"select k, t - t % 7 as start, t - t % 7 + 7 as stop, {results} from input "
            f"group by all order by stop, min(i)"
        )
        .fetchall()
    )
    assert [tuple(row) for row in found] == expected


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 4), st.booleans())
def test_top_of_windows(rows: list[dict[str, Any]], count: int, largest: bool) -> None:
    made = source(rows).window(7).top(count, by="x", largest=largest)
    found = run(made.sink("out"), on=Threads(workers=1)).results["out"]
    expected = database_of(rows).sql(
        f"select t - t % 7 as start, t - t % 7 + 7 as stop, "
        f"row_number() over (partition by t // 7 order by x {'desc' if largest else 'asc'}, i) as rank, t, k, v, x "
        f"from input where x is not null qualify rank <= {count} order by start, rank"
    )
    assert [tuple(row) for row in found] == expected.fetchall()


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 4))
def test_top_as_it_changes(rows: list[dict[str, Any]], count: int) -> None:
    made = source(rows).key_by("k").top(count, by="v")
    found = run(made.sink("out"), on=Threads(workers=1)).results["out"]
    expected = []
    for n, row in enumerate(rows):
        before = [each for each in rows[:n] if each["k"] == row["k"] and each["v"] is not None]
        was = sorted(before, key=lambda each: -each["v"])[:count]
        rank = 1 + sum(each["v"] >= row["v"] for each in was) if row["v"] is not None else count + 1
        if rank <= count:
            expected.append((*row.values(), rank, was[-1] if len(was) == count else None))
    assert [tuple(row) for row in found] == expected
