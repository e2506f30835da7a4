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
from penstock.plan import make_plan
from penstock.spark.engine import Options, SparkEngine
from penstock.spark.frames import takes_all
from penstock.spark.job import SparkBackend

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
        run = ps.start(flow_over(frame, out), spark=spark, checkpoint=str(tmp_path / "ck"))
        run.on_epoch(partial(stop_after_rows, run))
        assert run.await_end(120)
    assert read_back(out) == expected(rows_of(0, 55))
    assert ps.state.values(str(tmp_path / "ck"), "running").keys() == {0, 1, 2, 3, 4}


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
    run = ps.start(flow_over(frame, out), spark=spark)
    run.on_epoch(partial(stop_after_rows, run))
    assert run.await_end(120)
    assert read_back(out) == expected(rows_of(0, 60))


def test_a_batch_frame_is_read_in_epochs(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(rows_of(0, 100), "serial long, key long, value double").repartition(3, "key")
    run = ps.run(flow_over(frame, tmp_path / "out", order_by="serial"), spark=spark, epoch_rows=30)
    assert [stats.rows_in for stats in run.epochs] == [30, 30, 30, 10, 0]
    assert read_back(tmp_path / "out") == expected(rows_of(0, 100))


def test_a_streaming_frame_behind_a_shuffle_needs_an_order(spark: Any, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("value as serial", "value % 3 as key", "0.5D as value")
    with pytest.raises(ps.FlowError, match=r"'events'.*order_by"):
        ps.run(flow_over(frame.repartition(2), tmp_path / "out"), spark=spark)


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
    # A minute leaves room for an epoch on any machine.
    options = Options(str(tmp_path / "ck"), latency=60.0)
    rows: list[int] = []

    def after(stats: Any) -> None:
        rows.append(stats.rows_in)
        if len(rows) < 4:
            put(2 * len(rows) - 1)

    engine = SparkEngine(make_plan(flow_over(frame, out)), SparkBackend(spark), options, after)

    def put_while_held(number: int) -> None:
        assert engine._frames is not None
        assert engine._frames._current is not None, "Spark could cut the next batch before the wait is over"
        put(number)

    engine._stop = meanwhile = Meanwhile([partial(put_while_held, number) for number in (2, 4, 6)])
    engine.run()
    assert rows == [20, 40, 40, 40]
    assert all(0 < waited < 60 for waited in meanwhile.waited)
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
