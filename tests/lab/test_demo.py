"""The demonstration's parts: its rows, its load, its check, and what it prints."""

import os
import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.elastic.decisions import Decision
from penstock.lab.demo import load as loads
from penstock.lab.demo.check import check_order, compare
from penstock.lab.demo.flow import HOT, HOT_ROWS, SENSORS, make_flow, readings, sensors
from penstock.lab.demo.load import SHARES, Load, one_core, schedule
from penstock.lab.demo.show import Show
from penstock.lab.demo.workers import end_one, python_workers
from penstock.options import Options, Spark
from penstock.plan.plan import make_plan
from penstock.spark.engine import SparkEngine
from penstock.statistics import FlowStats, OperatorStats

from ..conformance.inline import InlineBackend


class TestReadings:
    def test_do_not_depend_on_the_cut(self):
        parts = [readings(start, start + 50) for start in range(0, 200, 50)]
        assert pa.concat_tables(parts).equals(readings(0, 200))

    def test_have_hot_sensors_that_move(self):
        hot = []
        for start in (0, HOT_ROWS):
            counted = Counter(sensors(start, start + HOT_ROWS).tolist()).most_common(HOT)
            assert sum(count for _, count in counted) > HOT_ROWS * 0.4
            hot.append({sensor for sensor, _ in counted})
        assert not hot[0] & hot[1]

    def test_use_all_sensors(self):
        assert len(set(sensors(0, 50_000).tolist())) == SENSORS


class TestLoad:
    def test_doubles_twice_and_falls(self):
        files = list(schedule(4.0, 1000))
        quarters = [sum(files[n * len(files) // 4 : (n + 1) * len(files) // 4]) for n in range(4)]
        assert quarters == [round(share * 1000) for share in SHARES]
        assert SHARES[1] == 2 * SHARES[0]
        assert SHARES[2] == 2 * SHARES[1]

    def test_what_one_core_does(self):
        ticks = iter([0.0, 2.0])
        assert one_core(lambda: next(ticks)) == 2_000

    def test_files_hold_the_readings_in_order(self, tmp_path, monkeypatch):
        monkeypatch.setattr(loads, "EVERY_SECONDS", 0.0)
        load = Load(tmp_path / "in", [3, 1, 5])
        load.run()
        files = sorted((tmp_path / "in").iterdir())
        assert load.written == load.total == 9
        assert pa.concat_tables([pq.read_table(file) for file in files]).equals(readings(0, 9))


class TestCheck:
    @pytest.fixture(autouse=True)
    def told_lines(self):
        self.told = []

    def run(self, tmp_path: Path, rows: int):
        load = Load(tmp_path / "readings", [rows])
        load.run()
        flow = make_flow(tmp_path / "readings", tmp_path)
        options = Options(on=Spark(epoch_rows=9_000), checkpoint=str(tmp_path / "kept"))
        engine = SparkEngine(make_plan(flow), InlineBackend(3, 0), options, lambda stats: stop(engine, stats, rows))
        engine.run()
        return check_order(flow, rows, tmp_path, self.told.append)

    def test_passes_over_the_real_output(self, tmp_path):
        verdicts = self.run(tmp_path, 45_000)
        assert [(verdict.sink, verdict.difference) for verdict in verdicts] == [("tracked", None), ("counts", None)]
        assert verdicts[0].rows == 45_000
        assert verdicts[1].rows > 1

    def test_tells_what_it_does(self, tmp_path, monkeypatch):
        monkeypatch.setattr("penstock.lab.demo.check._AT_ONCE", 100)
        tracked, counts = self.run(tmp_path, 1_000)
        assert self.told == [
            *(f"ran {done:,} of 1,000 readings again, one at a time" for done in (200, 400, 600, 800, 1_000)),
            f"comparing {tmp_path / 'tracked'} with the {tracked.rows:,} rows that this gave, row by row",
            f"comparing {tmp_path / 'counts'} with the {counts.rows:,} rows that this gave, row by row",
        ]

    def test_finds_a_row_out_of_place(self):
        verdict = compare("out", [(1,), (3,), (2,)], [(1,), (2,), (3,)])
        assert verdict.difference == "row 1 is (3,), and should be (2,)"

    def test_finds_a_row_that_is_missing(self):
        assert compare("out", [(1,)], [(1,), (2,)]).difference == "1 rows were written, and 2 should be"


def stop(engine: SparkEngine, stats: FlowStats, rows: int) -> None:
    """Stop an engine that follows a directory once it has all rows."""
    if sum(stats.rows_out.values()) and engine.statistics().rows_in >= rows:
        engine.stop()


class TestShow:
    def stats(self, epoch, tasks):
        track = OperatorStats(1, 100, 100, name="track", state_bytes=5_000)
        return FlowStats(
            0.0, 0.2, 100, {"tracked": 100}, operators={"track": track}, backlog=0, tasks=tasks, attempts=1, epoch=epoch
        )

    def test_prints_a_line_a_second_and_the_changes(self, capsys):
        show = Show(0.0)
        for epoch in range(1, 9):
            show.epoch(self.stats(epoch, 1 if epoch < 5 else 2), epoch / 2)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[5] for line in lines if "rows/s" in line] == ["2", "4", "6", "8"]
        assert [line.strip() for line in lines if "restart" in line] == [
            "epoch 5 ran with 2 tasks instead of 1, 500 ms after the one before, 500 ms is usual: no restart"
        ]
        assert show.changes == ["1 -> 2: 500 ms"]

    def test_prints_decisions_with_their_reasons(self, capsys):
        show = Show(0.0)
        table = Decision("track/shards", 7, "table", "", 1.5, 1.0, why="three shards move: the busiest would work less")
        hold = Decision("tasks", 7, "hold")
        show.decisions([hold, Decision("tasks", 8, "tasks", "", 1, 2, why="two tasks instead of one"), table])
        assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
            "decided: two tasks instead of one",
            "decided: three shards move: the busiest would work less",
        ]
        assert show.decided == {"tasks": 1, "track/shards": 1}

    def test_the_summary_tells_the_verdict(self):
        show = Show(0.0)
        show.epoch(self.stats(1, 2), 0.5)
        same = show.summary([compare("tracked", [(1,)], [(1,)])], 2.0, 0.1)
        assert same.splitlines()[-1].split() == ["ORDER", "CHECK", "PASSED"]
        other = show.summary([compare("tracked", [(1,)], [(2,)])], 2.0, 0.1)
        assert other.splitlines()[-1].split() == ["ORDER", "CHECK", "FAILED"]


@pytest.mark.spark
def test_ends_a_worker_of_this_process_alone(spark, monkeypatch):
    spark.sparkContext.parallelize(range(2), 2).map(lambda x: x).collect()
    workers = python_workers()
    assert workers
    assert os.getpid() not in workers
    ended = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
    assert end_one() in workers
    assert ended == [(ended[0][0], signal.SIGKILL)]
