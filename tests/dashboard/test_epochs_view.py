"""What the page makes of epochs: rates, latency, lag, split, moves and imbalance."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dashboard.views import EpochView, quantiles
from penstock.spark.measured import Spent, epoch_split, operator_seconds
from penstock.statistics import FlowStats, OperatorStats

GRAPH = {
    "nodes": [
        {"name": "in", "kind": "source"},
        {"name": "sum", "kind": "partitioned"},
        {"name": "out", "kind": "sink"},
    ],
    "edges": [{"from": "in", "to": "sum"}, {"from": "sum", "to": "out"}],
}


def epoch(number: int, table: tuple[int, ...] = (0, 1, 0, 1), **changes: Any) -> FlowStats:
    summed = {
        "shards": {0: (700, 0.7), 1: (100, 0.1), 3: (200, 0.2)},
        "table": table,
        "state_bytes": 4096,
        "retries": 5,
        "timeouts": 3,
        "forgotten": 4,
        **changes,
    }
    operators = (
        OperatorStats(1, 1000, 1000, name="in", kind="source"),
        OperatorStats(1, 1000, 500, 0.4, 0.3, errors=2, name="sum", kind="partitioned", **summed),
        OperatorStats(1, 500, 0, 0.1, 0.05, name="out", kind="sink"),
    )
    return FlowStats(
        seconds=0.5,
        rows_in=1000,
        rows_out={"out": 500},
        epochs=1,
        operators={each.name: each for each in operators},
        backlog=100,
        tasks=2,
        job_seconds=0.4,
        attempts=1,
        split={"fixed": 0.1, "user": 0.4},
        epoch=number,
    )


class View(EpochView):
    """A view of epochs, and what they add up to."""

    def __init__(self) -> None:
        super().__init__("spark")
        self.stats = FlowStats()

    def take(self, stats: FlowStats, at: float) -> None:
        self.stats = self.stats.plus(stats)
        super().take(stats, at)

    def shown(self, now: float) -> dict[str, Any]:
        return self.describe(GRAPH, now, self.stats)


def test_rates_and_costs_are_of_the_last_seconds():
    view = View()
    for number in range(1, 11):
        view.take(epoch(number), 100.0 + number)
    found = view.shown(110.5)
    # From the commit of the epoch before the window on: five epochs, a second each.
    assert found["totals"]["rate"] == pytest.approx(1000.0)
    assert found["totals"]["lag_seconds"] == pytest.approx(0.1)
    assert found["totals"]["latency"] == {"p50": 0.5, "p99": 0.5}
    assert found["totals"]["state_bytes"] == 4096
    summed = found["operators"]["sum"]
    assert (summed["rows_in"], summed["rows_out"], summed["errors"]) == (10_000, 5_000, 20)
    assert (summed["retries"], summed["timeouts"], summed["forgotten"]) == (50, 30, 40)
    assert summed["selectivity"] == 0.5
    assert summed["cost"] == pytest.approx(400.0)
    assert summed["cpu_share"] == 0.75
    assert summed["busy"] == pytest.approx(0.4 / 2, rel=0.01)
    assert found["operators"]["out"]["selectivity"] is None
    assert found["checkpoint"] == {"epoch": 10, "at": 110.0, "age": 0.5, "bytes": 4096}


def test_a_flow_that_is_quiet_has_no_rate():
    view = View()
    view.take(epoch(1), 100.0)
    assert view.shown(200.0)["totals"]["rate"] == 0
    assert View().shown(200.0)["totals"]["rate"] == 0


def test_moves_are_seen_whoever_made_them():
    view = View()
    view.take(epoch(1), 1.0)
    view.take(epoch(2, (0, 1, 1, 1)), 2.0)
    view.take(epoch(3, (0, 1, 1, 1)), 3.0)
    found = view.shown(3.0)["shards"]["sum"]
    assert [(move["shard"], move["from"], move["to"], move["epoch"]) for move in found["moves"]] == [(2, 0, 1, 2)]
    assert found["moved"] == 1
    assert found["imbalance"] == pytest.approx(1.4)
    assert found["rows"] == [2100, 300, 0, 600]
    assert found["share"] == pytest.approx([0.7, 0.1, 0.0, 0.2])


def test_keys_are_hot_that_have_a_good_part_of_their_shard():
    view = View()
    view.take(epoch(1, hot_keys={0: [("'ann'", 0.9), ("'bob'", 0.01)]}), 1.0)
    (key,) = view.shown(1.0)["shards"]["sum"]["hot_keys"]
    assert key == {"shard": 0, "share": 0.9, "key": "'ann'"}


def test_latency_is_that_of_rows_not_of_epochs():
    assert quantiles([(0.1, 1000), (9.0, 1), (0.2, 0)]) == {"p50": 0.1, "p99": 0.1}
    assert quantiles([(0.1, 50), (9.0, 50)]) == {"p50": 0.1, "p99": 9.0}
    assert quantiles([(0.1, 0)]) is None


def test_the_split_of_an_epoch_adds_up_to_its_seconds():
    timings = [
        {"level": 0, "wall": 0.2, "parts": {"read": 0.15}, "operators": {"in": (0.15, 0.1)}},
        {"level": 0, "wall": 0.1, "parts": {"read": 0.09}, "operators": {"in": (0.09, 0.1)}},
        {"level": 1, "wall": 0.5, "parts": {"user": 0.3, "state": 0.1}, "operators": {"sum": (0.3, 0.3)}},
        {"level": 1, "wall": 0.4, "parts": {"user": 0.39}, "operators": {"sum": (0.39, 0.3)}},
    ]
    split = epoch_split(timings, 1.0, 0.05, 0.02)
    assert split["read"] == 0.15
    assert split["user"] == 0.3
    assert split["state"] == pytest.approx(0.12)
    assert split["sink"] == 0.05
    assert sum(split.values()) == pytest.approx(1.0)
    assert operator_seconds(timings)["sum"] == pytest.approx((0.69, 0.6))


def test_a_section_inside_another_is_not_counted_twice(monkeypatch):
    now = {"perf_counter": 0.0, "thread_time": 0.0}
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(f"penstock.spark.measured.{clock}", lambda clock=clock: now[clock])

    def work(wall: float, cpu: float) -> None:
        now["perf_counter"] += wall
        now["thread_time"] += cpu

    spent = Spent()
    with spent.on("user", "a"):
        work(2.0, 1.0)
        with spent.on("state"):
            work(16.0, 8.0)
        work(4.0, 0.5)
    assert spent.parts == {"state": 16.0, "user": 6.0}
    assert spent.operators == {"a": (6.0, 1.5)}
