"""Files of a source that change between a crash and the restart: a part of their rows is processed, or was planned."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import SourceError
from penstock.spark.engine import SparkEngine

from .running import Crash, make_engine, read_back, run_inline

ROWS = 40


def write(path: Path, first: int, rows: int) -> None:
    table = pa.table({"n": range(first, first + rows)})
    if path.suffix == ".parquet":
        pq.write_table(table, path, compression="none", use_dictionary=False)
    else:
        pa.csv.write_csv(table, path)


def build(path: Path, out: Path) -> ps.Flow:
    flow = ps.Flow("changed")
    if path.suffix == ".parquet":
        rows = flow.source("rows", ps.read.parquet(str(path.parent)), order_by="n")
    else:
        rows = flow.source("rows", ps.read.csv(str(path.parent), schema={"n": int}), order_by="n")
    rows.sink("out", ps.write.parquet(str(out)))
    return flow


def stopped(engine: SparkEngine) -> None:
    """Stop after the first epoch, in the middle of the file."""
    engine._listener = lambda stats: engine.stop()
    engine.run()


def crashed(engine: SparkEngine) -> None:
    """Crash in the second epoch, which is planned and not run."""
    run = engine._backend.run

    def crash(spec, frames):
        if spec.epoch == 2:
            raise Crash
        return run(spec, frames)

    engine._backend.run = crash
    with pytest.raises(Crash):
        engine.run()


def truncate(path: Path) -> None:
    write(path, 0, 15)


def replace(path: Path) -> None:
    """Write other rows, of the same size."""
    size = path.stat().st_size
    write(path, 100, ROWS) if path.suffix == ".parquet" else write(path, 0, ROWS)
    assert path.suffix != ".parquet" or path.stat().st_size == size
    os.utime(path, (2000, 2000))


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("end", [stopped, crashed])
@pytest.mark.parametrize("change", [truncate, replace])
def test_a_file_that_has_changed_is_refused(tmp_path, form, end, change):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / f"rows.{form}"
    write(path, 0, ROWS)
    os.utime(path, (1000, 1000))
    before = path.read_bytes()
    flow = build(path, tmp_path / "out")
    end(make_engine(flow, tmp_path / "ck", epoch_rows=20))
    change(path)
    with pytest.raises(SourceError, match=rf"'rows'.*{path.name} has changed.*put it back as it was"):
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
    assert read_back(tmp_path / "out") == [(n,) for n in range(20)]
    path.write_bytes(before)  # the way out that the message names
    os.utime(path, (1000, 1000))
    run_inline(flow, tmp_path / "ck", epoch_rows=20)
    assert read_back(tmp_path / "out") == [(n,) for n in range(ROWS)]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_rows_that_are_gone_while_it_runs_are_missed(tmp_path, form):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / f"rows.{form}"
    write(path, 0, ROWS)
    flow = build(path, tmp_path / "out")
    engine = make_engine(flow, tmp_path / "ck", epoch_rows=20)
    cut: Callable[[object], None] = lambda stats: write(path, 0, 25)  # noqa: E731
    engine._listener = cut
    with pytest.raises(SourceError, match=rf"'rows'.*{path.name} has changed.*of rows \d+ to \d+ it has \d"):
        engine.run()
    assert read_back(tmp_path / "out") == [(n,) for n in range(20)]
