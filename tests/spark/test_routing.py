"""The number of tasks and the table of shards change while a flow runs; an epoch is one job, and nothing runs twice."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.rows.keys import SHARDS, hash_value
from penstock.spark.stages import even_table

from ..patience import PATIENCE
from .running import assert_as_sequential, make_engine, make_rows, read_back, sequential, two_sinks, write_files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", make_rows(240), 24)
    return tmp_path / "data"


class TestEngine:
    """The driver's part, without Spark."""

    def run(self, data: Path, tmp_path: Path, changes: dict[int, Any], tasks: int = 1) -> list[int]:
        """Run with changes behind some epochs; return the tasks of each epoch."""
        flow = two_sinks(data, tmp_path / "out")
        engine = make_engine(flow, tmp_path / "ck", tasks=tasks, epoch_rows=24)
        used: list[int] = []

        def after(stats: Any) -> None:
            used.append(stats.tasks)
            changes.get(stats.epoch, lambda engine: None)(engine)

        engine._listener = after
        engine.run()
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
        return used

    def test_more_tasks_and_fewer(self, data, tmp_path):
        changes = {2: lambda engine: engine.set_tasks(4), 5: lambda engine: engine.set_tasks(2)}
        assert self.run(data, tmp_path, changes)[:8] == [1, 1, 4, 4, 4, 2, 2, 2]

    @pytest.mark.parametrize("seed", range(3))
    def test_random_tasks_and_tables_behind_each_epoch(self, data, tmp_path, seed):
        draw = random.Random(seed)

        def change(engine: Any) -> None:
            tasks = draw.randint(1, 6)
            engine.set_tasks(tasks)
            for operator in draw.choice([(), ("running",), ("running", "windows")]):
                engine.set_table(operator, [draw.randrange(tasks) for _ in range(SHARDS)])

        self.run(data, tmp_path, dict.fromkeys(range(12), change))

    @pytest.mark.parametrize("shards", [1, 5, 1000])
    def test_a_flow_has_the_shards_that_it_says(self, data, tmp_path, shards):
        flow = two_sinks(data, tmp_path / "out", shards=shards)
        tables: list[int] = []
        engine = make_engine(flow, tmp_path / "ck", tasks=3, epoch_rows=24)

        def after(stats: Any) -> None:
            tables.append(len(engine._position.tables["running"]))
            engine.set_tasks(2 + stats.epoch % 2)

        engine._listener = after
        engine.run()
        assert set(tables) == {shards}
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_a_table_stays_until_the_number_of_tasks_changes(self, data, tmp_path):
        engines: list[Any] = []
        table = [2] * SHARDS
        changes = {
            1: lambda engine: engine.set_table("running", table),
            3: lambda engine: engines.append(engine._position.tables["running"]),
            4: lambda engine: engine.set_tasks(2),
            6: lambda engine: engines.append(engine._position.tables["running"]),
        }
        self.run(data, tmp_path, changes, tasks=3)
        assert engines == [table, even_table(SHARDS, 2)]

    def test_a_table_is_kept_across_a_restart_with_as_many_tasks(self, data, tmp_path):
        flow = two_sinks(data, tmp_path / "out")
        table = [shard % 2 for shard in range(SHARDS)]
        for tasks, expected in ((2, table), (2, table), (4, even_table(SHARDS, 4))):
            engine = make_engine(flow, tmp_path / "ck", tasks=tasks, epoch_rows=24)
            engine._listener = lambda stats, engine=engine: engine.stop()
            if not list(engine._checkpoint.epochs()):
                engine.set_table("running", table)
            engine.run()
            assert engine._position.tables["running"] == expected

    def test_even_tables_are_even(self):
        for tasks in range(1, 40):
            counts = [even_table(SHARDS, tasks).count(task) for task in range(tasks)]
            assert max(counts) - min(counts) <= 1

    @pytest.mark.parametrize(
        ("operator", "table", "message"),
        [
            ("lost", [0] * SHARDS, "no keyed operator 'lost' to route; the flow has 'running', 'windows'"),
            ("running", [0] * 255, "'running' has 256 shards, the table names 255"),
            ("running", [0] * 255 + [3], "'running' names tasks outside 0 to 2; set the number of tasks first"),
            ("running", [-1] + [0] * 255, "'running' names tasks outside 0 to 2"),
        ],
    )
    def test_a_table_that_does_not_fit_is_refused(self, data, tmp_path, operator, table, message):
        engine = make_engine(two_sinks(data, tmp_path / "out"), tmp_path / "ck", tasks=3)
        with pytest.raises(ps.FlowError, match=message):
            engine.set_table(operator, table)

    def test_no_tasks_are_refused(self, data, tmp_path):
        engine = make_engine(two_sinks(data, tmp_path / "out"), tmp_path / "ck")
        with pytest.raises(ps.PenstockError, match="at least one task, not 0"):
            engine.set_tasks(0)


PLACED = {"n": int, "k": int, "count": int, "total": float, "task": int}


def placed(state: tuple[int, float], row: Any) -> tuple[tuple[int, float], tuple[int, int, int, float, int]]:
    """Count and add up a key's values, and tell which task does."""
    from pyspark import TaskContext

    context = TaskContext.get()
    count, total = state[0] + 1, state[1] / 2 + row.v
    return (count, total), (row.n, row.k, count, total, -1 if context is None else context.partitionId())


