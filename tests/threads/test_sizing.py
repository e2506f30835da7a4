"""Cheap rows go together in large batches, dear ones in small ones, and no row is lost when the size changes."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

import penstock as ps
from penstock.elastic.batch_size import WorkDone
from penstock.elastic.decisions import from_json, replay, to_json
from penstock.elastic.pilot import Period
from penstock.plan.plan import make_plan
from penstock.statistics import FlowStats, OperatorStats, WorkerStats
from penstock.threads import levers
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.ingress import Cutter
from penstock.threads.levers import (
    COLUMN_SECONDS,
    FEWEST_ROWS,
    FIRST_LOOK,
    FIRST_ROWS,
    MOST_COLUMN_ROWS,
    MOST_ROWS,
    WORK_SECONDS,
    FirstBatches,
)

BATCH_ROWS = 4096


class Look:
    """A look at sizes after the other, as the engine takes them."""

    def __init__(self, waiting: set[str] | None = None) -> None:
        self.sizing = FirstBatches(lambda rows: None, waiting or set())
        self.state = self.sizing.controller.start()

    def __call__(self, stats: FlowStats) -> int:
        self.state, actions = self.sizing.controller.step(self.state, self.sizing.read(self.sizing.period(stats)))
        assert all(action.what == "batch_rows" and action.after == self.state for action in actions)
        return self.state


def seen(seconds_a_row: float, batches: int = FIRST_LOOK, name: str = "work") -> FlowStats:
    rows = batches * BATCH_ROWS
    operator = OperatorStats(batches, rows, rows, rows * seconds_a_row, name=name, kind="stateless", queued=(0,))
    return FlowStats(0.0, 0.0, rows, batches_in=batches, batches_out=batches, operators={name: operator})


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [(1e-9, MOST_ROWS), (WORK_SECONDS / BATCH_ROWS, BATCH_ROWS), (1e-3, FIRST_ROWS), (10.0, FEWEST_ROWS)],
)
def test_a_batch_is_some_work(seconds, rows):
    look = Look()
    assert look(seen(seconds)) == rows
    assert look(seen(seconds)) == rows  # nothing was done meanwhile


def test_batches_are_larger_where_state_is_kept_by_columns():
    """A key costs as much in a small batch as in a large one there."""
    sizing = FirstBatches(lambda rows: None, columns=True)
    assert sizing.controller.step(BATCH_ROWS, sizing.read(Period(FlowStats(), seen(1e-9))))[0] == MOST_COLUMN_ROWS
    assert (
        sizing.controller.step(BATCH_ROWS, sizing.read(Period(FlowStats(), seen(COLUMN_SECONDS / BATCH_ROWS))))[0]
        == BATCH_ROWS
    )
    assert COLUMN_SECONDS > WORK_SECONDS


@pytest.mark.parametrize(("gil", "workers", "times"), [(True, 2, 1), (False, 1, 1), (False, 2, 2), (False, 8, 2)])
def test_batches_are_larger_where_several_workers_share_one_at_once(monkeypatch, gil, workers, times):
    monkeypatch.setattr(levers, "gil_enabled", lambda: gil)
    there = tuple(WorkerStats(number, "busy", "work", 0.0, 0.0) for number in range(workers))
    assert Look()(replace(seen(1e-9), workers=there)) == times * MOST_ROWS
    assert Look()(replace(seen(WORK_SECONDS / BATCH_ROWS), workers=there)) == times * BATCH_ROWS


def test_a_look_waits_for_a_batch_of_the_size_that_was_set_last(monkeypatch):
    """Who brings batches in is far ahead: what is through by then are small ones, which are known already."""
    looks, read = [], FirstBatches.read

    def watched(self: FirstBatches, period: Period) -> WorkDone:
        found = read(self, period)
        looks.append((self.state, found.rows))
        return found

    def late(n: int) -> int:
        while n == FIRST_ROWS * FIRST_LOOK and engine.element.submitted < 2 * FIRST_LOOK:
            time.sleep(0.001)
        return n

    monkeypatch.setattr(FirstBatches, "read", watched)
    flow = ps.Flow("late")
    flow.source("in", ps.read.items(range(200_000), schema=int)).map(late, name="late").sink("out")
    engine = LocalEngine(make_plan(flow), LocalOptions())
    engine.run()
    assert len(looks) >= 3
    assert all(rows >= size for size, rows in looks)


def test_no_look_keeps_rows_from_a_function_that_waits(monkeypatch):
    """One that waits for an answer says nothing of the others, which could be asked for meanwhile."""
    known = FIRST_ROWS * FIRST_LOOK
    went_on = asyncio.Event()

    async def patient(n: int) -> int:
        if n == known:
            await asyncio.wait_for(went_on.wait(), 10)
        elif n > 3 * known and engine.element.submitted > 2 * FIRST_LOOK:
            went_on.set()
        return n

    flow = ps.Flow("patient")
    source = flow.source("in", ps.read.items(range(40 * FIRST_ROWS), schema=int))
    source.map(patient, name="patient", in_flight=100_000).sink("out")
    for bound in ("FEWEST_ROWS", "MOST_ROWS"):  # many batches, and each as large as the one before
        monkeypatch.setattr(levers, bound, FIRST_ROWS)
    engine = LocalEngine(make_plan(flow), LocalOptions())
    engine.run()
    assert engine.results["out"] == list(range(40 * FIRST_ROWS))


def test_small_differences_change_nothing():
    for factor in (1.0, 1.6, 0.6):
        assert Look()(seen(factor * WORK_SECONDS / FIRST_ROWS)) == FIRST_ROWS


def test_operators_whose_rows_wait_do_not_count():
    assert Look({"wait"})(seen(1.0, name="wait")) == MOST_ROWS


def test_operators_with_a_given_number_of_rows_in_flight_wait_too():
    flow = ps.Flow("waits")
    source = flow.source("in", ps.read.items(range(10), schema=int))
    source.map(lambda n: n, name="found", waits=True).map(lambda n: n, name="given", in_flight=3).sink("out")
    sizing = LocalEngine(make_plan(flow), LocalOptions())._sizing
    assert sizing is not None
    assert sizing._waiting == {"found", "given"}


def test_it_looks_less_and_less_often():
    look = Look()
    assert not look.sizing.is_due(FIRST_LOOK - 1)
    assert look.sizing.is_due(FIRST_LOOK)
    look(seen(1e-6, batches=FIRST_LOOK))
    assert not look.sizing.is_due(2 * FIRST_LOOK - 1)
    assert look.sizing.is_due(2 * FIRST_LOOK)


def test_what_came_before_the_last_look_does_not_count():
    look = Look()
    assert look(seen(10.0)) == FEWEST_ROWS
    slow, rows = seen(10.0).operators["work"], 100 * BATCH_ROWS
    later = replace(slow, rows_in=slow.rows_in + rows, wall=slow.wall + rows * WORK_SECONDS / BATCH_ROWS)
    assert look(replace(seen(10.0), operators={"work": later})) == BATCH_ROWS


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let rows have taken what a script says at each look; return the sizes that were set.

    What is found on this machine is nobody's business here.
    """
    costs, sizes = itertools.cycle([1.0, 1e-9, 8e-5, 2e-5]), list[int]()

    real_read, real = FirstBatches.read, LocalEngine.set_batch_rows

    def read(self: FirstBatches, period: Period) -> WorkDone:
        real_read(self, period)
        return WorkDone(1000, 1000 * next(costs))

    def set_batch_rows(self: LocalEngine, rows: int) -> None:
        sizes.append(rows)
        real(self, rows)

    monkeypatch.setattr(FirstBatches, "read", read)
    monkeypatch.setattr(LocalEngine, "set_batch_rows", set_batch_rows)
    return sizes


