"""Spark DataFrames as sources: streaming and batch, in order, and across a restart."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.elastic.decisions import from_json, replay, to_json
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.spark.engine import SparkEngine
from penstock.spark.frames import takes_all
from penstock.spark.job import SparkBackend
from penstock.store.objects import LocalStore

from ..patience import PATIENCE

pytestmark = pytest.mark.spark


def running(state: tuple[int, float], row: Any) -> tuple[tuple[int, float], tuple[int, int, int, float]]:
    count, total = state[0] + 1, state[1] + row.value
    return (count, total), (row.serial, row.key, count, total)


OUT = {"serial": int, "key": int, "count": int, "total": float}


def expected(rows: list[tuple[int, int, float]]) -> list[tuple[int, int, int, float]]:
    """Compute the running count and sum by a plain loop."""
    states: dict[int, tuple[int, float]] = {}
    out = []
    for serial, key, value in rows:
        count, total = states.get(key, (0, 0.0))
        states[key] = (count + 1, total + value)
        out.append((serial, key, count + 1, total + value))
    return out


def write_rows(directory: Path, name: str, rows: list[tuple[int, int, float]]) -> None:
    table = pa.table({"serial": [r[0] for r in rows], "key": [r[1] for r in rows], "value": [r[2] for r in rows]})
    pq.write_table(table, directory / name)


def rows_of(start: int, stop: int) -> list[tuple[int, int, float]]:
    return [(i, (i * 7) % 5, i / 3) for i in range(start, stop)]


def flow_over(frame: Any, out: Path, **source: Any) -> ps.Flow:
    flow = ps.Flow("frames")
    stream = flow.source("events", frame, **source)
    stream.key_by("key").scan(running, (0, 0.0), schema=OUT, name="running").sink("out", ps.write.parquet(str(out)))
    return flow


def read_back(out: Path) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for file in sorted(out.glob("epoch=*/part-*.parquet")):
        table = pq.ParquetFile(file).read()
        rows += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows


def stop_after_rows(run: ps.Run, stats: Any) -> None:
    if stats.rows_in:
        run.stop()


def test_a_streaming_frame_of_files_keeps_its_order_and_goes_on_after_a_stop(spark: Any, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    frame = (
        spark.readStream.schema("serial long, key long, value double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(data))
    )
    for number, (start, stop) in enumerate([(0, 40), (40, 55)]):
        write_rows(data, f"{number}.parquet", rows_of(start, stop))
        run = ps.start(flow_over(frame, out), on=ps.Spark(spark), checkpoint=str(tmp_path / "ck"))
        run.on_epoch(partial(stop_after_rows, run))
        assert run.await_end(PATIENCE)
    assert read_back(out) == expected(rows_of(0, 55))
    assert ps.state.values(str(tmp_path / "ck"), "running").keys() == {0, 1, 2, 3, 4}


def test_windows_over_a_streaming_frame(spark: Any, tmp_path: Path) -> None:
    """The place of a row takes several numbers there, and windows must know: marks are put among the rows by them."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        write_rows(data, f"{number}.parquet", rows_of(20 * number, 20 * number + 20))
        os.utime(data / f"{number}.parquet", (number + 1, number + 1))

    def flow_of(reader: Any) -> ps.Flow:
        flow = ps.Flow("windows")
        stream = flow.source("events", reader, time="serial")
        stream.key_by("key").window(10).aggregate(n=ps.agg.count(), s=ps.agg.sum("value")).sink("windows")
        stream.key_by("key").scan(running, (0, 0.0), schema=OUT).sink("counts")
        return flow

    rows = [dict(zip(("serial", "key", "value"), row, strict=True)) for row in rows_of(0, 60)]
    meant = ps.run(flow_of(ps.read.items(rows)), on=ps.Sequential(), end=False).results
    frame = spark.readStream.schema("serial long, key long, value double").parquet(str(data))
    run = ps.start(flow_of(frame), on=ps.Spark(spark))
    run.on_epoch(partial(stop_after_rows, run))
    assert run.await_end(PATIENCE)
    assert run.results == meant
    assert len(meant["windows"]) == 25


