"""What an epoch reports of itself: rows of every operator, where its shards were, where its time went."""

from __future__ import annotations

import pytest

from penstock.plan import make_plan
from penstock.reports import EpochStats
from penstock.spark.engine import Options, SparkEngine

from ..conformance.inline import InlineBackend
from .running import make_rows, two_sinks, write_files


def test_an_epoch_says_what_it_did(tmp_path):
    write_files(tmp_path / "in", make_rows(400), 100)
    reports: list[EpochStats] = []
    flow = two_sinks(tmp_path / "in", tmp_path / "out")
    options = Options(str(tmp_path / "checkpoint"), tasks=2, epoch_rows=200)
    SparkEngine(make_plan(flow), InlineBackend(2, 0), options, reports.append).run()
    assert sum(stats.operators["running"][0] for stats in reports) == 400
    assert sum(stats.operators["windows"][0] for stats in reports) == 400
    assert all(stats.operators["running"] == (200, 200) for stats in reports if stats.rows_in)
    for stats in reports:
        assert set(stats.tables) == {"running", "windows"}
        assert len(stats.tables["running"]) == 256
        assert sum(stats.split.values()) == pytest.approx(stats.seconds)
        assert min(stats.split.values()) >= 0
