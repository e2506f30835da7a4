"""Rows that cannot be read leave on the source's errors, in their place, exactly once, on every engine and cut.

What is meant is written down in plain Python while the files are written; nothing of the readers is used for it.
"""

from __future__ import annotations

import json
import os
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import FlowError, SourceError
from penstock.testing.kit import assert_same

from ..how import how
from ..patience import PATIENCE
from .epochs import inline, threads
from .scratch import scratch

SCHEMA = {"n": int, "name": str, "price": float}
MALFORMED = {
    "json": [
        *('{"n": 1, "name"', "null", '{"n": 1} null', "5", "[]", '{"n": "x", "name": "a"}', "{{}", "} null {"),
        *('{"n": 1.5}', '{"n": 99999999999999999999}', '{"price": {"a": 1}}', "\x00", "not json", '{"n": 1, "n": 2}'),
    ],
    "csv": ["1", "x,a,2.0", "1,a,2.0,4", "1,a,dear", ",,,,", "99999999999999999999,a,1.0"],
}


class Written:
    """A directory of files, and what stands in them row by row: ("row", n) or ("bad", its text)."""

    def __init__(self, directory: Path, format: str) -> None:
        self.directory, self.format = directory, format
        self.meant: list[tuple[str, Any]] = []
        directory.mkdir()
        self._files = self._rows = 0

    def add(self, lines: list[str | None], *, newline: str = "\n") -> None:
        """Write a file: None is a row as it should be, a blank line is passed over, others cannot be read."""
        text = ["n,name,price"] if self.format == "csv" else []
        for line in lines:
            if line is None:
                number = self._rows
                self._rows += 1
                self.meant.append(("row", number))
                record = {"n": number, "name": f"u{number % 3}", "price": number / 2}
                text.append(json.dumps(record) if self.format == "json" else ",".join(map(str, record.values())))
            else:
                text.append(line)
                if line.strip():
                    self.meant.append(("bad", line))
        self.write("".join(each + newline for each in text).encode())

    def write(self, content: bytes) -> Path:
        self._files += 1
        path = self.directory / f"{self._files:03d}.{self.format}"
        path.write_bytes(content)
        os.utime(path, ns=(self._files * 10**9, self._files * 10**9))
        return path

    def source(self, flow: ps.Flow, name: str, **options: Any) -> ps.Stream:
        reader = getattr(ps.read, self.format)(str(self.directory), schema=SCHEMA)
        return flow.source(name, reader, **{"on_error": "dead_letter", **options})


def told(stream: ps.Stream) -> ps.Stream:
    """Join the rows of a source with what cannot be read, so that the place of each shows."""
    rows = stream.map(lambda row: {"kind": "row", "what": str(row.n)}, schema={"kind": str, "what": str})
    errors = stream.errors.map(lambda bad: {"kind": "bad", "what": bad.row}, schema={"kind": str, "what": str})
    return rows.union(errors)


def run(engine: str, flow: ps.Flow, epoch_rows: int = 7) -> dict[str, list[Any]]:
    if engine == "sequential":
        return dict(ps.run(flow, **how("sequential")).results)
    return {"threads": threads, "inline": inline}[engine](flow, epoch_rows=epoch_rows)


ENGINES = ["sequential", "threads", "inline"]


@st.composite
def files(draw: Any, format: str) -> list[list[str | None]]:
    line = st.one_of(st.none(), st.none(), st.none(), st.sampled_from(MALFORMED[format]), st.just(""))
    return draw(st.lists(st.lists(line, max_size=12), min_size=1, max_size=4))


