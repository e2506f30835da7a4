"""The page of a live flow of the Spark engine, and of the same run from its checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.dashboard.history import Page, read_history
from penstock.dashboard.server import PageServer
from penstock.elastic.decisions import HOLD

from ..patience import PATIENCE
from ..threads.support import wait_for
from . import expectations as expect
from .flows import orders, total
from .visiting import wait_for_text

pytestmark = [pytest.mark.browser, pytest.mark.spark]

KINDS = {"orders": "source", "valid": "stateless", "totals": "partitioned", "out": "sink"}
PARTS = ["Spark's fixed cost", "reading", "shuffle", "user code", "state", "sink"]


def make_flow(directory: Any) -> ps.Flow:
    flow = ps.Flow("orders")
    source = flow.source("orders", ps.read.generate(orders, schema={"n": int, "k": int}, rows_per_second=5_000))
    valid = source.filter(lambda row: row.n % 5 > 0, name="valid")
    totals = valid.key_by("k").scan(total, name="totals", schema={"k": int, "total": int})
    totals.sink("out", ps.write.parquet(str(directory / "out")))
    return flow


def test_live_and_finished(visit, spark, tmp_path):
    checkpoint = str(tmp_path / "checkpoint")
    run = ps.start(make_flow(tmp_path), on=ps.Spark(spark, tasks=2), checkpoint=checkpoint, page=0)
    try:
        wait_for(lambda: len(run.epochs) >= 2 or not run.running, 120)
        table = list(run.epochs[-1].operators["totals"].table)
        table[3] = 1 - table[3]
        run.set_table("totals", table)
        page = visit.open(str(run.page))
        expect.check_head(page, "orders", "spark", "running")
        expect.check_graph(page, KINDS)
        expect.check_operator_panel(page, "totals")
        wait_for_text(page, "#shard-moves", "shard 3 from task")
        check_everything(page, len([each for each in run.decisions if each.what != HOLD]))
        assert page.locator("#queries button:visible").count() == 0
        wait_for_text(page, "#queries-note", "cannot add or cancel")
    finally:
        visit.close()  # first: a page whose flow is gone complains, as it should
        run.stop()
        run.await_end(PATIENCE)
        run.close_page()
    server = PageServer(Page(read_history(checkpoint)), port=0)
    try:
        page = visit.open(server.address, scheme="dark")
        expect.check_head(page, "orders", "spark", "stopped")
        expect.check_graph(page, KINDS, moving=False)
        expect.check_operator_panel(page, "totals")
        wait_for_text(page, "#shard-moves", "shard 3 from task")
        check_everything(page, len([each for each in run.decisions if each.what != HOLD]))
    finally:
        visit.close()
        server.close()


def check_everything(page: Any, decisions: int) -> None:
    expect.check_timeline(page, min(decisions, 500))
    expect.check_shards(page, "totals", 256)
    wait_for_text(page, ".shard-label", "task 0 .*×")
    expect.check_epochs(page, PARTS)
    expect.check_order_and_state(page, "[0-9]")
    wait_for_text(page, "#checkpoint-note", "epoch [0-9]+ is committed")
    expect.check_queries(page, ["out"])
