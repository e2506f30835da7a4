"""The first rows: nulls, NaN, ties, names, and what is refused."""

import math

import pyarrow as pa
import pytest

import penstock as ps

SCHEMA = {"t": int, "x": float, "tags": list[int]}


def stream(values=(), **schema):
    rows = [{"t": n, "x": x, "tags": []} for n, x in enumerate(values)]
    return ps.Flow("f").source("in", ps.read.items(rows, schema={**SCHEMA, **schema}), time="t")


def ranked(values, **options):
    """Rank values in one window; return the number of each."""
    made = stream(values).window(100).top(3, by="x", **options)
    return [row.t for row in ps.run(made.sink("out"), on=ps.Sequential()).results["out"]]


def test_nan_is_largest_and_null_has_no_rank():
    assert ranked([1.0, None, math.nan, 2.0, math.nan]) == [2, 4, 3]
    assert ranked([math.nan, 1.0, None, 2.0, math.nan], largest=False) == [1, 3, 0]


def test_of_equal_ones_the_earlier():
    assert ranked([5.0, 7.0, 5.0, 5.0, 7.0]) == [1, 4, 0]
    assert ranked([5.0, 7.0, 5.0, 7.0], largest=False) == [0, 2, 1]


def test_a_window_without_a_value_gives_nothing():
    assert ranked([None, None]) == []


def test_the_fields_that_come_out():
    assert stream().top(2, by="x").type.names == ["t", "x", "tags", "rank", "left"]
    first = stream().window(5).top(2, by="x")
    assert first.type.names == ["window_start", "window_end", "rank", "t", "x", "tags"]
    second = first.drop("rank").window(10).top(1, by="x")
    assert second.type.names[:3] == ["window_start_2", "window_end_2", "rank"]
    counted = first.drop("rank").window(ps.count_window(2)).top(1, by="x")
    assert counted.type.names[:3] == ["window", "rank", "window_start"]
    keyed = first.key_by("window_end").window(10).aggregate(n=ps.agg.count())
    assert keyed.type.names == ["window_end", "window_start_2", "window_end_2", "n"]
    assert keyed.type.schema.field("window_end_2").type == pa.int64()


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: stream().top(0, by="x"), ("operator 'top': top(0)", "1 or more")),
        (lambda: stream().window(5).top(2.5, by="x"), ("operator 'window': top(2.5)",)),
        (lambda: stream().top(2, by="y"), ("operator 'top'", "names the field 'y'", "'x'")),
        (lambda: stream().top(2, by="tags"), ("has no order",)),
        (lambda: stream().top(2, by=7), ("give a field, an expression or a function",)),
        (lambda: stream().top(2, by=ps.expr("x +")), ("at character 4",)),
        (lambda: stream(rank=int).top(2, by="x"), ("adds a field 'rank'", "rename(")),
        (lambda: stream(left=int).top(2, by="x"), ("adds a field 'left'", "rename(")),
        (lambda: stream().map(lambda row: row).top(2, by="x"), ("top needs to know the rows' type",)),
        (
            lambda: stream().window(5).aggregate(window_end=ps.agg.max("t")),
            ("operator 'window'", "aggregate(window_end=...)", "another name"),
        ),
    ],
)
def test_what_is_refused(build, parts):
    with pytest.raises(ps.FlowError) as caught:
        build()
    for part in parts:
        assert part in str(caught.value)
