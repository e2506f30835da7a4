"""What an epoch reports of itself: rows of every operator, where its shards were, where its time went."""

from __future__ import annotations

import pytest

from penstock.options import Options, Spark
from penstock.plan.plan import make_plan
from penstock.spark.engine import SparkEngine
from penstock.statistics import FlowStats

from ..conformance.inline import InlineBackend
from .running import make_rows, two_sinks, write_files


def test_an_epoch_says_what_it_did(tmp_path):
    write_files(tmp_path / "in", make_rows(400), 100)
    reports: list[FlowStats] = []
    flow = two_sinks(tmp_path / "in", tmp_path / "out")
    options = Options(on=Spark(tasks=2, epoch_rows=200), checkpoint=str(tmp_path / "checkpoint"))
    engine = SparkEngine(make_plan(flow), InlineBackend(2, 0), options, reports.append)
    engine.run()
    assert sum(stats.operators["running"].rows_in for stats in reports) == 400
    assert sum(stats.operators["windows"].rows_in for stats in reports) == 400
    assert all(stats.operators["running"].rows_out == 200 for stats in reports if stats.rows_in)
    for stats in reports:
        assert {name for name, each in stats.operators.items() if each.table} == {"running", "windows"}
        assert len(stats.operators["running"].table) == 256
        assert sum(stats.split.values()) == pytest.approx(stats.seconds)
        assert min(stats.split.values()) >= 0
    # The engine tells all of it.
    whole = engine.statistics()
    assert (whole.epochs, whole.epoch, whole.rows_in) == (len(reports), reports[-1].epoch, 400)
    assert whole.operators["running"].rows_in == 400
    assert whole.rows_out == {sink: sum(stats.rows_out[sink] for stats in reports) for sink in reports[0].rows_out}
    assert whole.seconds == pytest.approx(sum(stats.seconds for stats in reports))
    assert sum(whole.split.values()) == pytest.approx(whole.seconds)
    assert whole.operators["running"].state_bytes == reports[-1].operators["running"].state_bytes > 0
