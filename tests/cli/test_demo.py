"""The demonstration's parts: its rows, its check, and what it prints."""

from collections import Counter

import pyarrow as pa
import pytest

from penstock.demo.check import check_order, compare
from penstock.demo.flow import HOT, HOT_SECONDS, SENSORS, Readings, make_flow
from penstock.demo.show import Show
from penstock.ingress.feeds import GeneratedFeed
from penstock.options import Options, Spark
from penstock.plan import make_plan
from penstock.spark.engine import SparkEngine
from penstock.statistics import FlowStats, OperatorStats

from ..conformance.inline import InlineBackend

RATE = 200


@pytest.fixture
def unpaced(monkeypatch):
    """Let the source give its rows at once: nothing here waits for a clock."""

    def available(feed, limit):
        return min(feed._taken + limit, feed._reader.rows)

    monkeypatch.setattr(GeneratedFeed, "_available", available)


class TestReadings:
    def test_do_not_depend_on_the_cut(self):
        readings = Readings(RATE)
        parts = [readings(start, start + 50) for start in range(0, 200, 50)]
        assert pa.concat_tables(parts).equals(readings(0, 200))

    def test_have_hot_sensors_that_move(self):
        readings = Readings(2_000)
        turn = 2_000 * HOT_SECONDS
        hot = []
        for start in (0, turn):
            counted = Counter(readings.sensors(start, start + turn).tolist()).most_common(HOT)
            assert sum(count for _, count in counted) > turn * 0.4
            hot.append({sensor for sensor, _ in counted})
        assert not hot[0] & hot[1]

    def test_use_all_sensors(self):
        assert len(set(Readings(RATE).sensors(0, 50_000).tolist())) == SENSORS


@pytest.mark.usefixtures("unpaced")
class TestCheck:
    @pytest.fixture(autouse=True)
    def told_lines(self):
        self.told = []

    def run(self, tmp_path, rows, end=True):
        readings = Readings(RATE)
        flow = make_flow(readings, rows, tmp_path)
        engine = SparkEngine(
            make_plan(flow),
            InlineBackend(3, 0),
            Options(on=Spark(epoch_rows=700), checkpoint=str(tmp_path / "kept"), end=end),
        )
        engine.run()
        return check_order(flow, readings, rows, end, tmp_path, self.told.append)

    def test_passes_over_the_real_output(self, tmp_path):
        verdicts = self.run(tmp_path, 3_000)
        assert [(verdict.sink, verdict.difference) for verdict in verdicts] == [("tracked", None), ("counts", None)]
        assert verdicts[0].rows == 3_000
        assert verdicts[1].rows > 1

    def test_tells_what_it_does(self, tmp_path, monkeypatch):
        monkeypatch.setattr("penstock.demo.check._AT_ONCE", 100)
        tracked, counts = self.run(tmp_path, 1_000)
        assert self.told == [
            *(f"ran {done:,} of 1,000 readings again, one at a time" for done in (200, 400, 600, 800, 1_000)),
            f"comparing {tmp_path / 'tracked'} with the {tracked.rows:,} rows that this gave, row by row",
            f"comparing {tmp_path / 'counts'} with the {counts.rows:,} rows that this gave, row by row",
        ]

    def test_passes_over_a_run_that_was_stopped(self, tmp_path):
        assert [verdict.difference for verdict in self.run(tmp_path, 1_400, end=False)] == [None, None]

    def test_finds_a_row_out_of_place(self):
        verdict = compare("out", [(1,), (3,), (2,)], [(1,), (2,), (3,)])
        assert verdict.difference == "row 1 is (3,), and should be (2,)"

    def test_finds_a_row_that_is_missing(self):
        assert compare("out", [(1,)], [(1,), (2,)]).difference == "1 rows were written, and 2 should be"


class TestShow:
    def stats(self, epoch, tasks):
        load = {"track": {1: (90, 0.1), 2: (10, 0.1)}}
        track = OperatorStats(1, 100, 100, name="track", shards=load["track"], state_bytes=5_000)
        return FlowStats(
            0.0, 0.2, 100, {"tracked": 100}, operators={"track": track}, backlog=0, tasks=tasks, attempts=1, epoch=epoch
        )

    def test_prints_a_line_a_second_and_the_changes(self, capsys):
        show = Show(Readings(RATE), 0.0)
        for epoch in range(1, 9):
            show.epoch(self.stats(epoch, 2 if epoch < 5 else 4), epoch / 2)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[3] for line in lines if " s  epoch" in line] == ["2", "4", "6", "8"]
        assert "busiest shard 230x the mean" in lines[0]
        assert "state 5.0 KB" in lines[0]
        assert show.changes == ["2 -> 4"]

    def test_the_summary_tells_the_verdict(self):
        show = Show(Readings(RATE), 0.0)
        show.epoch(self.stats(1, 2), 0.5)
        same = show.summary([compare("tracked", [(1,)], [(1,)])], 2.0, 0.1)
        assert same.splitlines()[-1].split() == ["ORDER", "CHECK", "PASSED"]
        other = show.summary([compare("tracked", [(1,)], [(2,)])], 2.0, 0.1)
        assert other.splitlines()[-1].split() == ["ORDER", "CHECK", "FAILED"]
