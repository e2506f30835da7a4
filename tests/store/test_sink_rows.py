"""Reading a sink's directory: what is committed, in order and once, also while a run is at work or has crashed."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import cli
from penstock.store import lease as leases
from penstock.store.checkpoint import Checkpoint
from penstock.store.sink_rows import SinkReader
from penstock.testing.kit import assert_same

from ..how import how
from ..in_turn import few_of
from ..spark.running import Crash, Disk, make_engine, make_rows, read_back, run_inline, write_files

ROWS = 104
FORMATS = ["parquet", "json", "csv"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", make_rows(ROWS), 13)
    return tmp_path / "data"


def build(data: Path, out: Path, form: str = "parquet", **files: Any) -> ps.Flow:
    flow = ps.Flow("read")
    rows = flow.source("rows", ps.read.parquet(str(data)))
    rows.sink("out", getattr(ps.write, form)(str(out), **files))
    return flow


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("engine", ["inline", "threads"])
@pytest.mark.parametrize("by", [(), ("k",), ("k", "t")], ids=len)
def test_all_rows_are_read_as_they_were_written(data, tmp_path, form, engine, by):
    flow = build(data, tmp_path / "out", form, partition_by=by, file_size=3000)
    if engine == "inline":
        run_inline(flow, tmp_path / "ck", epoch_rows=10)
    else:
        ps.run(flow, **how("threads"))
    found = list(ps.read.sink(str(tmp_path / "out")))
    expected = sorted(make_rows(ROWS), key=lambda row: tuple(f"{name}={row[name]}" for name in by))
    assert found == expected if engine == "inline" else sorted(found, key=lambda row: row["n"]) == make_rows(ROWS)
    assert ps.read.sink(str(tmp_path / "out")).table().num_rows == ROWS


ODD: list[tuple[Any, list[Any]]] = [
    (float, [1.5, math.nan, math.inf, None, 0.1]),
    (str, ["", None, "a,b", 'q"q', "a\nb", "NULL", "NaN", "é", "\r\n"]),
    (dt.date, [dt.date(2024, 2, 29), None]),
    (dt.datetime, [dt.datetime(2024, 1, 1, 1, 2, 3, 4, dt.UTC), None]),
    (pa.decimal128(10, 2), [Decimal("1.10"), None]),
    (bool, [None, False]),
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(("kind", "values"), ODD)
def test_odd_values_are_read_as_they_were_written(tmp_path, form, alone, kind, values):
    rows = [{"v": value} if alone else {"n": n, "v": value} for n, value in enumerate(values)]
    source = ps.Flow("odd").source("in", ps.read.items(rows, schema={"v": kind} if alone else {"n": int, "v": kind}))
    run_inline(source.sink("out", getattr(ps.write, form)(str(tmp_path / "out"))), tmp_path / "ck", epoch_rows=2)
    # Files of one column have no way to tell null from an empty text.
    meant = ["" if value is None and kind is str and form == "csv" and alone else value for value in values]
    assert_same({"v": meant}, {"v": [row["v"] for row in ps.read.sink(str(tmp_path / "out"))]})
    flow = ps.Flow("again")
    flow.source("in", ps.read.sink(str(tmp_path / "out"))).map(lambda row: row.v).sink("out")
    assert_same({"v": meant}, {"v": ps.run(flow, on=ps.Sequential()).results["out"]})


@pytest.mark.parametrize("by", [(), ("k",)], ids=["", "partitions"])
@pytest.mark.parametrize("files", [{}, {"file_size": 6000}, {"roll_every": 0}], ids=str)
def test_one_who_follows_gets_each_row_once_while_files_roll(data, tmp_path, files, by):
    flow = build(data, tmp_path / "out", partition_by=by, **files)
    engine = make_engine(flow, tmp_path / "ck", epoch_rows=7)
    reader, found = SinkReader(str(tmp_path / "out")), list[dict[str, Any]]()

    def look(stats: Any) -> None:
        found.extend(row for batch in reader.read() for row in batch.to_pylist())
        assert len(found) == Checkpoint(str(tmp_path / "ck")).latest().rows_in, "all that is committed, and no more"

    engine._listener = look
    engine.run()
    found.extend(row for batch in reader.read() for row in batch.to_pylist())
    numbers = [row["n"] for row in found]
    assert sorted(numbers) == list(range(ROWS))
    if not by:
        assert numbers == list(range(ROWS))
    for key in range(11):
        mine = [row["n"] for row in found if row["k"] == key]
        assert mine == sorted(mine)
    assert reader.visible + reader.waiting == ROWS
    assert bool(reader.waiting) == (files != {"roll_every": 0})


@pytest.mark.parametrize("seed", few_of(range(8), 3))
@pytest.mark.parametrize("by", [(), ("k",)], ids=["", "partitions"])
def test_after_any_crash_what_is_read_is_what_is_committed(data, tmp_path, monkeypatch, seed, by):
    draw = random.Random(seed)
    flow = build(data, tmp_path / "out", partition_by=by, file_size=8000)
    for _ in range(100):
        with monkeypatch.context() as patch:
            Disk(patch, tmp_path, crash_at=draw.randint(5, 60))
            try:
                run_inline(flow, tmp_path / "ck", epoch_rows=9, seed=draw.random())
                break
            except Crash:
                pass
        committed = Checkpoint(str(tmp_path / "ck")).latest().rows_in
        if committed:
            assert sorted(row["n"] for row in ps.read.sink(str(tmp_path / "out"))) == list(range(committed))
    assert sorted(row["n"] for row in ps.read.sink(str(tmp_path / "out"))) == list(range(ROWS))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_it_is_a_source_in_order(data, tmp_path, form, engine):
    run_inline(build(data, tmp_path / "out", form, roll_every=0), tmp_path / "ck", epoch_rows=10)
    flow = ps.Flow("again")
    flow.source("rows", ps.read.sink(str(tmp_path / "out"))).sink("again", ps.write.parquet(str(tmp_path / "again")))
    run_inline(flow, tmp_path / "ck2", epoch_rows=7) if engine == "inline" else ps.run(flow, **how("threads"))
    assert read_back(tmp_path / "again") == [tuple(row.values()) for row in make_rows(ROWS)]


def test_partitions_are_no_source(data, tmp_path):
    run_inline(build(data, tmp_path / "out", partition_by="k"), tmp_path / "ck")
    with pytest.raises(ps.FlowError, match=r"source 'rows'.*has partitions.*order_by="):
        ps.Flow("again").source("rows", ps.read.sink(str(tmp_path / "out")))


def test_what_is_no_sink_is_refused(tmp_path):
    with pytest.raises(ps.FlowError, match="is no directory of a sink"):
        ps.read.sink(str(tmp_path))


class TestCommand:
    @pytest.fixture
    def waiting(self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return a directory whose run was killed: 40 rows are visible, 30 wait."""
        engine = make_engine(build(data, tmp_path / "out"), tmp_path / "ck", epoch_rows=10)
        engine._listener = lambda stats: engine.stop() if stats.epoch == 4 else None
        engine.run()
        engine = make_engine(build(data, tmp_path / "out"), tmp_path / "ck", epoch_rows=10)

        def die(stats: Any) -> None:
            if stats.epoch == 7:
                raise KeyboardInterrupt

        engine._listener = die
        monkeypatch.setattr(leases, "_exists", lambda pid: False)
        with pytest.raises(KeyboardInterrupt):
            engine.run()
        return tmp_path / "out"

    def test_json_has_all_rows_and_tells_which_wait(self, waiting, capsys):
        assert cli.main(["sink", str(waiting), "--format", "json"]) == 0
        out, err = capsys.readouterr()
        assert [json.loads(line) for line in out.splitlines()] == make_rows(70)
        assert err == "40 rows of visible files; 30 that are committed and wait to be part of one\n"

    def test_a_table_has_the_first(self, waiting, capsys):
        assert cli.main(["sink", str(waiting), "--rows", "3"]) == 0
        out, err = capsys.readouterr()
        assert [line.split()[0] for line in out.splitlines()] == ["n", "0", "1", "2"]
        assert "--rows 0 shows all" in err

    def test_csv_has_the_names_once(self, waiting, capsys):
        assert cli.main(["sink", str(waiting), "--format", "csv"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "n,t,k,v"
        assert len(lines) == 71

    def test_without_the_log_it_says_what_it_does_not_know(self, waiting, tmp_path, capsys):
        (tmp_path / "ck").rename(tmp_path / "away")
        assert cli.main(["sink", str(waiting), "--format", "json"]) == 0
        out, err = capsys.readouterr()
        assert len(out.splitlines()) == 40
        assert "what waits is not known" in err

    def test_what_is_no_sink(self, tmp_path, capsys):
        assert cli.main(["sink", str(tmp_path / "nothing")]) == 1
        assert "there is no directory" in capsys.readouterr().err