def test_a_flow_has_the_size_that_is_found_and_keeps_every_row_and_every_decision(scripted):
    flow = ps.Flow("grows")
    source = flow.source("in", ps.read.items(range(40 * BATCH_ROWS), schema=int))
    source.filter(lambda n: n % 7 == 0, name="seventh").sink("out")
    found, given = (LocalEngine(make_plan(flow), LocalOptions(rows)) for rows in (None, 500))
    for engine in (found, given):
        engine.run()
        assert engine.results["out"] == list(range(0, 40 * BATCH_ROWS, 7))
    assert scripted[:4] == [FEWEST_ROWS, MOST_ROWS, 512, 1024]
    assert found._cutter.batch_rows == scripted[-1]
    assert given._cutter.batch_rows == 500
    lines = [line for line in found.decisions if line.what == "batch_rows"]
    assert [(line.before, line.after) for line in lines] == list(itertools.pairwise([FIRST_ROWS, *scripted]))
    assert all(line.controller == "first batches" and "s of work" in line.why for line in lines)
    report = replay([from_json(to_json(line)) for line in found.decisions])
    assert (report.steps >= len(lines), report.differences) == (True, ())
    assert not given.decisions


def test_the_size_has_one_owner_at_a_time():
    """The controller that sees whole periods takes the size over with its first step, and says so in the log."""
    flow = ps.Flow("owners")
    flow.source("in", ps.read.items(range(10), schema=int)).sink("out")
    engine = LocalEngine(make_plan(flow), LocalOptions(elastic=True, steer=frozenset({"batches"})))
    lever = next(each for each in engine.pilot.levers if each.name == "batches")
    before, now = seen(1e-5, 1), seen(1e-5, 9)
    quiet = Period(replace(before, at=0.0), replace(now, at=2.0), {"threads": 0})
    assert lever.read(quiet) is None  # the workers have just changed
    assert engine.pilot.journal.has("first batches")
    first = engine._sizing
    assert first is not None
    engine.pilot.try_turn(first, first.period(seen(0.9)))
    decided = len(engine.decisions)
    assert engine.decisions[-1].controller == "first batches"
    assert lever.read(replace(quiet, quiet={"threads": 9})) is not None
    assert not engine.pilot.journal.has("first batches")
    engine.pilot.try_turn(first, first.period(seen(1e-9, 9)))
    assert len(engine.decisions) == decided
    assert engine._sizing is None


def test_the_size_may_change_in_the_middle_of_a_slice():
    flow = ps.Flow("sizes")
    flow.source("in", ps.read.items(range(1000), schema=int)).sink("out")
    plan = make_plan(flow)
    cutter = Cutter(plan, 10)
    feed = plan.sources[0].operator.reader.feed("in", time.monotonic)
    sizes, rows = [3, 40, 1, 200, 7], []
    for cut in cutter.cut({"in": feed.poll(1000)}):
        rows += cut.rows["in"][0].get_rows()
        cutter.batch_rows = sizes[len(rows) % len(sizes)]
    assert rows == list(range(1000))
