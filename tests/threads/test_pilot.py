"""The number of workers is found while a flow runs."""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import penstock as ps
from penstock.elastic.base import Action
from penstock.elastic.decisions import replay
from penstock.elastic.levers import WorkersLever
from penstock.elastic.pilot import Lever, Period
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics
from penstock.elastic.utilization_pool import UtilizationPool
from penstock.plan.plan import make_plan
from penstock.statistics import FlowStats
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.levers import batch_lever, machine_usage, workers_lever
from penstock.threads.pilot import PERIOD, SEARCH_PERIOD, PilotThread
from penstock.threads.settings import Settings

from ..how import how
from ..patience import PATIENCE
from .pacing import Paced, started
from .support import Held, simple, wait_for


class Waits:
    """A function that waits for a tick, so that rows a tick are as many as workers."""

    def __init__(self) -> None:
        self.ticks = threading.Semaphore(0)

    def __call__(self, row: Any) -> Any:
        self.ticks.acquire()
        return row


class Clock:
    """Time that passes when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_operator_that_waits_gets_more_workers():
    flow = ps.Flow("waits")
    waits = Waits()
    flow.source("in", ps.read.items([{"v": v} for v in range(2000)])).map(waits, name="wait").sink("out")
    clock = Clock()
    engine = LocalEngine(make_plan(flow), LocalOptions(batch_rows=1, settings=Settings(in_flight=512)), clock=clock)
    lever = workers_lever(engine.element, most=8, cpu_usage=lambda: 0.1)
    engine.pilot = pilot = PilotThread(engine.statistics, [lever], period=3600)
    thread = threading.Thread(target=engine.run)
    thread.start()
    element = engine.element
    wait_for(element.model.workers)
    for _ in range(40):
        # One tick of this clock lets each worker finish one row.
        before = done(element)
        workers = len(element.model.workers())
        waits.ticks.release(workers)
        while done(element) < before + workers:
            thread.join(0.001)
        clock.now += 1.0
        pilot.step()
        if done(element) > 1500:
            break
    found = max(int(each.after or 0) for each in engine.decisions if each.what == "thread_level")
    waits.ticks.release(4000)
    thread.join(PATIENCE)
    assert found >= 4  # where batches that wait for one another are counted late, it may not stay there
    assert len(engine.results["out"]) == 2000
    changes = [each for each in engine.decisions if each.what == "thread_level"]
    assert changes
    assert all(each.why for each in changes)
    assert replay(engine.decisions).same


def done(element: Any) -> int:
    return element.statistics().operators["wait"].rows_in


def test_it_runs_by_itself_and_ends_with_the_flow():
    flow = ps.Flow("short")
    flow.source("in", ps.read.items(range(100))).map(lambda v: v).sink("out")
    run = ps.run(flow, on=ps.Threads())
    assert run.decisions[0].what == "start"
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-pilot"]


def test_the_machine_tells_how_busy_it_is():
    usage = machine_usage()
    sum(range(3_000_000))
    assert 0.0 <= usage() <= 1.0


class TestWhatYouSetIsLeftAlone:
    def test_the_number_of_workers(self):
        held = Held(40)
        run = ps.start(simple(held), on=ps.Threads())
        pilot = run.engine.pilot
        assert pilot.names == ["threads", "batches"]
        run.set_threads(8)
        assert pilot.names == ["batches"]
        wait_for(lambda: run.stats.workers)
        for _ in range(20):
            held.go.release()
            pilot.step()
            assert len(run.stats.workers) == 8  # half of the rows are still held
        for _ in range(20):
            held.go.release()
        run.await_end(PATIENCE)
        assert {each.controller for each in run.decisions if each.what != "start"} <= {"batches", "first batches"}
        assert replay(run.decisions).same

    def test_a_wrong_number_changes_nothing(self):
        held = Held(1)
        run = ps.start(simple(held), on=ps.Threads())
        with pytest.raises(ps.PenstockError):
            run.set_threads(0)
        assert "threads" in run.engine.pilot.names
        held.go.release()
        run.await_end(PATIENCE)

    @pytest.mark.parametrize("latency", [None, "1 s"])
    def test_the_replicas_of_an_operator(self, latency):
        paced = Paced()
        flow = ps.Flow("own")
        rows = flow.source("in", ps.read.items(paced, schema={"n": int, "k": int}))
        rows.flat_map(lambda row: [row.n], name="set").flat_map(lambda n: [n], name="found").sink("out")
        run = ps.start(flow, on=ps.Threads(model="dedicated", replicas="auto", batch_rows=1), latency=latency)
        paced.past(run, run.set_replicas, "set", 3)
        (lever,) = (each for each in run.engine.pilot.levers if each.name in ("replicas", "cores"))
        before = run.engine.statistics()
        paced.step(20)
        wait_for(lambda: len(run.results["out"]) == 21)
        seen = lever.read(Period(before, run.engine.statistics()))
        assert [each.name for each in (seen.executors if latency else seen.operators)] == ["found"]
        paced.step(100)
        run.await_end(PATIENCE)


def test_operators_of_a_query_that_comes_are_steered_and_those_of_one_that_goes_no_more():
    paced = Paced()
    _, source, _, run = started("dedicated", paced)
    assert run.engine.pilot.names == []
    for query in ("ask", "tell"):
        source.map(lambda row: row.n, name=query, waits=True).sink(f"{query}s")
    paced.step(1)
    paced.past(run, run.add_query, "asks")
    paced.past(run, run.add_query, "tells")
    assert run.engine.pilot.names == ["rows in flight of ask", "rows in flight of tell"]
    paced.past(run, run.cancel_query, "asks")
    assert run.engine.pilot.names == ["rows in flight of tell"]
    for _ in range(3):
        run.engine.pilot.step()
    paced.step(100)
    run.await_end(PATIENCE)
    assert [each.controller for each in run.decisions if each.what == "start"] == [
        "rows in flight of ask",
        "rows in flight of tell",
    ]
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-pilot"]


@dataclass
class Scripted(Lever):
    """A lever that sees what the test says, and notes what it was told of the others."""

    name: str
    fails: bool = False
    told: list[Period] = field(default_factory=list)
    controller: UtilizationPool = field(default_factory=UtilizationPool)

    def read(self, period: Period) -> None:
        self.told.append(period)
        if self.fails:
            raise ZeroDivisionError("nothing came")

    def act(self, action: Action) -> None:
        raise AssertionError(action)


EMPTY = FlowStats()


def test_one_that_fails_is_left_out_and_said_so(caplog):
    broken, other = Scripted("broken", fails=True), Scripted("other")
    pilot = PilotThread(lambda: EMPTY, [broken, other])
    with caplog.at_level(logging.ERROR):
        pilot.step()
        pilot.step()
    assert pilot.names == ["other"]
    assert (len(broken.told), len(other.told)) == (1, 2)
    assert "broken is left as it is" in caplog.text
    assert "nothing came" in caplog.text


class Fed(WorkersLever):
    """Workers that are seen to do what the test says."""

    seen = ThreadStatistics(100.0, 0.3)

    def read(self, period: Period) -> ThreadStatistics:
        return self.seen


def fed(engine: LocalEngine) -> Fed:
    return Fed(engine.element, ThreadLevel(high=4, skipped=1, least_noise=0.05), float, 1)


def test_others_wait_until_the_workers_are_found():
    """Not only until they have not changed for some periods: a level may be measured for longer."""
    engine = LocalEngine(make_plan(simple([])), LocalOptions())
    workers, other = fed(engine), Scripted("other")
    pilot = PilotThread(lambda: EMPTY, [workers, other])
    settled = []
    for _ in range(60):
        pilot.step()
        settled.append(other.told[-1].settled("threads", 4))
        assert settled[-1] == (other.told[-1].unchanged("threads", 4) and not pilot.journal.state("threads").searching)
    changes = [each for each in pilot.journal.decisions if each.what == "thread_level"]
    assert changes
    assert settled.index(True) > 12
    assert all(settled[settled.index(True) :])
    engine.run()


def test_looks_come_sooner_while_workers_are_searched_and_batches_move():
    engine = LocalEngine(make_plan(simple([])), LocalOptions())
    batches = itertools.count()
    pilot = PilotThread(lambda: replace(EMPTY, batches_out=next(batches)), [fed(engine)])
    assert pilot.wait == SEARCH_PERIOD < PERIOD
    waits = set()
    for _ in range(60):
        pilot.step()
        searching = pilot.journal.state("threads").searching
        waits.add((searching, pilot.wait))
    assert waits == {(True, SEARCH_PERIOD), (False, PERIOD)}
    engine.run()


def test_a_flow_that_stands_still_is_not_looked_at_more_often():
    engine = LocalEngine(make_plan(simple([])), LocalOptions())
    pilot = PilotThread(lambda: EMPTY, [fed(engine)])
    pilot.step()
    assert pilot.journal.state("threads").searching
    assert pilot.wait == PERIOD
    engine.run()


def test_batches_wait_for_the_workers_unless_there_is_a_target():
    now = FlowStats(1.0, 1.0, 100, batches_in=10, batches_out=10)
    for target, waits in [(None, True), (0.1, False)]:
        lever = batch_lever(lambda rows: None, lambda: 64, target)
        searching = Period(EMPTY, now, {"threads": 9}, frozenset({"threads"}))
        assert (lever.read(searching) is None) == waits
        assert lever.read(Period(EMPTY, now, {"threads": 9})) is not None


def test_a_period_that_began_with_another_size_of_batches_says_nothing_about_workers():
    engine = LocalEngine(make_plan(simple([])), LocalOptions())
    lever = workers_lever(engine.element, cpu_usage=lambda: 0.1)
    now = FlowStats(1.0, 1.0, 100, batches_in=10, batches_out=10)
    assert lever.read(Period(EMPTY, now, {"batches": 1})) is None
    assert lever.read(Period(EMPTY, now, {"batches": 2})) is not None
    engine.run()


def test_a_latency_target_is_told_what_batches_take():
    """Seconds of workers, of all operators together, and of no operator that has gone."""
    engine = LocalEngine(make_plan(simple([])), LocalOptions())
    operator = engine.statistics().operators["work"]
    first, second = (replace(operator, name=name, wall=wall) for name, wall in [("first", 1.0), ("gone", 9.0)])
    before = replace(EMPTY, operators={"first": first, "second": second})
    now = replace(EMPTY, at=2.0, batches_in=24, batches_out=20, operators={"first": replace(first, wall=5.0)})
    lever = workers_lever(engine.element, target=0.5, cpu_usage=lambda: 0.1)
    seen = lever.read(Period(before, now))
    assert seen is not None
    assert (seen.batches, seen.work) == (12.0, 0.2)
    engine.run()


@pytest.mark.parametrize(
    ("options", "steered"),
    [
        ({}, ["threads", "batches"]),
        ({"threads": 2}, ["batches"]),
        ({"threads": "utilization"}, ["pool", "batches"]),
        ({"model": "dedicated"}, ["cores", "batches"]),
        ({"replicas": "auto"}, ["threads", "replicas", "batches"]),
    ],
)
def test_what_a_latency_target_steers(options, steered):
    held = Held(1)
    run = ps.start(simple(held), latency="100 ms", **how("threads", **options))
    pilot = run.engine.pilot
    assert pilot.names == steered
    for each in pilot.levers:
        assert getattr(each.controller, "target", 0.1) == 0.1
    held.go.release()
    run.await_end(PATIENCE)