class TestLines:
    @pytest.mark.parametrize("format", ["json", "csv"])
    @pytest.mark.parametrize("engine", ENGINES)
    @settings(max_examples=12, deadline=None)
    @given(data=st.data())
    def test_each_in_its_place(self, engine, format, data):
        with scratch() as path:
            written = Written(Path(path) / "in", format)
            for lines in data.draw(files(format)):
                written.add(lines, newline=data.draw(st.sampled_from(["\n", "\r\n"])))
            flow = ps.Flow("unreadable")
            order = data.draw(st.sampled_from([{}, {"order_by": "n"}]))
            told(written.source(flow, "in", **order)).sink("out")
            results = run(engine, flow, data.draw(st.integers(1, 12)))["out"]
            assert [(row.kind, row.what) for row in results] == [(kind, str(what)) for kind, what in written.meant]

    @pytest.mark.parametrize("engine", ENGINES)
    @settings(max_examples=8, deadline=None)
    @given(data=st.data())
    def test_they_take_their_turn(self, engine, data):
        with scratch() as path:
            flow, meant = ps.Flow("turns"), []
            streams = []
            for name in ("a", "b"):
                written = Written(Path(path) / name, "json")
                for lines in data.draw(files("json")):
                    written.add(lines)
                meant.append(written.meant)
                streams.append(told(written.source(flow, name)))
            streams[0].union(streams[1]).sink("out")
            results = run(engine, flow, data.draw(st.integers(1, 12)))["out"]
            turns = [each for pair in zip_longest(*meant) for each in pair if each is not None]
            assert [(row.kind, row.what) for row in results] == [(kind, str(what)) for kind, what in turns]

    @pytest.mark.parametrize("engine", ENGINES)
    def test_a_letter_says_where_and_why(self, engine, tmp_path):
        written = Written(tmp_path / "in", "json")
        written.add([None, "", "{oh", None, '{"n": "x"}'])
        flow = ps.Flow("letters")
        stream = written.source(flow, "in")
        stream.errors.sink("bad")
        stream.sink("good")
        results = run(engine, flow)
        path = tmp_path / "in" / "001.json"
        assert [row.n for row in results["good"]] == [0, 1]
        assert [(bad.operator, bad.where, bad.row) for bad in results["bad"]] == [
            ("in", f"{path}, line 3", "{oh"),
            ("in", f"{path}, line 5", '{"n": "x"}'),
        ]
        assert "JSON parse error" in results["bad"][0].error
        assert "/n" in results["bad"][1].error

    @pytest.mark.parametrize("engine", ENGINES)
    def test_skipped(self, engine, tmp_path):
        written = Written(tmp_path / "in", "csv")
        written.add([None, "x,y,z", None])
        flow = ps.Flow("skips")
        written.source(flow, "in", on_error="skip").map(lambda row: row.n, schema=int).sink("out")
        assert run(engine, flow)["out"] == [0, 1]

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("line", ["null", "{oh", '{"n": 1} null'])
    def test_without_on_error_the_line_is_named(self, engine, line, tmp_path):
        written = Written(tmp_path / "in", "json")
        written.add([None, None, line, None])
        flow = ps.Flow("fails")
        written.source(flow, "in", on_error="fail").sink("out")
        with pytest.raises(SourceError, match=r"001.json cannot be read as json: line 3: .*on_error="):
            run(engine, flow)

    @pytest.mark.parametrize("engine", ENGINES)
    def test_many_in_a_large_file(self, engine, tmp_path):
        written = Written(tmp_path / "in", "json")
        written.add(["{oh" if number % 997 == 5 else None for number in range(60_000)])
        flow = ps.Flow("large")
        stream = written.source(flow, "in")
        stream.errors.map(lambda bad: bad.where.rsplit(" ", 1)[1], schema=str).sink("bad")
        stream.map(lambda row: row.n, schema=int).sink("good")
        results = run(engine, flow, 20_000)
        assert results["bad"] == [str(number + 1) for number in range(60_000) if number % 997 == 5]
        assert results["good"] == [what for kind, what in written.meant if kind == "row"]

    def test_text_that_is_no_utf_8(self, tmp_path):
        written = Written(tmp_path / "in", "json")
        written.write(b'{"n": 1, "name": "caf\xc3\xa9"}\n{"n": 2, "name": "\xff"}\n{"n": 3}\n')
        flow = ps.Flow("bytes")
        stream = written.source(flow, "in")
        stream.errors.sink("bad")
        stream.map(lambda row: (row.n, row.name), schema=tuple[int, str]).sink("out")
        results = run("threads", flow)
        assert_same({"out": list(results["out"])}, {"out": [(1, "café"), (3, None)]})
        assert "UTF-8" in results["bad"][0].error

    def test_a_header_without_a_column_is_an_unreadable_file(self, tmp_path):
        written = Written(tmp_path / "in", "csv")
        written.add([None])
        written.write(b"n,name\n1,a\n2,b\n")
        written.add([None])
        flow = ps.Flow("header")
        stream = written.source(flow, "in")
        stream.errors.map(lambda bad: (bad.where, bad.error), schema=tuple[str, str]).sink("bad")
        stream.map(lambda row: row.n, schema=int).sink("good")
        for engine in ENGINES:
            results = run(engine, flow)
            assert results["good"] == [0, 1]
            ((where, error),) = results["bad"]
            assert where == str(tmp_path / "in" / "002.csv")
            assert "no column 'price'; the columns are n, name" in error

    def test_a_first_line_that_is_null_needs_a_schema(self, tmp_path):
        (tmp_path / "a.json").write_text("null\n")
        with pytest.raises(FlowError, match="give schema="):
            ps.Flow("first").source("in", ps.read.json(str(tmp_path)))


