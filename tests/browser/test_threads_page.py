"""The page of a live flow of the threads engine, and of the same run once it is over."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.dashboard.history import Page, read_history
from penstock.dashboard.server import PageServer

from ..patience import PATIENCE
from ..threads.support import wait_for
from . import expectations as expect
from .flows import orders, total
from .visiting import operator, wait_for_text

pytestmark = pytest.mark.browser

KINDS = {
    "orders": "source",
    "valid": "stateless",
    "totals": "partitioned",
    "all": "stateful",
    "out": "sink",
    "last": "sink",
}


def make_flow() -> tuple[ps.Flow, ps.Stream]:
    flow = ps.Flow("orders")
    source = flow.source("orders", ps.read.generate(orders, schema={"n": int, "k": int}, rows_per_second=20_000))
    valid = source.filter(lambda row: row.n % 5 > 0, name="valid")
    totals = valid.key_by("k").scan(total, name="totals", schema={"k": int, "total": int})
    totals.sink("out", ps.write.callback(lambda rows, epoch: None))
    latest = valid.scan(lambda state, row: (row.n, row.n), 0, name="all", schema=int)
    latest.sink("last", ps.write.callback(lambda rows, epoch: None))
    return flow, totals


def decide(run: ps.Run) -> None:
    """Let the controller look often, instead of every two seconds, until it has changed something."""
    for lever in run.engine.pilot.levers:
        if lever.name == "threads":
            lever.cpu_usage = lambda: 0.1  # on a machine that others keep busy it would rightly do nothing

    def changed() -> bool:
        run.engine.pilot.step()
        return any(each.what == "thread_level" for each in run.decisions)

    wait_for(changed)


def test_live_and_finished(visit, tmp_path):
    flow, totals = make_flow()
    run = ps.start(flow, on=ps.Threads(), page=0, history=str(tmp_path))
    try:
        wait_for(lambda: run.stats.rows_in > 5_000)
        decide(run)
        page = visit.open(str(run.page))
        expect.check_head(page, flow.name, "threads", "running")
        expect.check_graph(page, KINDS)
        expect.check_operator_panel(page, "totals")
        expect.check_timeline(page, 2)
        expect.check_shards(page, "totals", 8)
        expect.check_epochs(page, ["user code", "sink", "idle"])
        expect.check_order_and_state(page, "none")
        expect.check_queries(page, ["out", "last"])
        assert page.locator("#workers li").count() >= 1
        check_it_moves(page)
        check_queries_come_and_go(page, totals)
        run.stop()
        run.await_end(PATIENCE)
        wait_for_text(page, "#state", "stopped")
    finally:
        visit.close()  # first: a page whose flow is gone complains, as it should
        run.stop()
        run.await_end(PATIENCE)
        run.close_page()
    assert all(url.startswith("http://127.0.0.1:") for url in visit.requests)
    check_finished(visit, str(tmp_path), flow.name)


def check_it_moves(page: Any) -> None:
    """At least once a second."""
    rows = page.locator("#queries td").nth(1)
    before = rows.text_content()
    page.wait_for_function("before => document.querySelectorAll('#queries td')[1].textContent !== before", arg=before)
    stamps = page.evaluate(
        """async () => {
            const { page } = await import("/assets/main.js");
            const seen = [];
            while (seen.length < 4) {
                const at = page.store.latest.at;
                if (seen[seen.length - 1] !== at) seen.push(at);
                await new Promise((go) => setTimeout(go, 20));
            }
            return seen;
        }"""
    )
    assert len(stamps) == 4


def check_queries_come_and_go(page: Any, totals: ps.Stream) -> None:
    totals.map(lambda row: row.total, name="plain").sink("spare", ps.write.callback(lambda rows, epoch: None))
    add = page.get_by_role("button", name="Add the query spare")
    add.click()
    wait_for_text(page, "#queries-status", "spare began with batch")
    operator(page, "plain").wait_for()
    page.get_by_role("button", name="Cancel the query spare").click()
    wait_for_text(page, "#queries-status", "spare ended before batch")
    operator(page, "plain").wait_for(state="detached")
    page.get_by_role("button", name="Add the query spare").wait_for()


def check_finished(visit: Any, directory: str, name: str) -> None:
    server = PageServer(Page(read_history(directory)), port=0)
    try:
        page = visit.open(server.address, scheme="dark")
        expect.check_head(page, name, "threads", "stopped")
        expect.check_graph(page, KINDS, moving=False)
        expect.check_operator_panel(page, "totals")
        expect.check_timeline(page, 2)
        expect.check_shards(page, "totals", 8)
        expect.check_epochs(page, ["user code", "sink", "idle"])
        expect.check_order_and_state(page, "none")
        expect.check_queries(page, ["out", "last", "spare"])
        assert page.locator("#queries button:visible").count() == 0
        check_an_earlier_moment(page)
    finally:
        visit.close()
        server.close()


def check_an_earlier_moment(page: Any) -> None:
    """A click on the timeline shows the page as it was then; Escape goes back."""
    box = page.locator("#timeline").bounding_box()
    page.mouse.click(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
    wait_for_text(page, "#state", "as of")
    page.keyboard.press("Escape")
    wait_for_text(page, "#state", "stopped")
