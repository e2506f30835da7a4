"""The page of a run of the threads engine: asked over HTTP while it runs, and read from disk after it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

import penstock as ps
from penstock.dashboard.history import Page, read_history
from penstock.elastic.decisions import replay

from ..patience import PATIENCE
from ..threads.pacing import Paced
from ..threads.support import wait_for

SECRET = "nobody-must-see-this"


def get(run: ps.Run, path: str) -> Any:
    with urllib.request.urlopen(f"{run.page}{path}", timeout=PATIENCE) as answer:
        return json.load(answer)


def count(state: int | None, row: Any) -> tuple[int, dict[str, Any]]:
    if row.n % 10 == 9:
        raise ValueError(f"a bad row: {SECRET}")
    return (state or 0) + 1, {"k": row.k, "count": (state or 0) + 1}


def make(paced: Paced) -> tuple[ps.Flow, ps.Stream]:
    flow = ps.Flow("seen")
    rows = flow.source("in", ps.read.items(({**row, "k": SECRET} for row in paced), schema={"n": int, "k": str}))
    counted = rows.key_by("k").scan(count, name="count", schema={"k": str, "count": int}, on_error="skip")
    counted.sink("first")
    return flow, counted


def test_everything_can_be_asked_and_nothing_of_a_rows_values_is_told(tmp_path):
    paced = Paced()
    flow, counted = make(paced)
    run = ps.start(flow, on=ps.Threads(batch_rows=1), page=0, history=str(tmp_path))
    try:
        paced.step(30)
        wait_for(lambda: get(run, "api/page")["sample"]["operators"]["count"]["rows_in"] == 30)
        page = get(run, "api/page")
        operator = page["sample"]["operators"]["count"]
        assert operator["errors"] == 3
        assert operator["keys"] == 1
        assert operator["selectivity"] == 0.9
        assert {"rate_in", "cost", "busy", "cpu", "wall", "queue", "state_bytes", "reorder_depth", "oldest_gap"} <= set(
            operator
        )
        assert page["sample"]["totals"]["latency"]["p99"] > 0
        assert [node["kind"] for node in page["graph"]["nodes"]] == ["source", "partitioned", "sink"]
        assert page["decisions"][0]["what"] == "start"
        assert get(run, "api/decisions/0")["seen"]["type"] == "thread_level"
        # A query that was built since is offered, and runs when it is asked for.
        counted.map(lambda row: row.count, name="plain").sink("second")
        wait_for(lambda: [q["running"] for q in get(run, "api/page")["sample"]["queries"]] == [True, False])
        paced.past(run, change, run, "add", "second")
        wait_for(lambda: "plain" in {node["name"] for node in get(run, "api/page")["graph"]["nodes"]})
        paced.past(run, change, run, "cancel", "second")
        wait_for(lambda: "plain" not in {node["name"] for node in get(run, "api/page")["graph"]["nodes"]})
        assert run.queries == ["first"]
        metrics = urllib.request.urlopen(f"{run.page}metrics", timeout=PATIENCE).read().decode()
        assert 'penstock_operator_errors_total{flow="seen",engine="threads",operator="count"}' in metrics
        paced.step(60)
        run.await_end(PATIENCE)
        wait_for(lambda: get(run, "api/page")["sample"]["state"] == "done")
        told = json.dumps([get(run, "api/page"), get(run, "api/decisions/0"), metrics])
        assert SECRET not in told
    finally:
        address = run.page
        run.stop()
        run.close_page()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(str(address), timeout=PATIENCE)
    finished = Page(read_history(str(tmp_path))).document()
    assert finished["sample"]["state"] == "done"
    assert finished["sample"]["operators"]["count"]["rows_in"] == 60
    assert finished["live"] is False
    assert replay(decision for _, decision in read_history(str(tmp_path)).decisions()).same
    assert SECRET not in "".join(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())


def change(run: ps.Run, action: str, query: str) -> None:
    """Ask as the page does."""
    request = urllib.request.Request(
        f"{run.page}api/queries",
        json.dumps({"action": action, "query": query}).encode(),
        {"x-penstock-token": run._watch.token, "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 200


def test_a_slow_sink_is_named_as_the_cause(tmp_path):
    flow = ps.Flow("slow sink")
    rows = flow.source("in", ps.read.generate(numbers, schema={"n": int}))
    rows.map(lambda row: row, name="copy").filter(lambda row: True, name="all").sink(
        "out", ps.write.callback(lambda rows, epoch: time.sleep(0.02))
    )
    run = ps.start(flow, on=ps.Threads(workers=1, batch_rows=1), page=0)
    try:
        # In one of the samples: at first, or while the machine has other work, something else may be what is slow.
        wait_for(lambda: pressure(run) == (["out"], {"in", "copy", "all"}))
    finally:
        run.stop()
        run.await_end(PATIENCE)
        run.close_page()


def pressure(run: ps.Run) -> tuple[list[str], set[str]]:
    """Return what holds a run up just now, and what it holds."""
    found = get(run, "api/page")["sample"]["pressure"]
    return [each["operator"] for each in found["causes"]], set(found["held"])


def numbers(start: int, stop: int) -> Any:
    import numpy as np
    import pyarrow as pa

    return pa.table({"n": np.arange(start, stop)})


def test_a_flow_that_fails_says_where_and_not_with_which_row(tmp_path):
    flow = ps.Flow("fails")
    flow.source("in", [1, 2, 3]).map(fail, name="broken").sink("out")
    run = ps.start(flow, on=ps.Threads(workers=1), page=0, history=str(tmp_path))
    try:
        with pytest.raises(ps.OperatorError, match=SECRET):
            run.await_end(PATIENCE)
        sample = get(run, "api/page")["sample"]
        assert sample["state"] == "failed"
        assert sample["error"] == "operator 'broken' failed: ValueError"
    finally:
        run.close_page()
    assert SECRET not in "".join(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())


def fail(n: int) -> int:
    raise ValueError(f"{SECRET} {n}")


def test_without_being_asked_for_there_is_neither_page_nor_history(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = ps.Flow("plain")
    flow.source("in", [1]).sink("out")
    run = ps.run(flow, on=ps.Threads(workers=1))
    assert run.page is None
    assert run._watch is None
    assert list(tmp_path.iterdir()) == []
