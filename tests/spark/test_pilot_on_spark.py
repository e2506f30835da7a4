"""The pilot on a real Spark: what tasks report reaches it, what it decides is done, and the output stays exact.

What is decided from which figures is tested on figures that are made up (`test_pilot`): here they are the machine's.
"""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.clock import STRETCH
from penstock.elastic.decisions import replay
from penstock.elastic.epochs import OneTask
from penstock.rows.keys import SHARDS, hash_value
from penstock.spark import levers as tables

from .running import make_rows, read_back, sequential, write_files

pytestmark = pytest.mark.spark
OUT = {"n": int, "k": int, "count": int}
EPOCH_ROWS, EPOCHS = 300, 8
TURNS = 5000
"""Some 200 us a row, so that an epoch has something to balance."""
WAIT = 0.002


def lookup(row: Any) -> Any:
    """Wait, as for a server."""
    time.sleep(WAIT)
    return row


def counted(count: int, row: Any) -> tuple[int, tuple[int, int, int]]:
    """Count a key's rows, slowly."""
    spun = 0.0
    for _ in range(TURNS):
        spun = spun * 0.5 + 1.0
    return count + 1, (row.n, row.k, count + 1)


@pytest.fixture
def flow(tmp_path: Path) -> ps.Flow:
    """Make a flow whose keys all lie on the first of two tasks; one of them has half of the rows."""
    keys = [key for key in range(400) if hash_value(key) % SHARDS < SHARDS // 2][:40]
    rows = make_rows(EPOCH_ROWS * EPOCHS, keys=len(keys))
    rows = [{**row, "k": keys[0] if row["n"] % 2 else keys[row["k"]]} for row in rows]
    write_files(tmp_path / "data", rows, EPOCH_ROWS)
    made = ps.Flow("piloted")
    looked = made.source("rows", ps.read.parquet(str(tmp_path / "data"))).map(lookup, waits=True, name="looked up")
    scan = looked.key_by("k").scan(counted, 0, schema=OUT, name="counted")
    scan.sink("out", ps.write.parquet(str(tmp_path / "out")))
    return made


def assert_exact(flow: ps.Flow, tmp_path: Path) -> None:
    expected = sequential(flow)
    assert read_back(tmp_path / "out") == [tuple(row) for row in expected.results["out"]]
    assert ps.state.values(str(tmp_path / "ck"), "counted") == expected.state("counted")


def test_shards_leave_the_busy_task_and_the_hot_key_is_named(spark, flow, tmp_path, monkeypatch):
    # However fast the machine is, what the busy task has too much is worth a move.
    monkeypatch.setattr(tables, "LEAST_WORK", 0.0)
    monkeypatch.setattr(tables, "BALANCE", dataclasses.replace(tables.BALANCE, least_gain=0.0))
    run = ps.run(
        flow, on=ps.Spark(spark, tasks=2, epoch_rows=EPOCH_ROWS), checkpoint=str(tmp_path / "ck"), name_keys=True
    )
    assert_exact(flow, tmp_path)
    first, last = run.epochs[0], run.epochs[EPOCHS - 1]
    assert _rows_of_tasks(first) == [EPOCH_ROWS, 0]
    assert min(_rows_of_tasks(last)) > 0
    counted = last.operators["counted"]
    heavy = max(counted.shards, key=lambda shard: counted.shards[shard][0])
    (name, share), *_ = counted.hot_keys[heavy]
    keys = [key for key in range(400) if hash_value(key) % SHARDS < SHARDS // 2]
    assert name == repr(keys[0])
    assert share > 0.8
    assert all(sum(len(tasks) for tasks in stats.stage_times.values()) >= 3 for stats in run.epochs[:EPOCHS])
    moves = [line for line in run.decisions if line.what == "table"]
    assert moves
    assert all(line.controller == "counted/shards" and line.tables and " instead of " in line.why for line in moves)
    assert replay(run.decisions).same


def test_the_user_sets_nothing_and_a_target(spark, flow, tmp_path, monkeypatch):
    # However fast the machine is, no epoch is small enough for one task: then the tasks of stages are asked about.
    monkeypatch.setattr("penstock.spark.levers.OneTask", partial(OneTask, shuffle_seconds=0.0))
    # A wait of nearly an hour would show, were it made once nothing is to come.
    run = ps.run(flow, on=ps.Spark(spark, epoch_rows=EPOCH_ROWS), checkpoint=str(tmp_path / "ck"), latency="3600 s")
    assert_exact(flow, tmp_path)
    started = {line.controller for line in run.decisions if line.what == "start"}
    assert started == {
        "epoch/one_task",
        "stage 1/tasks",
        "counted/shards",
        "looked up/in_flight",
        "epoch/rows",
        "epoch/every",
    }
    seen = [line.statistics for line in run.decisions if line.controller == "looked up/in_flight" and line.statistics]
    assert all(each["wait_seconds"] > 0 for each in seen[1:])
    assert len(seen) > 1
    # The rows that go into a stage are counted, and its time is a part of the job's.
    stages = [line.statistics for line in run.decisions if line.controller == "stage 1/tasks" and line.statistics]
    longest = max(stats.job_seconds for stats in run.epochs)
    assert all(0 < each["seconds"] < longest and each["rows"] == EPOCH_ROWS for each in stages[1:])
    assert len(stages) > 1
    assert replay(run.decisions).same


def test_workers_measure_with_the_clocks_of_the_driver(spark):
    def stretch(_: int) -> float:
        from penstock import clock

        return clock.STRETCH

    assert spark.sparkContext.parallelize([0, 1], 2).map(stretch).collect() == [STRETCH] * 2


def _rows_of_tasks(stats: Any) -> list[int]:
    """Return how many rows the tasks of the keyed operator had."""
    table, found = stats.operators["counted"].table, [0, 0]
    for shard, (rows, _) in stats.operators["counted"].shards.items():
        found[table[shard]] += rows
    return found
