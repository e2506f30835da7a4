"""Lookups in tables and in streams, against loops in plain Python; and what is refused."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import read
from penstock.errors import FlowError
from penstock.flow import Flow, Stream

from ..running import out, run

ROWS = [{"t": t, "k": k, "v": t * 10} for t, k in enumerate(["a", "b", None, "x", "a"])]
SCHEMA = {"t": int, "k": str, "v": int}


def stream(rows: list[dict[str, Any]] = ROWS, **options: Any) -> Stream:
    return Flow("f").source("in", read.items(rows, schema=SCHEMA), time="t", **options)


class City(NamedTuple):
    k: str
    city: str


@dataclass
class Town:
    k: str
    city: str


CITIES = [{"k": "a", "city": "Aachen"}, {"k": "b", "city": "Bonn"}]
FOUND = ["Aachen", "Bonn", None, None, "Aachen"]


class TestTables:
    @pytest.mark.parametrize(
        "table",
        [
            CITIES,
            {"a": {"city": "Aachen"}, "b": {"city": "Bonn"}},
            [City("a", "Aachen"), City("b", "Bonn")],
            {"a": Town("a", "Aachen"), "b": Town("b", "Bonn")},
            pa.Table.from_pylist(CITIES),
            pa.RecordBatch.from_pylist(CITIES),
            read.items(CITIES),
            lambda: CITIES,
        ],
        ids=["rows", "dict", "tuples", "dict of rows", "arrow", "batch", "reader", "function"],
    )
    def test_what_a_table_can_be(self, table: Any) -> None:
        assert [row.city for row in out(stream().lookup(table, on="k"))] == FOUND

    @pytest.mark.parametrize("form", ["file", "directory", "csv", "json", "reader", "function"])
    def test_files(self, tmp_path: Path, form: str) -> None:
        whole = pa.Table.from_pylist(CITIES)
        if form == "csv":
            (tmp_path / "t.csv").write_text("k,city\na,Aachen\nb,Bonn\n")
            table: Any = tmp_path / "t.csv"
        elif form == "json":
            (tmp_path / "t.jsonl").write_text('{"k": "a", "city": "Aachen"}\n{"k": "b", "city": "Bonn"}\n')
            table = str(tmp_path / "t.jsonl")
        else:
            for number in range(2):
                pq.write_table(whole.slice(number, 1), tmp_path / f"{number}.parquet")
            if form == "file":
                pq.write_table(whole, tmp_path / "whole.parquet")
            table = str(tmp_path / "whole.parquet") if form == "file" else str(tmp_path)
        if form == "reader":
            table = read.parquet(str(tmp_path))
        if form == "function":
            path = str(tmp_path)
            table = lambda: path  # noqa: E731
        assert [row.city for row in out(stream().lookup(table, on="k"))] == FOUND

    def test_pandas(self) -> None:
        pandas = pytest.importorskip("pandas")
        assert [row.city for row in out(stream().lookup(pandas.DataFrame(CITIES), on="k"))] == FOUND

    def test_the_index_of_pandas_if_it_has_a_name(self) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(CITIES).set_index("k")
        assert [row.city for row in out(stream().lookup(frame, on="k"))] == FOUND

    def test_bare_values_of_a_dict(self) -> None:
        found = out(stream().lookup({"a": 1.5, "b": 2.5}, on="k", fields={"value": "weight"}))
        assert [row.weight for row in found] == [1.5, 2.5, None, None, 1.5]

    def test_bare_values_beside_a_field_that_is_called_as_they_are(self) -> None:
        source = Flow("f").source("in", read.items([1, 2]))
        found = source.lookup({1: "one"}, on={"value": "number"}, fields={"value": "word"})
        assert [tuple(row) for row in out(found)] == [(1, "one"), (2, None)]

    def test_keys_of_several_fields(self) -> None:
        found = out(stream().lookup({("a", 4): {"n": 1}, ("b", 0): {"n": 2}}, on=["k", "t"], how="inner"))
        assert [tuple(row) for row in found] == [(4, "a", 40, 1)]

    def test_keys_of_other_names_do_not_come_along(self) -> None:
        table = [{"id": "a", "city": "Aachen"}]
        found = stream().lookup(table, on={"k": "id"})
        assert found.type is not None
        assert found.type.names == ["t", "k", "v", "city"]

    def test_names(self) -> None:
        table = [{"k": "a", "v": 1, "t": dt.date(2024, 1, 1)}]
        for options, names in [
            ({}, ["v_right", "t_right"]),
            ({"prefix": "x."}, ["x.v", "x.t"]),
            ({"fields": "t"}, ["t_right"]),
            ({"fields": ["t", "k"], "prefix": "x_"}, ["x_t", "x_k"]),
            ({"fields": {"t": "day"}}, ["day"]),
            ({"fields": []}, []),
        ]:
            found = stream().lookup(table, on="k", **options)
            assert found.type is not None
            assert found.type.names == ["t", "k", "v", *names]
            assert len(out(found)) == 5

    def test_the_type_comes_from_both_sides(self) -> None:
        found = stream().lookup([{"k": "a", "day": dt.date(2024, 1, 1)}], on="k")
        assert found.type is not None
        assert [str(field.type) for field in found.type.schema] == ["int64", "string", "int64", "date32[day]"]

    def test_numbers_are_equal_whatever_their_type_and_nan_is_one_key(self) -> None:
        rows = [{"x": 1.0}, {"x": -0.0}, {"x": math.nan}, {"x": 0.5}]
        source = Flow("f").source("in", read.items(rows))
        assert [row.n for row in out(source.lookup({1: "one", 0: "zero"}, on="x", fields={"value": "n"}))] == [
            "one",
            "zero",
            None,
            None,
        ]
        source = Flow("f").source("in", read.items(rows))
        found = out(source.lookup([{"x": math.nan, "n": "nan"}], on="x", how="inner"))
        assert [row.n for row in found] == ["nan"]


class TestAsOf:
    def test_the_latest_row_that_is_not_after(self) -> None:
        table = [{"k": "a", "since": 3, "p": 30}, {"k": "a", "since": 0, "p": 0}, {"k": "b", "since": 2, "p": 2}]
        found = out(stream().lookup(table, on="k", as_of={"t": "since"}, fields="p"))
        assert [row.p for row in found] == [0, None, None, None, 30]

    @given(
        table=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12),
        rows=st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 10)), max_size=12),
        how=st.sampled_from(["left", "inner"]),
    )
    def test_as_a_loop_would(self, table: set[tuple[int, int]], rows: list[Any], how: Any) -> None:
        given = [{"key": k, "at": at, "n": n} for n, (k, at) in enumerate(table)]
        source = Flow("f").source("in", read.items([{"k": k, "t": t} for k, t in rows], schema={"k": int, "t": int}))
        kind = {"key": int, "at": int, "n": int}
        found = source.lookup(given, on={"k": "key"}, as_of={"t": "at"}, how=how, schema=kind)
        expected = []
        for k, t in rows:
            there = [(e["at"], e["n"]) for e in given if e["key"] == k and t is not None and e["at"] <= t]
            if there or how == "left":
                expected.append((k, t, *(max(there) if there else (None, None))))
        assert [tuple(row) for row in out(found)] == expected


Moves = st.lists(st.tuples(st.sampled_from("LR"), st.integers(0, 12), st.none() | st.integers(0, 2)), max_size=16)


def streams(how: Any, slack: int = 0, **options: Any) -> Stream:
    flow, kind = Flow("f"), {"t": int, "k": int, "n": int}
    left, right = (flow.source(n, read.items([], schema=kind), time="t", slack=slack) for n in ("L", "R"))
    return left.lookup(right, on="k", how=how, fields={"n": "found"}, **options)


class TestStreams:
    @given(Moves, st.sampled_from(["left", "inner"]))
    def test_by_position_as_a_loop_would(self, moves: list[Any], how: Any) -> None:
        latest: dict[Any, int] = {}
        expected, sequence = [], []
        for n, (side, t, k) in enumerate(moves):
            sequence.append((side, {"t": t, "k": k, "n": n}))
            if side == "R" and k is not None:
                latest[k] = n
            elif side == "L" and (k in latest or how == "left"):
                expected.append((t, k, n, latest.get(k)))
        assert [tuple(row) for row in run(streams(how).sink("out"), sequence)["out"]] == expected

    @given(Moves, st.sampled_from(["left", "inner"]), st.integers(0, 4))
    def test_by_time_as_a_loop_would(self, moves: list[Any], how: Any, slack: int) -> None:
        """A row comes out once the lower watermark is past its time, and finds all that are not late by then."""
        marks = {"L": -math.inf, "R": -math.inf}
        waiting: list[Any] = []
        versions: list[Any] = []
        expected, late, sequence = [], [], []

        def pass_mark(mark: float) -> None:
            for t, n, k in sorted(entry for entry in waiting if entry[0] < mark):
                there = [(at, m) for at, m, key in versions if key == k is not None and at <= t]
                if there or how == "left":
                    expected.append((t, k, n, max(there)[1] if there else None))
            waiting[:] = [entry for entry in waiting if entry[0] >= mark]

        for n, (side, t, k) in enumerate(moves):
            sequence.append((side, {"t": t, "k": k, "n": n}))
            marks[side] = max(marks[side], t - slack)
            mark = min(marks.values())
            pass_mark(mark)
            if t < mark:
                late.append(n)
            elif side == "R":
                versions.append((t, n, k))
            else:
                waiting.append((t, n, k))
        pass_mark(math.inf)
        found = streams(how, slack, as_of="t")
        found.late.map(lambda row: row.n).sink("late")
        # Nothing that comes out is late for what is below.
        windows = found.window(3).count()
        windows.late.sink("late below")
        windows.sink("counts")
        results = run(found.sink("out"), sequence)
        assert [tuple(row) for row in results["out"]] == expected
        assert results["late"] == late
        assert results["late below"] == []

    def test_a_keyed_stream_has_its_own_key(self) -> None:
        flow = Flow("f")
        left = flow.source("L", read.items([], schema={"k": int}))
        right = flow.source("R", read.items([], schema={"a": int, "b": int}))
        found = left.lookup(right.key_by("b"), on="k")
        sequence = [("R", {"a": 7, "b": 1}), ("L", {"k": 1}), ("R", {"a": 8, "b": 1}), ("L", {"k": 1})]
        assert [tuple(row) for row in run(found.sink("out"), sequence)["out"]] == [(1, 7), (1, 8)]

    def test_keys_by_a_function_and_rows_of_other_forms(self) -> None:
        flow = Flow("f")
        left = flow.source("L", read.items([], schema=int))
        right = flow.source("R", read.items([], schema=Town))
        found = left.lookup(right.key_by(lambda row: len(row.city)), on="value", fields="city")
        sequence = [("R", Town("a", "Ulm")), ("L", 3), ("L", 4)]
        assert [tuple(row) for row in run(found.sink("out"), sequence)["out"]] == [(3, "Ulm"), (4, None)]

    def test_what_had_no_row_for_long_is_forgotten(self) -> None:
        sequence = [("R", {"t": 0, "k": 1, "n": 0}), ("R", {"t": 1, "k": 2, "n": 1})]
        sequence += [("L", {"t": 2, "k": 1, "n": 2}), ("R", {"t": 9, "k": 3, "n": 3})]
        sequence += [("L", {"t": t, "k": k, "n": 4}) for t, k in [(6, 2), (7, 1), (9, 1)]]
        assert [row.found for row in run(streams("left", ttl=5).sink("out"), sequence)["out"]] == [0, None, None, None]


BAD = [
    ({"on": "x"}, "key_by names the field 'x'"),
    ({"on": {"k": "x"}}, "on= in its table names the field 'x', but the rows have 'k', 'city'"),
    ({"on": 3}, "on=3; give a field"),
    ({"on": []}, r"on=\[\]; give a field"),
    ({"on": "t", "table": {1: {"city": "x"}, "b": {"city": "y"}}}, "give schema="),
    ({"on": "t"}, "on= in its table names the field 't'"),
    ({"on": {"t": "k"}}, "which are never equal"),
    ({"how": "outer"}, 'use "left" or "inner"'),
    ({"fields": "x"}, "fields= in its table names the field 'x'"),
    ({"fields": {"city": "v"}}, "two fields the name 'v'"),
    ({"as_of": True}, "as_of=True is for streams"),
    ({"as_of": "t"}, "as_of= in its table names the field 't'"),
    ({"as_of": {"t": "city"}}, "no common order"),
    ({"refresh": 0}, "refresh=0"),
    ({"refresh": "soon"}, "is no duration"),
    ({"ttl": 5}, "ttl= is for streams"),
    ({"table": 7}, "7 is no table; give a dict"),
    ({"table": iter(CITIES)}, "is no table"),
    ({"table": []}, "give schema="),
    ({"table": "nowhere/at/all"}, "there is no directory 'nowhere/at/all'"),
    ({"table": read.parquet("x", follow=True)}, "leave that out and give refresh="),
    ({"table": [*CITIES, CITIES[0]]}, "rows 0 and 2 of the table .* have the same k: 'a'; a lookup finds one row"),
    ({"table": lambda: 1 / 0}, "the function that reads its table failed: ZeroDivisionError"),
    ({"table": {"a": {"k": "b"}}}, "on= calls the key so, too; give the key another name"),
    ({"table": {"a": 1, ("b", 2): 3}, "on": ["k", "t"]}, "the key 'a' of its table is no tuple of 2 values"),
]


class TestRefusals:
    @pytest.mark.parametrize(("options", "problem"), BAD)
    def test_of_tables(self, options: dict[str, Any], problem: str) -> None:
        given = {"table": CITIES, "on": "k", **options}
        with pytest.raises(FlowError, match=problem) as error:
            stream().lookup(given.pop("table"), name="cities", **given)
        assert "'cities'" in str(error.value)

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"refresh": "1 s"}, "refresh= is for tables"),
            ({"schema": {"k": int}}, "schema= is for tables"),
            ({"as_of": "n"}, "as_of='n' needs time='n' on source 'L'"),
        ],
    )
    def test_of_streams(self, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(FlowError, match=problem):
            streams("left", **options)

    def test_a_stream_without_time_beside_one_that_has_it(self) -> None:
        flow = Flow("f")
        left = flow.source("L", read.items(ROWS, schema=SCHEMA), time="t")
        right = flow.source("R", read.items(ROWS, schema=SCHEMA))
        with pytest.raises(FlowError, match="whose times differ"):
            left.lookup(right, on="k")

    def test_files_with_a_key_twice(self, tmp_path: Path) -> None:
        pq.write_table(pa.Table.from_pylist([*CITIES, CITIES[1]]), tmp_path / "t.parquet")
        with pytest.raises(FlowError, match="operator 'cities': rows 1 and 2 of the table"):
            out(stream().lookup(str(tmp_path), on="k", name="cities"))
