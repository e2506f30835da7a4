"""Queries come and go while a flow runs: the others keep their rows and their order."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FlowError, PenstockError

from ..patience import PATIENCE
from .pacing import ROWS, Paced, started
from .support import MODELS, wait_for


def count(state: int | None, row: Any) -> tuple[int, tuple[int, int]]:
    return (state or 0) + 1, (row.k, (state or 0) + 1)


@pytest.mark.parametrize("model", MODELS)
def test_they_come_and_go(model):
    paced = Paced()
    _, source, shared, run = started(model, paced)
    paced.step(20)
    wait_for(lambda: len(run.results["first"]) == 20)
    shared.key_by("k").scan(count, name="counts").sink("second")
    source.window(10).aggregate(rows=ps.agg.count(), name="windows").sink("third")
    began = paced.past(run, run.add_query, "second")
    paced.past(run, run.add_query, "third")
    assert run.queries == ["first", "second", "third"]
    paced.step(18)
    wait_for(lambda: len(run.results["first"]) == 40)
    ended = paced.past(run, run.cancel_query, "second")
    assert run.queries == ["first", "third"]
    paced.step(ROWS)
    run.await_end(PATIENCE)
    assert [row.n for row in run.results["first"]] == [10 * n for n in range(ROWS)]
    seen: dict[int, int] = {}
    expected = []
    for n in range(began, ended):
        seen[n % 3] = seen.get(n % 3, 0) + 1
        expected.append((n % 3, seen[n % 3]))
    assert run.results["second"] == expected
    assert sum(row.rows for row in run.results["third"]) == ROWS - began - 1
    assert set(run.stats.queries) == {"first", "third"}


def test_a_query_with_branches_of_its_own():
    paced = Paced()
    _, source, _, run = started("dynamic", paced)
    paced.step(5)
    wait_for(lambda: len(run.results["first"]) == 5)
    source.map(lambda row: (row.n, "a"), name="a").union(source.map(lambda row: (row.n, "b"), name="b")).sink("both")
    paced.step(1)
    began = paced.past(run, run.add_query, "both")
    paced.step(ROWS)
    run.await_end(PATIENCE)
    assert run.results["both"] == [(n, name) for n in range(began, ROWS) for name in "ab"]


def test_what_cannot_be_is_refused():
    paced = Paced()
    _, source, shared, run = started("dynamic", paced)
    paced.step(1)
    with pytest.raises(FlowError, match="no sink 'none'"):
        run.add_query("none")
    with pytest.raises(FlowError, match="runs already"):
        run.add_query("first")
    with pytest.raises(FlowError, match="the last query"):
        run.cancel_query("first")
    with pytest.raises(FlowError, match="no query 'other' is running"):
        run.cancel_query("other")
    shared.union(source, name="late").sink("meets")
    with pytest.raises(FlowError, match="brings streams together"):
        paced.past(run, run.add_query, "meets")
    paced.step(ROWS)
    run.await_end(PATIENCE)
    with pytest.raises(PenstockError, match="the flow has ended"):
        run.add_query("meets")


def test_branches_that_part_above_running_operators_do_not_meet_again():
    """Whatever came in between: an operator has the positions that it was made for."""
    paced = Paced()
    _, source, shared, run = started("dynamic", paced)
    paced.step(1)
    source.map(lambda row: 1, name="x").union(source.map(lambda row: 2, name="y")).sink("pair")
    paced.past(run, run.add_query, "pair")
    shared.union(source.map(lambda row: row, name="z"), name="late").sink("meets")
    with pytest.raises(FlowError, match="brings streams together"):
        paced.past(run, run.add_query, "meets")
    paced.step(ROWS)
    run.await_end(PATIENCE)


@pytest.mark.parametrize("model", MODELS)
def test_a_query_is_cancelled_and_added_again(model):
    paced = Paced()
    _, source, _, run = started(model, paced)
    source.map(lambda row: row.n, name="again").sink("second")
    for change in [run.add_query, run.cancel_query] * 5:
        paced.past(run, change, "second")
        paced.step(1)
    paced.step(ROWS)
    run.await_end(PATIENCE)
    assert [row.n for row in run.results["first"]] == [10 * n for n in range(ROWS)]
    assert run.results["second"] == sorted(set(run.results["second"]))


def test_two_who_add_queries_at_once_both_get_theirs():
    paced = Paced()
    _, source, _, run = started("dynamic", paced)
    paced.step(1)
    wait_for(lambda: len(run.results["first"]) == 1)
    for name in ("a", "b"):
        source.map(lambda row: row.n, name=f"n_{name}").sink(name)
    threads = [threading.Thread(target=run.add_query, args=[name]) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        paced.step(1)
        threads[0].join(0.01)
        threads[1].join(0.01)
    assert run.queries == ["a", "b", "first"]
    paced.step(ROWS)
    run.await_end()
    assert run.results["a"][-1] == run.results["b"][-1] == ROWS - 1


def test_a_flow_is_not_changed_from_inside_itself():
    flow = ps.Flow("inside")
    source = flow.source("in", ps.read.items([1]))
    source.sink("other")
    problems = []

    def listen(rows: list[Any], number: int) -> None:
        try:
            run.cancel_query("other")
        except PenstockError as error:
            problems.append(str(error))

    source.sink("out", ps.write.callback(listen))
    ready = threading.Event()
    source.map(lambda row: (ready.wait(PATIENCE), row)[1], name="wait").sink("late")
    run = ps.start(flow, on=ps.Threads(workers=1))
    ready.set()
    run.await_end()
    assert len(problems) == 1
    assert "another thread" in problems[0]
