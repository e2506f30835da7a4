"""What cannot be is refused where it is written, naming the operator and the option."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps


class NoTruth:
    """What `F.col("v")` is like: neither equal to a text nor not."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self

    def __bool__(self):
        raise ValueError("Cannot convert column into bool")

    def __repr__(self):
        return "a column of Spark's"


TABLE = {"a": {"c": 1}}
ROW = {"at": 1, "k": "a", "v": 1.0, "l": [1], "day": dt.date(2024, 1, 1)}


async def waiting(batch: Any) -> Any:
    return batch


BAD: list[tuple[Callable[[ps.Stream], Any], str]] = [
    (lambda s: s.lookup(TABLE, on="k", fields=5), "'lookup': fields= in its table takes names of fields, not 5"),
    (lambda s: s.lookup(TABLE, on="k", fields=[5]), "takes names of fields, not 5"),
    (lambda s: s.lookup(TABLE, on="k", fields={"c": 5}), "fields= takes new names that are texts, not 5"),
    (lambda s: s.lookup(TABLE, on="k", prefix=5), "prefix= takes a text, not 5"),
    (lambda s: s.sink("out/rows"), r"kept in memory under that name; to write there: .*ps.write.parquet\('out/rows'\)"),
    (lambda s: s.sink("rows.csv"), "sink 'rows.csv' would be kept in memory"),
    (lambda s: s.select(NoTruth()), "'select': select takes names of fields, not a column of Spark's"),
    (lambda s: s.select(ps.expr("v")), r"'select': select takes names of fields, .*: select\(new=ps.expr\('v'\)\)"),
    (lambda s: s.rename({"k": 5}), "'rename': rename\\(\\) takes new names that are texts, not 5"),
    (lambda s: s.distinct(5), "distinct takes names of fields, not 5"),
    (lambda s: s.distinct("l"), "distinct names the field 'l' of type list.*, which cannot be a key"),
    (lambda s: s.map(len, cache=ps.Cache(5, by=5)), "by=5; give names of fields"),
    (lambda s: s.map(lambda row, client: row, setup=lambda x: x), r"calls its setup= with \(\), and <lambda>\(x\)"),
    (lambda s: s.map_batches(len, setup=lambda x: x), r"calls its setup= with \(\)"),
    (lambda s: s.map_batches(waiting), "the function of map_batches\\(\\) cannot be async def"),
    (lambda s: s.map_batches(5), "takes a function of an Arrow batch, not 5"),
    (lambda s: s.map_batches(lambda: 1), r"calls its function with \(batch\)"),
    (lambda s: s.aggregate(x=ps.agg.mean("k")), r"x is mean\('k'\), whose values are of the type string"),
    (lambda s: s.window(5).aggregate(x=ps.agg.mean("day")), "whose values are of the type date32"),
    (lambda s: s.sink("out", ps.write.parquet(None)), "ps.write.parquet: None is no path"),
    (lambda s: s.sink("out", ps.write.csv("")), "ps.write.csv: '' is no path"),
    (lambda s: s.sink("out", ps.write.parquet("out", partition_by=5)), "partition_by=5 must be names of fields"),
    (lambda s: ps.read.json(None), "ps.read.json: None is no path"),
    (lambda s: ps.read.sink(None), "ps.read.sink: None is no path"),
    (lambda s: ps.read.csv("in", delimiter=";;"), "delimiter=';;'; give one character"),
]


@pytest.mark.parametrize(("build", "says"), BAD, ids=[says[:40] for _, says in BAD])
def test_refused_with_what_is_wrong(build: Callable[[ps.Stream], Any], says: str) -> None:
    schema = {"at": int, "k": str, "v": float, "l": list[int], "day": dt.date}
    with pytest.raises(ps.FlowError, match=says):
        build(ps.Flow("bad").source("in", ps.read.items([ROW], schema=schema), time="at"))
