"""Operators without memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators import aggregates as agg

from .cases import EVENTS, Sources, case


@case([1, 2, 3, 4], (1, 2), expects=[2, 4, 6, 8])
def map_bare_values(s: Sources) -> None:
    s().map(lambda n: n * 2).sink("out")


@case(EVENTS)
def map_to_declared_records(s: Sources) -> None:
    s().map(lambda r: {"who": r.k, "twice": r.v * 2.0}, schema={"who": int, "twice": float}).sink("out")


@case(EVENTS)
def filter_by_function(s: Sources) -> None:
    s().filter(lambda r: r.v > 2).filter(lambda r: r.k != 1).sink("out")


@case([3, 0, 1, 2], (1, 1, 1, 1), expects=[0, 1, 2, 0, 0, 1])
def flat_map_of_any_length(s: Sources) -> None:
    s().flat_map(range).sink("out")


@case(EVENTS)
def flat_map_of_a_flat_map(s: Sources) -> None:
    def copies(row: Any) -> Iterator[tuple[int, int]]:
        for copy in range(row.v % 3):
            yield row.v, copy

    s().flat_map(copies).flat_map(lambda pair: [(*pair, "x"), (*pair, "y")]).sink("out")


@case([{"a": 1, "b": None}, {"a": 2, "b": 1.5}, {"a": None, "b": 2.0}], (1,), expects=[(4, 3.0, True)])
def select_and_filter_by_expressions(s: Sources) -> None:
    stream = s().filter(pc.field("b") > 0)
    stream.select(double=pc.field("a") * 2, twice=pc.field("b") * 2, many=pc.field("a") > 1).filter(
        pc.field("many")
    ).sink("out")


@case(EVENTS)
def map_batches_row_for_row(s: Sources) -> None:
    def negate(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(2, "v", pc.negate(batch.column("v")))

    s().map_batches(negate).sink("out")


@case(EVENTS)
def map_batches_with_indexes(s: Sources) -> None:
    def explode(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
        index = [i for i, v in enumerate(batch.column("v").to_pylist()) for _ in range(max(0, v % 3))]
        return batch.take(pa.array(index, pa.int64())), index

    s().map_batches(explode).map(lambda r: (r.t, r.v)).sink("out")


@case(EVENTS)
def map_batches_to_another_schema(s: Sources) -> None:
    def shout(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"text": [f"{k}!" for k in batch.column("k").to_pylist()]})

    s().map_batches(shout, schema={"text": str}).key_by("text").aggregate(n=agg.count()).sink("out")


@case(EVENTS)
def split_in_three(s: Sources) -> None:
    low, high, rest = s().split(lambda r: r.v < 0, lambda r: r.v > 5)
    low.sink("low")
    high.map(lambda r: r.v).sink("high")
    rest.select("v").sink("rest")


@case([5, 1, 7, 2, 8], (2, 2), expects=["big 5", "small 1", "big 7", "small 2", "big 8"])
def split_and_union(s: Sources) -> None:
    small, rest = s().split(lambda n: n < 4)
    rest.map(lambda n: f"big {n}").union(small.map(lambda n: f"small {n}")).sink("out")
