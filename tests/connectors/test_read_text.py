"""Lines of text as a source."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import os
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors import text as reading
from penstock.errors import SourceError

from ..how import how


def lines_of(path: Path, engine: str = "sequential") -> list[str]:
    flow = ps.Flow("text")
    flow.source("lines", ps.read.text(str(path))).map(lambda row: row.value, schema=str).sink("out")
    return ps.run(flow, **how(engine)).results["out"]


@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_files_in_order_line_by_line(tmp_path, engine):
    for number, text in enumerate([b"one\n\ntwo\n", b'three,"quoted\r\nfour\r\n', b"five"]):
        (tmp_path / f"{9 - number}.log").write_bytes(text)
        os.utime(tmp_path / f"{9 - number}.log", ns=(number * 10**9, number * 10**9))
    assert lines_of(tmp_path, engine) == ["one", "", "two", 'three,"quoted', "four", "five"]


@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_files_of_one_time_go_by_name(tmp_path, engine):
    names = [f"{name}{number}" for name in "cab" for number in (7, 10, 2)]
    for name in names:
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))
    assert lines_of(tmp_path, engine) == sorted(names)


def test_a_line_longer_than_what_is_read_at_once(tmp_path):
    long = "x" * 9_000_000
    (tmp_path / "a").write_text(f"before\n{long}\nbehind\n")
    assert lines_of(tmp_path) == ["before", long, "behind"]


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    (tmp_path / "a").write_bytes(b"caf\xc3\xa9\n\xff\xfe\n")
    assert lines_of(tmp_path) == ["café", "\ufffd\ufffd"]


def test_a_missing_file(tmp_path):
    with pytest.raises(SourceError, match="there is no"):
        lines_of(tmp_path / "none")


def test_a_file_that_is_named_is_read_wherever_it_is(tmp_path):
    hidden = tmp_path / ".data" / "_in"
    hidden.mkdir(parents=True)
    (hidden / "a.log").write_text("one")
    (hidden / ".not yet").write_text("two")
    assert lines_of(hidden / "a.log") == ["one"]
    assert lines_of(hidden) == ["one"]
    assert lines_of(hidden / ".." / ".." / ".data" / "_in" / "a.log") == ["one"]


class TestRecordsOfSeveralLines:
    """A value of CSV in quotes may go over several lines."""

    TEXTS = ("a\nb", 'say "x"\n\n,y', "plain", "", '5" pipe', "\n")

    def source(self, path: Path, **options: Any) -> ps.Stream:
        return ps.Flow("csv").source("in", ps.read.csv(str(path), schema={"n": int, "s": str}), **options)

    @pytest.mark.parametrize("size", [1, 2, 7, 64])
    def test_wherever_the_file_is_cut(self, tmp_path, monkeypatch, size):
        monkeypatch.setattr(reading, "BLOCK_BYTES", size)
        rows = [(n, self.TEXTS[n % 6]) for n in range(30)]
        quoted = [f'{n},"{s.replace(chr(34), chr(34) * 2)}"' for n, s in rows]
        (tmp_path / "a.csv").write_text("n,s\n" + "\n".join(quoted) + "\n")
        assert ps.run(self.source(tmp_path).sink("out"), on=ps.Sequential()).results["out"] == rows

    def test_one_that_cannot_be_read_is_one_dead_letter(self, tmp_path):
        (tmp_path / "a.csv").write_text('n,s\n1,"a\nb"\nx,"c\n9,d"\n3,5" pipe\ny,z\n4,"e"\n')
        stream = self.source(tmp_path, on_error="dead_letter")
        stream.errors.sink("errors")
        found = ps.run(stream.sink("out"), on=ps.Sequential()).results
        assert found["out"] == [(1, "a\nb"), (3, '5" pipe'), (4, "e")]
        assert [(each.where.rpartition(", ")[2], each.row) for each in found["errors"]] == [
            ("line 4", 'x,"c\n9,d"'),
            ("line 7", "y,z"),
        ]


def test_days_in_json(tmp_path):
    (tmp_path / "a.json").write_text('{"d": "2024-02-29", "l": ["2024-03-01"]}\n{"d": null}\n{"d": "soon"}\n')
    schema = {"d": dt.date, "l": list[dt.date]}
    stream = ps.Flow("days").source("in", ps.read.json(str(tmp_path), schema=schema), on_error="skip")
    day = dt.date(2024, 2, 29)
    assert ps.run(stream.sink("out"), on=ps.Sequential()).results["out"] == [(day, [dt.date(2024, 3, 1)]), (None, None)]


@pytest.mark.parametrize(("form", "kind"), [("json", dt.timedelta), ("csv", list[int])])
def test_what_no_text_can_be_read_as(tmp_path, form, kind):
    with pytest.raises(ps.FlowError, match=f"source 'in': {form} has no form for the field 'p'"):
        ps.Flow("no form").source("in", getattr(ps.read, form)(str(tmp_path), schema={"n": int, "p": kind}))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_lines_of_csv_end_as_any_system_ends_them(tmp_path, engine, end):
    (tmp_path / "a.csv").write_bytes(end.join(["", "n,s", "1,a\u2028b", "", "2,c\x85d", "3,e"]).encode())
    flow = ps.Flow("ends")
    flow.source("in", ps.read.csv(str(tmp_path), schema={"n": int, "s": str})).sink("out")
    assert ps.run(flow, **how(engine)).results["out"] == [(1, "a\u2028b"), (2, "c\x85d"), (3, "e")]


FORMS = {
    "json": "".join(f'{{"n": {n}}}\n' for n in range(5)),
    "csv": "n\n" + "".join(f"{n}\n" for n in range(5)),
    "text": "".join(f"{n}\n" for n in range(5)),
}


class TestCompressed:
    """Names tell what is compressed, as they tell Spark."""

    def source(self, path: Path, form: str, **options: Any) -> ps.Stream:
        schema = {} if form == "text" else {"schema": {"n": int}}
        return ps.Flow("packed").source("in", getattr(ps.read, form)(str(path), **schema), **options)

    @pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress)])
    @pytest.mark.parametrize("form", FORMS)
    def test_is_read_as_what_it_holds(self, tmp_path, form, ending, pack):
        text = FORMS[form].encode()
        # Two of them in one file are one after the other.
        (tmp_path / f"a.{form}.{ending}").write_bytes(pack(text[:9]) + pack(text[9:]))
        (tmp_path / "b.plain").write_bytes(text)
        for path in tmp_path.iterdir():
            os.utime(path, (1, 1))
        found = ps.run(self.source(tmp_path, form).sink("out"), on=ps.Threads()).results["out"]
        assert [int(row[0]) for row in found] == [*range(5), *range(5)]

    def test_the_schema_is_found_in_it(self, tmp_path):
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"n,s\n1,x\n"))
        flow = ps.Flow("packed").source("in", ps.read.csv(str(tmp_path))).sink("out")
        assert ps.run(flow, on=ps.Sequential()).results["out"] == [(1, "x")]

    def test_damage_is_no_failing_disk(self, tmp_path, monkeypatch):
        """Rows before it stay; the rest of the file is one row that cannot be read, in its place."""
        monkeypatch.setattr(reading, "BLOCK_BYTES", 8)
        (tmp_path / "a.gz").write_bytes(gzip.compress(FORMS["json"].encode())[:-6])
        (tmp_path / "b").write_text('{"n": 9}')
        for path in tmp_path.iterdir():
            os.utime(path, (1, 1))
        with pytest.raises(SourceError, match=r"a\.gz cannot be read as json: the rest of it: Truncated"):
            ps.run(self.source(tmp_path, "json").sink("out"), on=ps.Threads())
        stream = self.source(tmp_path, "json", on_error="dead_letter")
        stream.errors.sink("errors")
        found = ps.run(stream.sink("out"), on=ps.Threads()).results
        assert [row.n for row in found["out"]] in ([*range(count), 9] for count in range(6))
        assert [each.where for each in found["errors"]] == [f"{tmp_path}/a.gz, the rest of it"]


def test_a_header_in_another_encoding_is_an_unreadable_file(tmp_path):
    (tmp_path / "a.csv").write_bytes("n,größe\n1,2\n".encode("latin-1"))
    reader = ps.read.csv(str(tmp_path), schema={"n": int})
    with pytest.raises(SourceError, match=r"a\.csv cannot be read as csv: not UTF-8"):
        ps.run(ps.Flow("latin").source("in", reader).sink("out"), on=ps.Sequential())
    with pytest.raises(ps.FlowError, match=r"a\.csv cannot be read as csv: not UTF-8"):
        ps.Flow("latin").source("in", ps.read.csv(str(tmp_path)))


@pytest.mark.parametrize("form", ["json", "csv"])
class TestTimes:
    """Whatever is in a file beside it, a time is read alike: without an offset in UTC, cut to microseconds."""

    TIMES: ClassVar = {
        "2026-01-01T12:00:00": (12, 0),
        "2026-01-01 12:00:00.5": (12, 500_000),
        "2026-01-01": (0, 0),
        "2026-01-01T12:00:00Z": (12, 0),
        "2026-01-01T12:00:00+02:00": (10, 0),
        "2026-01-01T12:00:00.123456789Z": (12, 123_456),
        "2026-01-01T12:00:00.123456789": (12, 123_456),
    }

    def read(self, path: Path, form: str, times: list[str], kind: Any = dt.datetime) -> Any:
        path.mkdir()
        lines = [f"{time},5" if form == "csv" else f'{{"at": "{time}", "n": 5}}' for time in times]
        (path / "a").write_text("\n".join(["at,n", *lines] if form == "csv" else lines))
        reader = getattr(ps.read, form)(str(path), schema={"at": kind, "n": int})
        rows = ps.Flow("times").source("in", reader, on_error="dead_letter")
        rows.errors.sink("bad")
        return ps.run(rows.sink("out"), **how("sequential")).results

    @pytest.mark.parametrize("kind", [dt.datetime, pa.timestamp("us")])
    def test_alone_and_together(self, tmp_path, form, kind):
        zone = dt.UTC if kind is dt.datetime else None
        wanted = [dt.datetime(2026, 1, 1, hour, 0, 0, micro, zone) for hour, micro in self.TIMES.values()]
        alone = [self.read(tmp_path / str(n), form, [time], kind)["out"][0].at for n, time in enumerate(self.TIMES)]
        together = [row.at for row in self.read(tmp_path / "all", form, list(self.TIMES), kind)["out"]]
        assert alone == together == wanted

    def test_what_is_no_time_is_told_by_its_column(self, tmp_path, form):
        found = self.read(tmp_path / "in", form, ["2026-01-01T12:00:00", "soon", "2026-01-01T12:00:00.1234567Z"])
        assert [row.at.hour for row in found["out"]] == [12, 12]
        (letter,) = found["bad"]
        assert letter.error == "column 'at': 'soon' is no timestamp[us, tz=UTC]"


def test_a_value_of_csv_that_does_not_fit_is_told_by_its_column(tmp_path):
    (tmp_path / "a.csv").write_text("n,at,x\n1,NULL,1.5\n2,2026-01-01,soon\n")
    reader = ps.read.csv(str(tmp_path), schema={"x": float, "at": dt.datetime})
    rows = ps.Flow("values").source("in", reader, on_error="dead_letter")
    rows.errors.sink("bad")
    found = ps.run(rows.sink("out"), **how("sequential")).results
    assert found["out"] == [(1.5, None)]
    (letter,) = found["bad"]
    assert letter.error.startswith("column 'x': ")
    assert "'soon'" in letter.error
