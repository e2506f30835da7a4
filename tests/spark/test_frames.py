"""Spark DataFrames as sources: streaming and batch, in order, and across a restart."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

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
