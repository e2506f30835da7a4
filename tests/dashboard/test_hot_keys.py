"""A key is a value of a row: it is named nowhere, or, where that was asked for, everywhere."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.dashboard.history import Page, read_history
from penstock.dashboard.recorder import Recorder
from penstock.dashboard.sampling import write_metrics
from penstock.elastic.decisions import replay, to_json
from penstock.options import Options
from penstock.spark.engine import SparkEngine

from ..patience import PATIENCE
from ..spark.piloting import Busy
from ..spark.running import write_files

SECRET = "ann@example.org"


def count(state: int, row: Any) -> tuple[int, tuple[str, int]]:
    return state + 1, (row.k, state + 1)


def hot_flow(data: Path) -> ps.Flow:
    """Make a flow of which one key has most of the rows."""
    write_files(data, [{"k": f"key {n}" if n % 5 == 0 else SECRET} for n in range(1000)], 100)
    flow = ps.Flow("hot")
    counted = flow.source("rows", ps.read.parquet(str(data))).key_by("k")
    counted.scan(count, 0, schema={"k": str, "count": int}, name="counts").sink("out", lambda rows, epoch: None)
    return flow


@pytest.mark.parametrize("named", [False, True])
def test_one_switch_says_whether_they_are_named(tmp_path, named):
    flow = hot_flow(tmp_path / "data")
    begin = threading.Event()

    class Held(SparkEngine):
        def run(self) -> None:
            assert begin.wait(PATIENCE)
            super().run()

    class OnBusy(ps.Spark):
        def open(self, plan: Any, options: Any, listener: Any) -> SparkEngine:
            return Held(plan, Busy(2, 0), options, listener)

    options = Options(on=OnBusy(tasks=2, epoch_rows=100), checkpoint=str(tmp_path / "ck"), name_keys=named)
    run = ps.Run(flow, options)
    recorder = Recorder(run, "spark", history=str(tmp_path / "history"))
    begin.set()
    assert run.await_end(PATIENCE)
    recorder.finish("done")
    live, finished = Page(recorder.seen, recorder), Page(read_history(str(tmp_path / "history")))
    (hot,) = [each for each in run.decisions if each.what == "hot_shard"]
    assert f"hottest keys: {repr(SECRET) if named else 'hidden'} (" in hot.why
    keys = {each["key"] for each in recorder.seen.latest()["shards"]["counts"]["hot_keys"]}
    assert repr(SECRET) in keys if named else keys == {None}
    shown = {
        "page": json.dumps([live.document(), finished.document()]),
        "decisions": json.dumps([page.history.mark(number) for page in (live, finished) for number in range(9)]),
        "log": "".join(map(to_json, run.decisions)),
        "epochs": repr(run.epochs),
        "disk": (tmp_path / "history" / "history.sqlite").read_bytes().decode("latin-1"),
    }
    assert {place: SECRET in text for place, text in shown.items()} == dict.fromkeys(shown, named)
    # Whatever was asked for, Prometheus keeps its series for ever.
    assert SECRET not in write_metrics(live.sample())
    assert replay(decision for _, decision in read_history(str(tmp_path / "history")).decisions()).same
