"""The same flow, costs and policy in the engine and in the simulator: at each decision policies see the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.lab.sim.choosing import PolicyChooser
from penstock.lab.sim.graphs import Graph, Operator
from penstock.lab.sim.machine import Machine, Synchronization
from penstock.lab.sim.pe import PE
from penstock.plan.plan import make_plan
from penstock.statistics import FlowStats
from penstock.threads.element import Element
from penstock.threads.policies import (
    POLICIES,
    Moment,
    OperatorView,
    Policy,
    QueueSizeThrottling,
    Snapshot,
    by_name,
    take_snapshot,
)
from penstock.threads.settings import Settings
from tests.threads.policies.driving import Clock, cuts

ROWS, BATCHES, CAPACITY, PARTITIONS = 8, 12, 64, 4
FREE = Synchronization(claim=0.0, tuple_passing=0.0, lock=0.0, wake=0.0)
NAMES = ("in", "a", "half", "twice", "counted", "left", "right", "out", "other")
COSTS = {"a": 3 / 512, "half": 1 / 512, "twice": 2 / 512, "counted": 5 / 512, "left": 4 / 512, "right": 7 / 512}
"""So much that windows go by, and in parts of a second that add up exactly."""


class Recorder:
    """Let a policy choose among the operators in the order of the flow, and keep what it saw."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.done = FlowStats()
        self.seen: list[tuple[dict[str, Snapshot], str]] = []

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        order = sorted(range(len(ready)), key=lambda index: ready[index].order)
        views = [ready[index] for index in order]
        for view in views:  # what is kept from decision to decision is as if it were worked out anew
            assert view.running_time == take_snapshot(view).running_time
        chosen = self._policy.choose(views, moment)
        self.seen.append(({view.name: take_snapshot(view) for view in views}, views[chosen].name))
        return order[chosen]


def in_the_engine(policy: Policy) -> Recorder:
    clock, recorder = Clock(), Recorder(policy)

    def counted(count: int, n: int) -> tuple[int, int]:
        clock.now += COSTS["counted"]
        return count + 1, n

    flow = ps.Flow("both")
    rows = list(range(ROWS * BATCHES))
    a = flow.source("in", ps.read.items(rows, schema=int)).map(clock.work(COSTS["a"]), name="a")
    half = a.filter(lambda n: clock.work(COSTS["half"])(n) % 2 == 0, name="half")
    twice = half.flat_map(lambda n: [clock.work(COSTS["twice"])(n)] * 2, schema=int, name="twice")
    keyed = twice.key_by(lambda n: n % 3).scan(counted, 0, schema=int, name="counted")
    keyed.map(clock.work(COSTS["left"]), name="left").sink("out")
    keyed.map(clock.work(COSTS["right"]), name="right").sink("other")
    plan = make_plan(flow)
    published: list[int] = []
    settings = Settings(workers=1, policy=recorder, fuse=False, quantum=0.0, capacity=CAPACITY, partitions=PARTITIONS)
    element = Element(plan, lambda header, chunks: published.append(header.number), settings, clock=clock)
    for cut in cuts(plan, rows, [ROWS]):
        assert element.submit(cut.rows, cut.marks, cut.steps)
    element.start()
    element.drain()
    element.close()
    recorder.done = element.statistics()
    assert published == list(range(BATCHES))
    return recorder


def in_the_simulator(policy: Policy) -> Recorder:
    recorder = Recorder(policy)
    graph = Graph(
        "both",
        (
            Operator(0.0, (1,), source=True, batches=BATCHES),
            Operator(COSTS["a"], (2,), permits=None),
            Operator(COSTS["half"], (3,), permits=None, selectivity=0.5),
            Operator(COSTS["twice"], (4,), permits=None, selectivity=2.0),
            Operator(COSTS["counted"], (5, 6), permits=PARTITIONS),
            Operator(COSTS["left"], (7,), permits=None),
            Operator(COSTS["right"], (8,), permits=None),
            Operator(0.0),
            Operator(0.0),
        ),
    )
    machine = Machine("free", cores=4, physical=4, synchronization=FREE)
    pe = PE(graph, machine, level=0, rows=ROWS, capacity=CAPACITY, time_slice=0.0, chooser=PolicyChooser(recorder))
    pe.run(0.0)  # all of the input is read before anything runs
    pe.set_workers(1)
    pe.run(100.0)
    assert pe.processed[7] == pe.processed[8] == ROWS * BATCHES
    recorder.done = pe.statistics()
    return recorder


def told_apart(view: Snapshot) -> dict[str, Any]:
    """Return what a view says, with the simulator's operators called as the engine's."""
    found = dataclasses.asdict(view)
    found["name"] = NAMES[int(view.name)] if view.name.isdigit() else view.name
    found["downstream"] = tuple(NAMES[int(n)] if n.isdigit() else n for n in view.downstream)
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_they_see_and_choose_the_same(name: str) -> None:
    policies = [QueueSizeThrottling(capacity=60.0) if name == "qst" else by_name(name) for _ in range(2)]
    engine, simulator = in_the_engine(policies[0]), in_the_simulator(policies[1])
    assert len(engine.seen) == len(simulator.seen) == BATCHES * len(NAMES)
    for (here, chosen), (there, simulated) in zip(engine.seen, simulator.seen, strict=True):
        seen = {view.name: told_apart(view) for view in here.values()}
        expected = {found["name"]: found for found in map(told_apart, there.values())}
        assert seen.keys() == expected.keys()
        for operator, values in expected.items():
            for what, value in values.items():
                close = pytest.approx(value, rel=1e-6, abs=1e-9) if value is not None and what != "name" else value
                assert seen[operator][what] == (value if what == "downstream" else close), (operator, what)
        assert chosen == NAMES[int(simulated)]


def test_they_tell_the_same_of_what_happened() -> None:
    engine, simulator = (run(by_name("lp")).done for run in (in_the_engine, in_the_simulator))
    assert engine.rows_in == simulator.rows_in == ROWS * BATCHES
    assert engine.batches_in == simulator.batches_in == BATCHES
    for number, name in enumerate(NAMES):
        here, there = engine.operators[name], simulator.operators[str(number)]
        for what in ("batches", "rows_in", "rows_out", "wall", "came", "queued", "rows_queued", "permits"):
            assert getattr(here, what) == pytest.approx(getattr(there, what)), (name, what)


def test_what_they_see_is_not_empty() -> None:
    """Hold the comparison itself to something: every measure that policies use has taken several values."""
    views = [view for seen, _ in in_the_engine(by_name("least-recent")).seen for view in seen.values()]
    for what in ("queued", "front_time", "front_number", "waiting_time", "downstream_queued", "downstream_room"):
        if what != "front_time":  # all rows were read at once
            assert len({getattr(view, what) for view in views}) > 2, what
    for what in ("last_run", "read_rates", "write_rates", "cost", "window_time", "outflow_share"):
        assert len({getattr(view, what) for view in views}) > 2, what
