"""Pages that no run made: large ones, ones that are left open, ones whose names are markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.dashboard.server import PageServer
from penstock.elastic.decisions import Decision

from ..dashboard.made_up import MadeUpPage, made_up_graph, made_up_sample
from .visiting import Visit, operator, wait_for_text

pytestmark = pytest.mark.browser


@contextmanager
def served(visit: Visit, page: MadeUpPage) -> Iterator[PageServer]:
    server = PageServer(page, port=0)
    try:
        yield server
    finally:
        visit.close()
        server.close()


def test_200_operators_and_1000_shards_are_drawn_at_once_and_stay_smooth(visit):
    """The page stutters where elements are measured one by one while they are drawn, or made anew for each sample."""
    graph = made_up_graph(10, 20)
    with served(visit, MadeUpPage(graph, made_up_sample(graph, shards=1000, tasks=16))) as server:
        page = visit.open(server.address)
        counts = counted_from_now(page)
        page.reload()
        page.locator(".cell").nth(999).wait_for()
        assert page.locator(".node").count() == 200
        assert page.locator(".cell").count() == 1000
        first = counts()
        assert first["LayoutCount"] < 100
        page.evaluate(
            """async () => {
                const { page } = await import("/assets/main.js");
                for (let n = 0; n < 6; n += 1) {
                    const sample = structuredClone(page.store.latest);
                    sample.at += 0.5;
                    for (const each of Object.values(sample.operators)) {
                        each.busy = Math.random();
                        each.rate_in = each.rate_out = 1000 * Math.random();
                    }
                    for (const each of Object.values(sample.shards)) {
                        each.share = each.share.map(() => Math.random() / 500);
                    }
                    page.store.take(sample);
                    page.drawNow();
                    await new Promise(requestAnimationFrame);
                }
            }"""
        )
        after = counts()
        assert after["LayoutCount"] - first["LayoutCount"] < 6 * 5
        assert after["Nodes"] < first["Nodes"] + 100
        # Operators do not lie on each other.
        boxes = page.evaluate(
            "() => [...document.querySelectorAll('.node .body')].map(e => e.getBoundingClientRect().toJSON())"
        )
        assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])


def overlap(a: dict[str, float], b: dict[str, float]) -> bool:
    return a["left"] < b["right"] and b["left"] < a["right"] and a["top"] < b["bottom"] and b["top"] < a["bottom"]


def test_a_page_that_is_left_open_for_an_hour_does_not_grow(visit):
    graph = made_up_graph(4, 3)
    with served(visit, MadeUpPage(graph, made_up_sample(graph, shards=64, tasks=4))) as server:
        page = visit.open(server.address)
        operator(page, "operator 4").click()
        feed = """async (count) => {
            const { page } = await import("/assets/main.js");
            for (let n = 0; n < count; n += 1) {
                const { latest } = page.store;
                const sample = { ...latest, at: latest.at + 0.5, decisions: page.store.known };
                sample.totals = { ...latest.totals, rate: 1000 * Math.random() };
                if (n % 10 === 0) {
                    const number = page.store.known;
                    page.store.decide([{ number, at: sample.at, controller: "c", step: number, epoch: null,
                        what: "tasks", target: "", before: number, after: number + 1, why: "because", start: false }]);
                }
                page.store.take(sample);
                if (n % 100 === 0) page.drawNow();
            }
            page.drawNow();
            return [page.store.points.length, page.store.decisions.length, page.store.trail.length,
                document.querySelectorAll("*").length];
        }"""
        points, decisions, trail, elements = page.evaluate(feed, 7200)
        before = heap(page)
        assert points <= 1200
        assert decisions <= 2000
        assert trail <= 240
        again = page.evaluate(feed, 2400)
        assert again[0] <= 1200
        assert again[3] <= elements + 300
        assert again[3] < 5000
        assert heap(page) < before + 5_000_000


def counted_from_now(page: Any) -> Callable[[], dict[str, float]]:
    """Return a function that tells what the browser has done for a page since now, in counts: layouts, nodes."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def counts() -> dict[str, float]:
        session.send("HeapProfiler.collectGarbage")  # nodes that are gone count until then
        return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}

    return counts


def heap(page: Any) -> float:
    """Return the bytes in use, rubbish left out."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used


MARKUP = [
    "<img src=x onerror=\"document.title='owned'\">",
    "<script>document.title='owned'</script>",
    '"><svg/onload=alert(1)>',
    "</title><b>bold</b>",
    "javascript:alert(1)",
    "{{7*7}} &lt;i&gt;",
]


def test_names_that_are_markup_are_shown_as_they_are(visit):
    graph = made_up_graph(3, 2, lambda number: MARKUP[number])
    sample = made_up_sample(graph, shards=8, tasks=2)
    sample["flow"] = MARKUP[1]
    sample["error"], sample["state"] = MARKUP[0], "failed"
    sample["pressure"] = {"causes": [{"operator": MARKUP[2], "why": MARKUP[0]}], "held": {MARKUP[0]: MARKUP[2]}}
    decision = Decision(
        MARKUP[0], 1, MARKUP[1], MARKUP[2], MARKUP[3], MARKUP[4], why=MARKUP[5], statistics={MARKUP[0]: MARKUP[1]}
    )
    with served(visit, MadeUpPage(graph, sample, (decision,))) as server:
        page = visit.open(server.address)
        assert wait_for_text(page, "#flow", ".") == MARKUP[1]
        names = page.evaluate("() => [...document.querySelectorAll('.node')].map(each => each.dataset.operator)")
        assert sorted(names) == sorted(MARKUP)
        for index in range(len(MARKUP)):
            page.locator(".node").nth(index).click()
            assert wait_for_text(page, "#panel-title", ".") in MARKUP
        page.locator("#decision-list button").first.click()
        assert MARKUP[5] in wait_for_text(page, ".why", ".")
        assert MARKUP[1] in wait_for_text(page, ".seen .tree", ".")
        assert MARKUP[0] in wait_for_text(page, "#error", ".")
        assert MARKUP[2] in wait_for_text(page, "#pressure", ".")
        made = page.evaluate(
            "() => document.querySelectorAll('main img, main script, main b, main i[onload], [onerror]').length"
        )
        assert made == 0
        assert page.title().startswith(MARKUP[1])
        assert all(url.startswith(server.address) for url in visit.requests)


def test_the_cause_of_back_pressure_stands_out_and_its_victims_do_not(visit):
    graph = made_up_graph(4, 1)
    sample = made_up_sample(graph)
    held = {"operator 0": "operator 2", "operator 1": "operator 2"}
    sample["pressure"] = {"causes": [{"operator": "operator 2", "why": "16 of 16 batches wait for it"}], "held": held}
    with served(visit, MadeUpPage(graph, sample)) as server:
        page = visit.open(server.address)
        assert page.locator(".badge:visible").count() == 1
        assert operator(page, "operator 2").locator(".badge").is_visible()
        assert operator(page, "operator 2").get_attribute("data-pressure") == "cause"
        assert operator(page, "operator 1").get_attribute("data-pressure") == "held"
        assert operator(page, "operator 3").get_attribute("data-pressure") is None
        assert "operator 2" in wait_for_text(page, "#pressure", "16 of 16")
        operator(page, "operator 1").click()
        wait_for_text(page, ".note", "Waits for operator 2")
