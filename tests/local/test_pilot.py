"""The number of workers is found while a flow runs."""

from __future__ import annotations

import threading
from typing import Any

import penstock as ps
from penstock.elastic.decisions import replay
from penstock.local.engine import LocalEngine, Options
from penstock.local.pilot import FlowPilot
from penstock.local.steering.threads import ThreadSteering, machine_usage
from penstock.pe.element import Settings
from penstock.plan import make_plan


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
    engine = LocalEngine(make_plan(flow), Options(batch_rows=1, settings=Settings(in_flight=512)), clock=clock)
    steering = ThreadSteering(engine.element, most=8, cpu_usage=lambda: 0.1)
    engine._pilot = pilot = FlowPilot(engine.statistics, [steering], period=3600)
    thread = threading.Thread(target=engine.run)
    thread.start()
    element = engine.element
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
    thread.join(30)
    assert found >= 4  # where batches that wait for one another are counted late, it may not stay there
    assert len(engine.results["out"]) == 2000
    changes = [each for each in engine.decisions if each.what == "thread_level"]
    assert changes
    assert all(each.why for each in changes)
    assert replay(engine.decisions).same


def done(element: Any) -> int:
    return next(each.rows_in for each in element.statistics().operators if each.name == "wait")


def test_it_runs_by_itself_and_ends_with_the_flow():
    flow = ps.Flow("short")
    flow.source("in", ps.read.items(range(100))).map(lambda v: v).sink("out")
    run = ps.run(flow, engine="threads")
    assert run.decisions[0].what == "start"
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-pilot"]


def test_the_machine_tells_how_busy_it_is():
    usage = machine_usage()
    sum(range(3_000_000))
    assert 0.0 <= usage() <= 1.0
