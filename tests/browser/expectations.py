"""What the page must show of any flow, live or finished, on any engine."""

from __future__ import annotations

import re
from typing import Any

from .visiting import operator, wait_for_text

FIELDS = (
    "rate_in",
    "rate_out",
    "busy",
    "cost",
    "cpu",
    "selectivity",
    "queue",
    "errors",
    "state_bytes",
    "keys",
    "key_bytes",
    "reorder_depth",
    "oldest_gap",
)
NUMBER = r"[0-9]"


def check_head(page: Any, flow: str, engine: str, state: str) -> None:
    """The name, the engine, the state, and the figures that matter most."""
    assert wait_for_text(page, "#flow", ".") == flow
    wait_for_text(page, "#engine", engine)
    wait_for_text(page, "#state", state)
    for figure in ("#kpi-rate", "#kpi-p50", "#kpi-p99", "#kpi-size", "#kpi-rows"):
        wait_for_text(page, figure, NUMBER)


def check_graph(page: Any, kinds: dict[str, str], moving: bool = True) -> None:
    """Operators by kind, each with a colour for its busy time, and rows a second on every edge."""
    page.wait_for_function("count => document.querySelectorAll('.node').length === count", arg=len(kinds))
    for name, kind in kinds.items():
        node = operator(page, name)
        assert f"kind-{kind}" in node.get_attribute("class")
        assert node.get_attribute("data-heat") in set("012345678")
        fill = node.locator(".body").evaluate("each => getComputedStyle(each).fill")
        assert re.match(r"rgb\(", fill)
    labels = page.locator(".edge-label").all_text_contents()
    assert len(labels) >= len(kinds) - 1
    assert all(re.fullmatch(r"[0-9.]+( [kMG])?/s", label) for label in labels), labels
    if moving:
        assert any(not label.startswith("0/") for label in labels)
    # Left to right: whatever reads stands right of what it reads.
    places = page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.node')].map(e => [e.dataset.operator, "
        "e.getBoundingClientRect().x]))"
    )
    first, last = next(iter(kinds)), list(kinds)[-1]
    assert places[first] < places[last]


def check_operator_panel(page: Any, name: str) -> None:
    """A click opens the panel, Escape closes it, and the keyboard does the same."""
    operator(page, name).click()
    assert wait_for_text(page, "#panel-title", ".") == name
    for field in FIELDS:
        assert wait_for_text(page, f"[data-field={field}]", "."), field
    wait_for_text(page, "[data-field=cpu]", "CPU .* of .* wall")
    page.keyboard.press("Escape")
    page.wait_for_selector("#panel", state="hidden")
    page.evaluate("() => document.querySelector('.node[tabindex=\"0\"]').focus()")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    reached = page.evaluate("() => document.activeElement.dataset.operator")
    assert wait_for_text(page, "#panel-title", ".") == reached
    page.keyboard.press("Escape")


def check_timeline(page: Any, decisions: int) -> None:
    """Four lines over time, and a mark for every decision, which opens the reason and what was seen."""
    for lane in ("rate", "latency", "lag", "size"):
        page.wait_for_function(
            "lane => [...document.querySelectorAll(`.lane-${lane} .line`)].some(e => e.getAttribute('d')?.length > 8)",
            arg=lane,
        )
    page.wait_for_function(
        "wanted => [...document.querySelectorAll('.mark')].reduce((sum, e) => sum + +e.dataset.count, 0) >= wanted",
        arg=decisions,
    )
    if not decisions:
        return
    assert page.locator("#decision-list li").count() >= min(decisions, 200)
    mark = page.locator(".mark").last
    mark.focus()
    page.keyboard.press("Enter")
    assert wait_for_text(page, ".why", ".{5}")
    # What the panel shows tells how many there were, not the mark: by now the last one may be that of a newer decision.
    several = page.locator(".decision-detail button")
    if several.count():
        several.last.click()
    wait_for_text(page, ".seen .tree", NUMBER)
    page.keyboard.press("Escape")
    page.locator("#decision-list button").first.click()
    wait_for_text(page, ".seen .tree", NUMBER)
    page.keyboard.press("Escape")


def check_shards(page: Any, operator_name: str, shards: int) -> None:
    """A cell for every shard; what one has is read by pointing at it and by arrow keys."""
    page.select_option("#shard-operator", operator_name)
    page.wait_for_function("count => document.querySelectorAll('.cell').length === count", arg=shards)
    assert page.locator(".cell[data-heat]").count() == shards
    page.focus("#shards")
    before = wait_for_text(page, "#shard-reading", "shard")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('#shard-reading').textContent !== before", arg=before)
    assert wait_for_text(page, "#shard-hot", ".")
    assert wait_for_text(page, "#shard-imbalance", ".")


def check_epochs(page: Any, parts: list[str]) -> None:
    """Bars, split into parts, with their shares in the legend."""
    page.wait_for_selector(".epoch rect", state="attached")
    legend = " ".join(page.locator("#epoch-legend li").all_text_contents())
    for part in parts:
        assert re.search(rf"{part} <?[0-9]+ %", legend), (part, legend)
    wait_for_text(page, "#epoch-reading", "rows in .*user code")


def check_order_and_state(page: Any, checkpoint: str) -> None:
    """Reorder depth, the oldest gap, the checkpoint's age, the size of the state."""
    for figure in ("#order-depth", "#order-gap", "#state-size", "#errors"):
        wait_for_text(page, figure, NUMBER)
    wait_for_text(page, "#checkpoint-age", checkpoint)


def check_queries(page: Any, names: list[str]) -> None:
    """Each query with its latency."""
    assert page.locator("#queries tr th").all_text_contents() == names
    for row in page.locator("#queries tr").all():
        if row.locator("td").first.text_content() != "not running":
            assert re.search(NUMBER, row.locator("td").nth(2).text_content())
