"""Rows that go from task to task by files: the same rows, in whatever process they are read, and nothing is left."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.retries import retried
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.rows.chunk import Chunk
from penstock.rows.row_types import row_type
from penstock.spark.engine import SparkEngine
from penstock.spark.entry import by_file
from penstock.spark.envelope import (
    LEAST_BYTES,
    Envelope,
    FilePart,
    Kind,
    RowsLost,
    SharedFile,
    Spool,
    from_frame,
    pack,
    to_frame,
    unpack,
)
from penstock.spark.job import SparkBackend
from penstock.spark.shuffles import ByteShuffles, spec_file
from penstock.statistics import FlowStats

ROW = row_type({"k": int, "text": str}, "rows")
COUNT = 20_000


def envelope(first: int, count: int) -> Envelope:
    rows = [(i, "ü" * (i % 5)) for i in range(first, first + count)]
    chunk = Chunk([np.arange(first, first + count)], None, ROW, None, ROW.records(rows))
    return Envelope(1, 0, 0, Kind.DATA, first, pack(chunk, np.arange(count) % 7))


def sent(each: Envelope, shared: SharedFile) -> Envelope:
    """Send an envelope as Spark does: as bytes."""
    return from_frame(bytes(to_frame(by_file(each, shared))))


def test_rows_come_out_of_a_file_as_they_were(tmp_path):
    shared, spool = SharedFile(str(tmp_path)), Spool(limit=0)
    given = [envelope(0, COUNT), envelope(COUNT, 3), envelope(2 * COUNT, COUNT)]
    arrived = [sent(each, shared) for each in given]
    shared.close()
    assert [isinstance(each.payload, FilePart) for each in arrived] == [True, False, True], "few rows go as they are"
    # An envelope for a later stage goes on without being read.
    arrived = [sent(each, SharedFile(None)) for each in arrived]
    for each in arrived:
        spool.add(each)
    spool.seal()
    assert len(list(tmp_path.iterdir())) == 1
    for before, (position, place) in zip(given, spool.data[0], strict=True):
        assert position == before.position
        (found, shards), (expected, of) = unpack(spool.read(place), ROW), unpack(before.payload, ROW)
        assert found.get_columns().equals(expected.get_columns())
        assert shards.tolist() == of.tolist()
        assert [p.tolist() for p in found.positions] == [p.tolist() for p in expected.positions]
    spool.close()


def test_rows_that_are_gone_are_no_error_of_what_they_were_read_for(tmp_path):
    shared = SharedFile(str(tmp_path))
    spool = Spool()
    spool.add(sent(envelope(0, COUNT), shared))
    shared.close()
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(RowsLost, match="the rows of another task are gone"):
        retried(lambda: spool.read(spool.data[0][0][1]), "sink 'out': writing", "out")


def test_what_cannot_be_written_goes_through_spark(tmp_path):
    shared = SharedFile(str(tmp_path / "gone"))
    arrived = sent(envelope(0, COUNT), shared)
    assert isinstance(arrived.payload, pa.Buffer)
    assert unpack(arrived.payload, ROW)[0].get_columns().num_rows == COUNT
    assert not list(tmp_path.iterdir())


def add(state: int, row: ps.Record) -> tuple[int, dict[str, int]]:
    return state + 1, {"i": row.i, "k": row.k, "n": state}


def test_an_epoch_goes_to_its_tasks_without_a_file_where_there_is_no_room_for_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = spec_file(b"rows")
    assert file is not None
    with file:
        assert Path(file.name).read_bytes() == b"rows"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert spec_file(b"rows") is None
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda **_: open("/dev/full", "wb"))  # noqa: SIM115
    assert spec_file(b"rows") is None


def test_an_epoch_is_swept_though_the_main_thread_has_ended(tmp_path):
    """Another thread may run the flow to its end; Python's pools end with the main thread."""
    before, shuffles = threading.enumerate(), ByteShuffles(MagicMock(master="local[2]"))
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        shuffles._sweep_aside([], str(tmp_path / name))
        shuffles.close()
        assert list(tmp_path.iterdir()) == []
        assert not set(threading.enumerate()) - set(before)


@pytest.mark.spark
def test_the_next_epoch_is_made_while_nobody_waits_for_it_unless_it_has_other_tasks(spark, tmp_path, monkeypatch):
    made: list[tuple[int, bool]] = []
    (data := tmp_path / "data").mkdir()
    make = ByteShuffles._job

    def noted(self: ByteShuffles, packed: bytes, tasks: tuple[int, ...], *rest: Any) -> Any:
        made.append((max(tasks), threading.current_thread().name.startswith("penstock-sweep")))
        return make(self, packed, tasks, *rest)

    monkeypatch.setattr(ByteShuffles, "_job", noted)
    for number in range(4):
        pq.write_table(pa.table({"i": np.arange(50) + 50 * number, "k": np.arange(50) % 7}), data / f"{number}.parquet")
    flow = ps.Flow("ahead")
    rows = flow.source("rows", ps.read.parquet(str(data)))
    rows.key_by("k").scan(add, 0, schema={"i": int, "k": int, "n": int}).sink("out", ps.write.memory())

    def after(stats: FlowStats) -> None:
        if stats.epoch == 2:
            engine.set_tasks(3)

    options = Options(on=ps.Spark(spark, tasks=2, epoch_rows=50), checkpoint=str(tmp_path / "ck"))
    engine = SparkEngine(make_plan(flow), SparkBackend(spark), options, after)
    engine.run()
    assert [row.i for row in engine.results["out"]] == list(range(200))
    waited = [tasks for tasks, ahead in made if not ahead]
    assert waited[:2] == [2, 3]
    assert len(waited) <= 3, "the end of the source may have an epoch of its own"


@pytest.mark.spark
def test_on_spark_nothing_is_left(spark, tmp_path, monkeypatch):
    count = 4 * LEAST_BYTES // 8
    pq.write_table(pa.table({"i": np.arange(count), "k": np.arange(count) % 100}), tmp_path / "rows.parquet")
    flow = ps.Flow("shared")
    rows = flow.source("rows", ps.read.parquet(str(tmp_path)))
    rows.key_by("k").scan(add, 0, schema={"i": int, "k": int, "n": int}).sink("out", ps.write.memory())
    root, used = Path(spark.sparkContext._jvm.org.apache.spark.SparkFiles.getRootDirectory()), list[Path]()
    remove = shutil.rmtree

    def note(path: str, **options: bool) -> None:
        if Path(path).parent == root:
            used.extend(Path(path).iterdir())
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", note)
    kept = ps.run(flow, on=ps.Spark(spark, tasks=2)).results["out"]
    assert [(row.i, row.k, row.n) for row in kept] == [(i, i % 100, i // 100) for i in range(count)]
    assert len(used) >= 2, "rows went by files"
    assert not any(path.parent.exists() for path in used)
