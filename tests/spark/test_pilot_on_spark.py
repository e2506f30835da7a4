"""The pilot on a real Spark: what tasks report reaches it, what it decides is done, and the output stays exact."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.elastic.decisions import replay
from penstock.keys import SHARDS, hash_value

from .running import make_rows, read_back, sequential, write_files

pytestmark = pytest.mark.spark
OUT = {"n": int, "k": int, "count": int}
EPOCH_ROWS, EPOCHS = 300, 8
TURNS = 5000
"""Some 200 us a row, so that an epoch has something to balance."""


def lookup(row: Any) -> Any:
    """Wait, as for a server."""
    time.sleep(0.0005)
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


def test_shards_leave_the_busy_task_and_the_hot_key_is_named(spark, flow, tmp_path):
    run = ps.run(flow, spark=spark, checkpoint=str(tmp_path / "ck"), tasks=2, epoch_rows=EPOCH_ROWS, name_keys=True)
    assert_exact(flow, tmp_path)
    first, last = run.epochs[0], run.epochs[EPOCHS - 1]
    assert _busiest(first) > 1.8
    assert _busiest(last) < 1.5
    heavy = max(last.shards["counted"], key=lambda shard: last.shards["counted"][shard][0])
    (name, share), *_ = last.hot_keys["counted"][heavy]
    keys = [key for key in range(400) if hash_value(key) % SHARDS < SHARDS // 2]
    assert name == repr(keys[0])
    assert share > 0.8
    assert all(sum(len(tasks) for tasks in stats.levels.values()) >= 3 for stats in run.epochs[:EPOCHS])
    moves = [line for line in run.decisions if line.what == "shard"]
    assert moves
    assert all(line.controller == "counted/shards" and "of the mean" in line.why for line in moves)
    assert replay(run.decisions).same


def test_the_user_sets_nothing_and_a_target(spark, flow, tmp_path):
    # A wait of nearly a minute would show, were it made once nothing is to come.
    run = ps.run(flow, spark=spark, checkpoint=str(tmp_path / "ck"), epoch_rows=EPOCH_ROWS, latency="60 s")
    assert_exact(flow, tmp_path)
    started = {line.controller for line in run.decisions if line.what == "start"}
    assert started == {
        "epoch/one_task",
        "level 1/tasks",
        "counted/shards",
        "looked up/in_flight",
        "epoch/rows",
        "epoch/every",
    }
    # The lookup waits far longer than it computes.
    seen = [line.statistics for line in run.decisions if line.controller == "looked up/in_flight" and line.statistics]
    assert all(each["wait_seconds"] > 0.0004 for each in seen[1:])
    assert len(seen) > 1
    # The rows that go into a level are counted, and its time is a part of the job's.
    levels = [line.statistics for line in run.decisions if line.controller == "level 1/tasks" and line.statistics]
    assert all(0 < each["seconds"] < 600 and each["rows"] == EPOCH_ROWS for each in levels[1:])
    assert len(levels) > 1
    # Costly rows are not for one task.
    assert [stats.tasks for stats in run.epochs[1:EPOCHS]] != [1] * (EPOCHS - 1)
    assert replay(run.decisions).same


def slow_at_first(total: int, row: Any) -> tuple[int, int]:
    """Compute for a while for the rows of the first epoch, as a worker does that still imports."""
    until = time.process_time() + (0.005 if row.n < 100 else 0.0)
    while time.process_time() < until:
        pass
    return total + 1, total + 1


def test_small_epochs_go_back_to_one_task_behind_a_slow_one(spark, tmp_path):
    flow = ps.Flow("small")
    rows = [{"n": n, "key": n % 10} for n in range(1_000)]
    flow.source("numbers", ps.read.items(rows)).key_by("key").scan(slow_at_first, 0).sink("out")
    run = ps.run(flow, spark=spark, checkpoint=str(tmp_path / "ck"), epoch_rows=100)
    assert [line.after for line in run.decisions if line.what == "one_task"] == [True, False, True]


def _busiest(stats: Any) -> float:
    """Return the rows of the busiest task over the mean, from the processor time of its level."""
    tasks = [cpu for _, cpu in stats.levels[1]]
    return max(tasks) / (sum(tasks) / len(tasks))