def test_a_streaming_frame_and_a_list_come_in_one_order(spark: Any, tmp_path: Path) -> None:
    """Rows of a batch that Spark has handed over wait, in the checkpoint, for those of another source."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(2):
        write_rows(data, f"{number}.parquet", [(n, 0, 0.0) for n in range(20 * number, 20 * number + 20, 2)])
        os.utime(data / f"{number}.parquet", (number + 1, number + 1))
    frame = spark.readStream.schema("serial long, key long, value double").option("maxFilesPerTrigger", 1)
    flow = ps.Flow("merged")
    stream = flow.source("stream", frame.parquet(str(data)), order_by="serial").map(lambda r: ("stream", r.serial))
    rows = [{"serial": n} for n in range(30)]
    listed = flow.source("list", ps.read.items(rows), order_by="serial").map(lambda r: ("list", r.serial))
    stream.union(listed).sink("out")
    seen = [0]
    run = ps.start(flow, on=ps.Spark(spark, epoch_rows=7), checkpoint=str(tmp_path / "ck"))

    def after(stats: Any) -> None:
        seen[0] += stats.rows_in
        if seen[0] >= 50:
            run.stop()

    run.on_epoch(after)
    assert run.await_end(PATIENCE)
    merged = sorted([(n, 0, "stream") for n in range(0, 40, 2)] + [(n, 1, "list") for n in range(30)])
    assert run.results["out"] == [(name, n) for n, _, name in merged]
    assert len(run.epochs) > 4


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_streaming_frame_of_text_files_keeps_its_order(spark: Any, tmp_path: Path, form: str) -> None:
    """Their rows have no number in Spark's stream, only in the batches that it hands over."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for number, start in enumerate((0, 30)):
        lines = [
            json.dumps({"serial": s, "key": k, "value": v}) if form == "json" else f"{s},{k},{v!r}"
            for s, k, v in rows_of(start, start + 30)
        ]
        (data / f"{number}.{form}").write_text("\n".join(lines))
        os.utime(data / f"{number}.{form}", (number + 1, number + 1))
    frame = spark.readStream.schema("serial long, key long, value double").format(form).load(str(data))
    run = ps.start(flow_over(frame, out), on=ps.Spark(spark))
    run.on_epoch(partial(stop_after_rows, run))
    assert run.await_end(PATIENCE)
    assert read_back(out) == expected(rows_of(0, 60))


@pytest.mark.parametrize("kind", ["streaming", "batch"])
def test_records_that_spark_cannot_read_are_dead_letters(spark: Any, tmp_path: Path, kind: str) -> None:
    """Where the DataFrame has the column for them; Spark itself would give rows of nulls, and say nothing."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "1.json").write_text('{"at": 1, "user": "ann"}\n{"at": 2, "us\n{"at": "soon"}\n{"at": 4, "user": "bob"}\n')
    read = spark.readStream if kind == "streaming" else spark.read
    frame = read.schema("at long, user string, _corrupt_record string").json(str(data))
    flow = ps.Flow("corrupt")
    rows = flow.source("rows", frame, time="at", on_error="dead_letter")
    rows.errors.sink("errors")
    rows.drop("_corrupt_record").sink("out")
    run = ps.start(flow, on=ps.Spark(spark), checkpoint=str(tmp_path / "ck"))
    run.on_epoch(partial(stop_after_rows, run))
    assert run.await_end(PATIENCE)
    assert [tuple(row) for row in run.results["out"]] == [(1, "ann"), (4, "bob")]
    assert [letter.row for letter in run.results["errors"]] == ['{"at": 2, "us', '{"at": "soon"}']
    assert {letter.error for letter in run.results["errors"]} == {
        "not a record of the schema (it is in '_corrupt_record')"
    }
    assert run.stats.operators["rows"].errors == 2


def test_a_batch_frame_is_read_in_epochs(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(rows_of(0, 100), "serial long, key long, value double").repartition(3, "key")
    run = ps.run(flow_over(frame, tmp_path / "out", order_by="serial"), on=ps.Spark(spark, epoch_rows=30))
    assert [stats.rows_in for stats in run.epochs] == [30, 30, 30, 10]
    assert read_back(tmp_path / "out") == expected(rows_of(0, 100))


def test_a_batch_frame_is_not_written_again_because_the_disk_fails(
    spark: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    frame = spark.createDataFrame(rows_of(0, 30), "serial long, key long, value double").repartition(3, "key")
    flow, checkpoint = flow_over(frame, tmp_path / "out", order_by="serial"), str(tmp_path / "ck")
    ps.run(flow, on=ps.Spark(spark), checkpoint=checkpoint, end=False)
    written = sorted((tmp_path / "ck/sources").rglob("*.parquet"))
    assert written
    with monkeypatch.context() as patch:
        patch.setattr("penstock.store.objects._FIRST_PAUSE", 100.0)  # longer than anyone is patient
        patch.setattr(LocalStore, "_exists", lambda *_: (_ for _ in ()).throw(OSError("Input/output error")))
        with pytest.raises(ps.StorageError, match=r"looking for .*/sources/events/_SUCCESS"):
            ps.run(flow, on=ps.Spark(spark), checkpoint=checkpoint)
    assert sorted((tmp_path / "ck/sources").rglob("*.parquet")) == written
    ps.run(flow, on=ps.Spark(spark), checkpoint=checkpoint)
    assert read_back(tmp_path / "out") == expected(rows_of(0, 30))


def test_a_streaming_frame_behind_a_shuffle_needs_an_order(spark: Any, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("value as serial", "value % 3 as key", "0.5D as value")
    with pytest.raises(ps.FlowError, match=r"'events'.*order_by"):
        ps.run(flow_over(frame.repartition(2), tmp_path / "out"), on=ps.Spark(spark))


class Meanwhile(threading.Event):
    """A stop flag that does not wait for long: it plays what happens meanwhile, and ends the run behind the last."""

    def __init__(self, happens: list[Callable[[], None]]) -> None:
        super().__init__()
        self.happens, self.waited = happens, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or timeout < 1:
            return super().wait(timeout)
        self.waited.append(timeout)
        if self.happens:
            self.happens.pop(0)()
        else:
            self.set()
        return self.is_set()


def test_a_target_makes_epochs_of_a_streaming_frame_wait_for_rows(spark: Any, tmp_path: Path) -> None:
    """Spark cuts a batch behind the wait: it has the rows that came during the epoch and during the wait."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()

    def put(number: int) -> None:
        write_rows(tmp_path, "new", rows_of(20 * number, 20 * number + 20))
        os.utime(tmp_path / "new", (number + 1, number + 1))
        (tmp_path / "new").rename(data / f"{number}.parquet")

    put(0)
    frame = spark.readStream.schema("serial long, key long, value double").parquet(str(data))
    # Nobody waits for it here, and a day leaves room for an epoch on any machine.
    day = 86_400.0
    options = Options(on=ps.Spark(), checkpoint=str(tmp_path / "ck"), latency=day)
    rows: list[int] = []

    def after(stats: Any) -> None:
        rows.append(stats.rows_in)
        if len(rows) < 4:
            put(2 * len(rows) - 1)

    engine = SparkEngine(make_plan(flow_over(frame, out)), SparkBackend(spark), options, after)

    def put_while_held(number: int) -> None:
        assert engine._input is not None
        assert engine._input.frames is not None
        assert engine._input.frames._batches._taken, "Spark could cut the next batch before the wait is over"
        put(number)

    engine._stop = meanwhile = Meanwhile([partial(put_while_held, number) for number in (2, 4, 6)])
    engine.run()
    assert rows == [20, 40, 40, 40]
    assert all(0 < waited < day for waited in meanwhile.waited)
    assert len(meanwhile.waited) == 4
    assert read_back(out) == expected(rows_of(0, 140))
    assert "every" in {line.what for line in engine.decisions}
    assert replay(from_json(to_json(line)) for line in engine.decisions).same