@pytest.mark.spark
class TestWhileItRuns:
    def test_tasks_and_tables(self, spark, data, tmp_path):
        flow = ps.Flow("placed")
        rows = flow.source("rows", ps.read.parquet(str(data)), time="t")
        rows.key_by("k").scan(placed, (0, 0.0), schema=PLACED, name="placed").sink(
            "scanned", ps.write.parquet(str(tmp_path / "scanned"))
        )
        draw = random.Random(1)
        tables = {1: [0] * SHARDS}

        def after(stats: Any) -> None:
            tasks = {2: 4, 4: 2}.get(stats.epoch)
            if tasks is not None:
                run.set_tasks(tasks)
                tables[stats.epoch + 1] = even_table(SHARDS, tasks)
            if stats.epoch >= 6:
                tables[stats.epoch + 1] = [draw.randrange(2) for _ in range(SHARDS)]
                run.set_table("placed", tables[stats.epoch + 1])

        run = ps.start(
            flow, on=ps.Spark(spark, tasks=1, epoch_rows=24), checkpoint=str(tmp_path / "ck"), on_epoch=after
        )
        assert run.await_end(PATIENCE)
        found = read_back(tmp_path / "scanned")
        expected = sequential(flow)
        assert [row[:4] for row in found] == [tuple(row)[:4] for row in expected.results["scanned"]]
        assert ps.state.values(str(tmp_path / "ck"), "placed") == expected.state("placed")
        for n, key, _, _, task in found:
            table = tables[max(first for first in tables if first <= n // 24 + 1)]
            assert task == table[hash_value(key) % SHARDS]

    def test_keys_in_ranges(self, spark, data, tmp_path):
        flow = ps.Flow("placed in ranges")
        rows = flow.source("rows", ps.read.parquet(str(data)), time="t")
        rows.key_by("k", ranges=[2, 5]).scan(placed, (0, 0.0), schema=PLACED, name="placed").sink("scanned")
        run = ps.run(flow, on=ps.Spark(spark, tasks=3, epoch_rows=60), checkpoint=str(tmp_path / "ck"))
        expected = sequential(flow)
        assert [row[:4] for row in run.results["scanned"]] == [row[:4] for row in expected.results["scanned"]]
        assert ps.state.values(str(tmp_path / "ck"), "placed") == expected.state("placed")
        assert {(row.k, row.task) for row in run.results["scanned"]} == {
            (row.k, (row.k >= 2) + (row.k >= 5)) for row in expected.results["scanned"]
        }


class Tally:
    """Count calls in all processes: each adds a byte to a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def add(self) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b".")
        os.close(file)

    def count(self) -> int:
        return os.path.getsize(self.path)


def three_sinks(data: Path, out: Path, read: Tally, first: Tally, second: Tally) -> ps.Flow:
    """Build a flow of two keyed stages, one behind the other, and windows, with three sinks."""

    def looked_at(row: Any) -> Any:
        read.add()
        return row

    def counted(tally: Tally) -> Any:
        def count(state: int, row: Any) -> tuple[int, tuple[int, int, int]]:
            tally.add()
            return state + 1, (row.n, row.k, state + 1)

        return count

    schema = {"n": int, "k": int, "count": int}
    flow = ps.Flow("three sinks")
    rows = flow.source("rows", ps.read.parquet(str(data)), time="t").map(looked_at, name="looked at")
    one = rows.key_by("k").scan(counted(first), 0, schema=schema, name="first")
    one.sink("one", ps.write.parquet(str(out / "one")))
    one.key_by("count").scan(counted(second), 0, schema=schema, name="second").sink(
        "two", ps.write.parquet(str(out / "two"))
    )
    one.key_by("k").window(20).count(name="windows").sink("three", ps.write.json(str(out / "three")))
    return flow


@pytest.mark.spark
class TestOneJob:
    @pytest.fixture
    def jobs(self, spark: Any) -> Callable[[], int]:
        """Return a function that tells how many jobs there were since the test began."""
        context = spark.sparkContext

        def known() -> set[int]:
            context._jsc.sc().listenerBus().waitUntilEmpty()
            return set(context.statusTracker().getJobIdsForGroup(None))

        before = known()
        return lambda: len(known() - before)

    @pytest.mark.parametrize("tasks", [None, 2], ids=["one task", "two tasks"])
    def test_however_many_sinks_and_stages(self, spark, data, tmp_path, jobs, tasks):
        tallies = [Tally(tmp_path / name) for name in ("read", "first", "second")]
        flow = three_sinks(data, tmp_path / "out", *tallies)
        assert len(make_plan(flow).sinks) == 3
        run = ps.run(flow, on=ps.Spark(spark, tasks=tasks, epoch_rows=60), checkpoint=str(tmp_path / "ck"))
        assert len(run.epochs) == 5  # four of rows, and the end
        assert jobs() == 5
        assert [tally.count() for tally in tallies] == [240, 240, 240]
        assert {sink: sum(stats.rows_out[sink] for stats in run.epochs) for sink in ("one", "two")} == {
            "one": 240,
            "two": 240,
        }
