"""Cheap rows go together in large batches, dear ones in small ones, and no row is lost when the size changes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import penstock as ps
from penstock.ingress.feeds import make_feed
from penstock.local.engine import LocalEngine, Options
from penstock.local.ingress import Cutter
from penstock.local.sizing import FEWEST_ROWS, FIRST_LOOK, FIRST_ROWS, MOST_ROWS, WORK_SECONDS, Sizing
from penstock.pe.statistics import ElementStats, OperatorStats
from penstock.plan import make_plan

BATCH_ROWS = 4096


def seen(seconds_a_row: float, batches: int = FIRST_LOOK, name: str = "work") -> ElementStats:
    rows = batches * BATCH_ROWS
    operator = OperatorStats(name, "stateless", batches, rows, rows, rows * seconds_a_row, 0.0, (0,), 0, 0.0)
    return ElementStats(0.0, rows, batches, batches, (operator,), (), None, {})


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [(1e-9, MOST_ROWS), (WORK_SECONDS / BATCH_ROWS, BATCH_ROWS), (1e-4, FIRST_ROWS), (10.0, FEWEST_ROWS)],
)
def test_a_batch_is_some_work(seconds, rows):
    sizing = Sizing()
    assert sizing.look(seen(seconds)) == rows
    assert sizing.look(seen(seconds)) == rows  # nothing was done meanwhile


def test_small_differences_change_nothing():
    for factor in (1.0, 1.6, 0.6):
        assert Sizing().look(seen(factor * WORK_SECONDS / FIRST_ROWS)) == FIRST_ROWS


def test_operators_whose_rows_wait_do_not_count():
    assert Sizing({"wait"}).look(seen(1.0, name="wait")) == MOST_ROWS


def test_operators_with_a_given_number_of_rows_in_flight_wait_too():
    flow = ps.Flow("waits")
    source = flow.source("in", ps.read.items(range(10), schema=int))
    source.map(lambda n: n, name="found", waits=True).map(lambda n: n, name="given", in_flight=3).sink("out")
    sizing = LocalEngine(make_plan(flow), Options())._sizing
    assert sizing is not None
    assert sizing._waiting == {"found", "given"}


def test_it_looks_less_and_less_often():
    sizing = Sizing()
    assert not sizing.is_due(FIRST_LOOK - 1)
    assert sizing.is_due(FIRST_LOOK)
    sizing.look(seen(1e-6, batches=FIRST_LOOK))
    assert not sizing.is_due(2 * FIRST_LOOK - 1)
    assert sizing.is_due(2 * FIRST_LOOK)


def test_what_came_before_the_last_look_does_not_count():
    sizing = Sizing()
    assert sizing.look(seen(10.0)) == FEWEST_ROWS
    slow, rows = seen(10.0).operators[0], 100 * BATCH_ROWS
    later = replace(slow, rows_in=slow.rows_in + rows, wall=slow.wall + rows * WORK_SECONDS / BATCH_ROWS)
    assert sizing.look(replace(seen(10.0), operators=(later,))) == BATCH_ROWS


def test_a_flow_finds_its_size_and_keeps_every_row():
    flow = ps.Flow("grows")
    source = flow.source("in", ps.read.items(range(40 * BATCH_ROWS), schema=int))
    source.filter(lambda n: n % 7 == 0, name="seventh").sink("out")
    found, given = (LocalEngine(make_plan(flow), Options(rows)) for rows in (None, 512))
    for engine in (found, given):
        engine.run()
        assert engine.results["out"] == list(range(0, 40 * BATCH_ROWS, 7))
    assert found._cutter.batch_rows != FIRST_ROWS
    assert given._cutter.batch_rows == 512


def test_the_size_may_change_in_the_middle_of_a_slice():
    flow = ps.Flow("sizes")
    flow.source("in", ps.read.items(range(1000), schema=int)).sink("out")
    plan = make_plan(flow)
    cutter = Cutter(plan, 10)
    feed = make_feed(plan.sources[0].operator.reader, "in", time.monotonic)
    sizes, rows = [3, 40, 1, 200, 7], []
    for cut in cutter.cut({"in": feed.poll(1000)}):
        rows += cut.rows["in"][0].get_rows()
        cutter.batch_rows = sizes[len(rows) % len(sizes)]
    assert rows == list(range(1000))