@pytest.mark.parametrize(
    ("options", "everything"),
    [({}, True), ({"maxFilesPerTrigger": "1"}, False), ({"maxbytespertrigger": "1g"}, False)],
)
def test_a_reader_that_bounds_its_batches_leaves_rows(spark: Any, tmp_path: Path, options: Any, everything: bool):
    frame = spark.readStream.schema("serial long").options(**options).parquet(str(tmp_path)).filter("serial > 1")
    assert takes_all(frame) is everything


def test_only_readers_that_are_known_take_everything(spark: Any) -> None:
    assert takes_all(spark.readStream.format("rate").load())
    assert not takes_all(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load())


@pytest.mark.parametrize("source", ["rate-micro-batch", "rate"])
def test_a_run_can_be_stopped_at_any_moment(spark: Any, tmp_path: Path, source: str, capfd: Any) -> None:
    """Batches come without a pause, so that a stop meets them wherever they are; and nothing is logged as an error."""
    options = {"rowsPerBatch": "5"} if source == "rate-micro-batch" else {"rowsPerSecond": "1000"}
    frame = spark.readStream.format(source).options(**options).load()
    for number in range(8):
        flow = ps.Flow("rates")
        rows = flow.source("in", frame).key_by("value")
        rows.scan(lambda state, row: (state + 1, row.value), 0, name="count").sink("out")
        run = ps.start(flow, on=ps.Spark(spark), checkpoint=str(tmp_path / f"ck{number}"))
        enough = threading.Event()
        run.on_epoch(lambda stats, enough=enough, least=number % 3 + 1: stats.epoch >= least and enough.set())
        assert enough.wait(PATIENCE) or run.error is None
        run.stop()
        assert run.await_end(PATIENCE), "the stop hangs"
    out, err = capfd.readouterr()
    assert [line[:200] for line in (out + err).splitlines() if "ERROR" in line or "Exception" in line] == []
