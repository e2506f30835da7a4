"""Which marks a level needs: all of them for sessions, the edges of windows where there are only those."""

from __future__ import annotations

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.spark.stages import Stages


def test_marks_go_by_the_grids_of_each_level() -> None:
    flow = ps.Flow("f")
    rows = flow.source("in", ps.read.items([{"t": 0, "k": 1}]), time="t")
    sessions = rows.key_by("k").window(ps.session(5)).count(name="sessions")
    counts = sessions.key_by("k").window(ps.tumbling(10, offset=3)).count(name="counts")
    counts.window(ps.sliding(20, every=5)).count(name="totals").sink("out")
    assert Stages(make_plan(flow)).grids == {"in": {1: None, 2: [(10, 3, 0)], 3: [(5, 0, 0)]}}


def test_one_operator_that_needs_every_mark_is_enough_for_its_level() -> None:
    flow = ps.Flow("f")
    rows = flow.source("in", ps.read.items([{"t": 0, "k": 1}]), time="t").key_by("k")
    for name, window in (("a", 10), ("b", ps.session(5)), ("c", 20)):
        rows.window(window).count(name=name).sink(f"out_{name}")
    assert Stages(make_plan(flow)).grids == {"in": {1: None}}
