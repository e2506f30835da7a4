"""Operators without memory, one row at a time."""

from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.errors import FlowError, OperatorError

from ..running import numbers, out, records, run

ROWS = [{"t": 1, "v": 1.5}, {"t": 2, "v": None}, {"t": 3, "v": 4.0}]


def test_map_filter_and_flat_map():
    assert out(numbers([1, 2, 3]).map(lambda n: n * n)) == [1, 4, 9]
    assert out(numbers([1, 2, 3]).filter(lambda n: n % 2)) == [1, 3]
    assert out(numbers([2, 0, 3]).flat_map(range)) == [0, 1, 0, 1, 2]


def test_flat_map_takes_generators():
    def twice(n):
        yield n
        yield -n

    assert out(numbers([1, 2]).flat_map(twice)) == [1, -1, 2, -2]


def test_a_declared_map_gives_records():
    stream = numbers([1, 2]).map(lambda n: {"b": str(n), "a": n}, schema={"a": int, "b": str})
    assert out(stream.map(lambda row: (row.a, row["b"]))) == [(1, "1"), (2, "2")]


def test_expressions():
    assert out(records(ROWS).filter(pc.field("v") > 2)) == [(3, 4.0)]
    assert out(records(ROWS).select("t", double=pc.field("v") * 2)) == [(1, 3.0), (2, None), (3, 8.0)]


def test_a_filter_gives_the_row_itself():
    stream = numbers([1, 2]).map(lambda n: {"x": n}, schema={"x": float}).filter(pc.field("x") > 1)
    assert out(stream.map(lambda row: repr(row.x))) == ["2"]


def test_a_null_condition_does_not_hold():
    kept = records(ROWS).filter(pc.field("v") < 2).select("t")
    assert out(kept) == [(1,)]
    assert out(records(ROWS).filter(~(pc.field("v") < 2)).select("t")) == [(3,)]


def test_split_sends_a_row_to_the_first_that_holds():
    small, even, rest = numbers(range(8)).split(lambda n: n < 3, lambda n: n % 2 == 0)
    small.sink("small")
    even.sink("even")
    assert run(rest.sink("rest")) == {"small": [0, 1, 2], "even": [4, 6], "rest": [3, 5, 7]}


class TestMapBatches:
    def test_as_many_rows(self):
        def negate(batch):
            return batch.set_column(1, "v", pc.negate(batch.column("v")))

        assert out(records(ROWS).map_batches(negate)) == [(1, -1.5), (2, None), (3, -4.0)]

    def test_another_schema_and_a_table(self):
        def total(batch):
            return pa.table({"n": pc.add(batch.column("t"), 1)})

        assert out(records(ROWS).map_batches(total, schema={"n": int})) == [(2,), (3,), (4,)]

    def test_rows_and_the_index_of_their_input_row(self):
        def expand(batch):
            index = [i for i, t in enumerate(batch.column("t").to_pylist()) for _ in range(t)]
            return batch.take(pa.array(index, pa.int64())), index

        assert [row.t for row in out(records(ROWS).map_batches(expand))] == [1, 2, 2, 3, 3, 3]

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda batch: batch.slice(1), "map_batches got 1 rows and returned 0; return as many, or"),
            (lambda batch: (batch, [0, 0]), "returned 1 rows and 2 input indexes"),
            (lambda batch: (batch, [3]), "out of range or go back"),
            (lambda batch: (batch, [-1]), "out of range or go back"),
            (lambda batch: batch.select(["t"]), "map_batches returned no column 'v'; declared are t, v"),
            (lambda batch: batch.set_column(1, "v", pa.array(["x"])), "field 'v' has the value 'x'"),
        ],
    )
    def test_what_a_batch_function_may_not_return(self, function, message):
        with pytest.raises(OperatorError, match=r"operator 'b' failed") as caught:
            out(records(ROWS).map_batches(function, name="b"))
        assert message in str(caught.value)


class TestFields:
    ROWS: ClassVar = [{"a": 1, "b": "x", "c": 2.0}]

    def names_and_rows(self, change):
        stream = change(ps.Flow("fields").source("in", self.ROWS))
        return stream.type.names, ps.run(stream.sink("out"), on=ps.Sequential()).results["out"]

    def test_all_others(self):
        assert self.names_and_rows(lambda s: s.select("b", "*", d=pc.field("a") + 1)) == (
            ["b", "a", "c", "d"],
            [("x", 1, 2.0, 2)],
        )
        assert self.names_and_rows(lambda s: s.select("*", a=pc.field("a") * 5)) == (["b", "c", "a"], [("x", 2.0, 5)])

    def test_drop_and_rename(self):
        assert self.names_and_rows(lambda s: s.drop("b")) == (["a", "c"], [(1, 2.0)])
        assert self.names_and_rows(lambda s: s >> ps.rename({"b": "a", "a": "b"})) == (["b", "a", "c"], [(1, "x", 2.0)])
        with pytest.raises(FlowError, match="leave at least one field"):
            self.names_and_rows(lambda s: s >> ps.drop("a", "b", "c"))