class TestItems:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_values_that_do_not_fit(self, engine):
        rows = [{"n": n} if n % 3 else {"n": f"no {n}"} for n in range(20)]
        flow = ps.Flow("items")
        stream = flow.source("in", ps.read.items(rows, schema={"n": int}), on_error="dead_letter")
        stream.errors.map(lambda bad: (bad.where, bad.row), schema=tuple[str, str]).sink("bad")
        stream.map(lambda row: row.n, schema=int).sink("good")
        results = run(engine, flow)
        assert results["good"] == [n for n in range(20) if n % 3]
        assert [tuple(each) for each in results["bad"]] == [
            (f"row {n}", json.dumps({"n": f"no {n}"})) for n in range(0, 20, 3)
        ]


def damage(path: Path, group: int) -> None:
    """Spoil a row group of a file."""
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(group).column(0)
    content[column.dictionary_page_offset or column.data_page_offset] ^= 0xFF
    path.write_bytes(content)


class TestParquet:
    @staticmethod
    def table(start: int, stop: int) -> pa.Table:
        numbers = list(range(start, stop))
        return pa.table({"n": numbers, "name": [f"u{n}" for n in numbers], "price": [n / 2 for n in numbers]})

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("order", [{}, {"order_by": "n"}])
    @pytest.mark.parametrize("epoch_rows", [1, 4, 100])
    def test_files_and_row_groups_that_are_damaged(self, engine, order, epoch_rows, tmp_path):
        written = Written(tmp_path / "in", "parquet")
        for start in (0, 10):
            pq.write_table(self.table(start, start + 10), written.write(b"."), row_group_size=5)
        damage(written.directory / "002.parquet", 1)
        written.write(b"this is no Parquet")
        pq.write_table(self.table(20, 25), written.write(b"."))
        for number, path in enumerate(sorted(written.directory.iterdir())):
            os.utime(path, ns=(number * 10**9, number * 10**9))
        flow = ps.Flow("damaged")
        stream = written.source(flow, "in", **order)
        rows = stream.map(lambda row: str(row.n), schema=str)
        rows.union(stream.errors.map(lambda bad: Path(bad.where).name, schema=str)).sink("out")
        assert run(engine, flow, epoch_rows)["out"] == [
            *map(str, range(15)),
            "002.parquet, rows 5 to 10",
            "003.parquet",
            *map(str, range(20, 25)),
        ]

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    def test_a_store_that_fails_for_a_moment_is_no_damage(self, on_error, tmp_path, monkeypatch):
        """What stores answer has no number, and damage has none: the same bytes read again tell one from the other."""
        written = Written(tmp_path / "in", "parquet")
        pq.write_table(self.table(0, 10), written.write(b"."), row_group_size=5)
        failures, read = [3], pq.ParquetFile.iter_batches

        def flaky(self: Any, *arguments: Any, **options: Any) -> Any:
            for batch in read(self, *arguments, **options):
                if failures[0]:
                    failures[0] -= 1
                    raise OSError("SLOW_DOWN")
                yield batch

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", flaky)
        monkeypatch.setattr("penstock.connectors.retries.time.sleep", lambda seconds: None)
        flow = ps.Flow("flaky")
        written.source(flow, "in", on_error=on_error).map(lambda row: row.n, schema=int).sink("out")
        assert run("threads", flow)["out"] == list(range(10))
        assert failures == [0]

    def test_damage_without_on_error_fails_at_once(self, tmp_path):
        written = Written(tmp_path / "in", "parquet")
        pq.write_table(self.table(0, 10), path := written.write(b"."), row_group_size=5)
        damage(path, 1)
        flow = ps.Flow("damaged")
        written.source(flow, "in", on_error="fail").sink("out")
        with pytest.raises(SourceError, match=r"001.parquet cannot be read as parquet: .*on_error="):
            run("threads", flow)

    @pytest.mark.parametrize("engine", ENGINES)
    def test_values_that_do_not_fit(self, engine, tmp_path):
        pq.write_table(pa.table({"n": ["1", "two", "3"]}), tmp_path / "a.parquet")
        flow = ps.Flow("misfits")
        stream = flow.source("in", ps.read.parquet(str(tmp_path), schema={"n": int}), on_error="dead_letter")
        stream.errors.map(lambda bad: (bad.where, bad.row), schema=tuple[str, str]).sink("bad")
        stream.map(lambda row: row.n, schema=int).sink("good")
        results = run(engine, flow)
        assert results["good"] == [1, 3]
        assert [tuple(each) for each in results["bad"]] == [(f"{tmp_path / 'a.parquet'}, row 1", '{"n": "two"}')]


@pytest.mark.parametrize("engine", ["threads", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_they_are_counted(engine, on_error, tmp_path, request):
    session = request.getfixturevalue("spark") if engine == "spark" else None
    written = Written(tmp_path / "in", "json")
    written.add([None, "{oh", None, "null"])
    flow = ps.Flow("counted")
    written.source(flow, "in", on_error=on_error).sink("out")
    run = ps.start(flow, on=ps.Spark(session) if session is not None else ps.Threads())
    assert run.await_end(PATIENCE)
    assert run.stats.operators["in"].errors == 2
