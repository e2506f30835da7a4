"""Controllers on a live flow: what they see, what they change, and that nothing else changes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.elastic.decisions import replay
from penstock.keys import hash_value
from penstock.local.engine import LocalEngine, Options
from penstock.local.pilot import FlowPilot
from penstock.local.steering.base import Period, Steering
from penstock.local.steering.batches import FEWEST_ROWS, BatchSteering
from penstock.local.steering.cores import CoreSteering
from penstock.local.steering.pool import PoolSteering
from penstock.local.steering.rebinding import RebindingSteering
from penstock.local.steering.replicas import SETTLED_PERIODS, ReplicaSteering
from penstock.local.steering.shards import ShardSteering
from penstock.local.steering.threads import keeps_up
from penstock.local.steering.waits import WaitSteering, waiting_operators
from penstock.pe.element import Settings
from penstock.pe.statistics import ElementStats
from penstock.pe.worker import WorkerView
from penstock.plan import make_plan

from .test_engine import no_thread_is_left, wait_for  # noqa: F401

PARTITIONS = 4
WAIT = 0.001


class Rows:
    """Numbers, until they are enough."""

    def __init__(self, keys: list[int]) -> None:
        self.enough, self.given, self._keys = False, 0, keys

    def __iter__(self) -> Iterator[dict[str, int]]:
        while not self.enough:
            yield {"v": self.given, "k": self._keys[self.given % len(self._keys)]}
            self.given += 1


def wait_a_little(row: Any) -> Any:
    time.sleep(WAIT)
    return row.v


def spin(row: Any) -> Any:
    for _ in range(200):
        pass
    return row


def count_slowly(state: int | None, row: Any) -> tuple[int, tuple[int, int]]:
    time.sleep(WAIT)
    return (state or 0) + 1, (row.v, (state or 0) + 1)


@contextmanager
def flying(
    build: Callable[[ps.Stream], ps.Stream],
    steer: Callable[[LocalEngine], Steering],
    keys: list[int] | None = None,
    **settings: Any,
) -> Iterator[tuple[LocalEngine, FlowPilot, Rows]]:
    """Run a flow whose pilot steps when the test says so; end it, and look at its decisions, behind the block."""
    rows = Rows(keys or [0])
    flow = ps.Flow("steered")
    build(flow.source("in", ps.read.items(rows, schema={"v": int, "k": int}))).sink("out")
    options = Options(batch_rows=1, settings=Settings(partitions=PARTITIONS, **settings))
    engine = LocalEngine(make_plan(flow), options)
    engine.pilot = pilot = FlowPilot(engine.statistics, [steer(engine)], period=3600)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        yield engine, pilot, rows
    finally:
        rows.enough = True
        thread.join(60)
    assert len(engine.results["out"]) == rows.given
    changes = [each for each in engine.decisions if each.what not in ("start", "hold")]
    assert changes
    assert all(each.why for each in changes)
    assert replay(engine.decisions).same


def step_until(engine: LocalEngine, pilot: FlowPilot, done: Callable[[], bool], batches: int = 60) -> None:
    """Let some batches through, step, and again, until it is done."""
    for _ in range(200):
        out = engine.statistics().batches_out
        wait_for(lambda out=out: engine.statistics().batches_out >= out + batches)
        pilot.step()
        if done():
            return
    raise AssertionError([each.why for each in engine.decisions])


def replicas_of(engine: LocalEngine, name: str) -> tuple[Any, ...]:
    return next(each.replicas for each in engine.statistics().operators if each.name == name)


def test_the_bottleneck_gets_replicas():
    def steer(engine: LocalEngine) -> Steering:
        return ReplicaSteering(engine.element, engine.ask, most=4)

    settings = {"model": "dedicated", "replicas": 1}
    with flying(lambda rows: rows.map(wait_a_little, name="slow"), steer, **settings) as (engine, pilot, _):
        step_until(engine, pilot, lambda: len(replicas_of(engine, "slow")) >= 3)
    assert engine.results["out"] == list(range(len(engine.results["out"])))
    assert {each.target for each in engine.decisions if each.what == "replicas"} == {"slow"}


def test_a_keyed_bottleneck_gets_replicas_and_keeps_its_state():
    def steer(engine: LocalEngine) -> Steering:
        return ReplicaSteering(engine.element, engine.ask, most=4)

    keys = list(range(17))
    settings = {"model": "dedicated", "replicas": {"slow": 1}}
    with flying(lambda rows: rows.key_by("k").scan(count_slowly, name="slow"), steer, keys, **settings) as flown:
        engine, pilot, _ = flown
        step_until(engine, pilot, lambda: len(replicas_of(engine, "slow")) >= 2)
    assert engine.results["out"] == [(v, v // 17 + 1) for v in range(len(engine.results["out"]))]


def test_an_operator_gets_the_replicas_that_its_latency_needs():
    def steer(engine: LocalEngine) -> Steering:
        # So short that it cannot be met: as many as shorten the wait, of four.
        return CoreSteering(engine.element, engine.ask, WAIT / 10, processors=4)

    settings = {"model": "dedicated", "replicas": {"slow": 1}}
    with flying(lambda rows: rows.map(wait_a_little, name="slow"), steer, **settings) as (engine, pilot, _):
        step_until(engine, pilot, lambda: len(replicas_of(engine, "slow")) > 1)
    assert engine.results["out"] == list(range(len(engine.results["out"])))
    assert any(each.what == "latency_target" for each in engine.decisions)


def test_replicas_wait_for_the_workers_to_settle():
    flow = ps.Flow("f")
    flow.source("in", ps.read.items([1])).map(str, name="work").sink("out")
    engine = LocalEngine(make_plan(flow), Options(settings=Settings(replicas=2)))
    steering = ReplicaSteering(engine.element, engine.ask)
    before, now = engine.statistics(), engine.statistics()
    assert steering.measure(Period(before, now, {"threads": SETTLED_PERIODS - 1})) is None
    assert steering.measure(Period(before, now, {"pool": 0})) is None
    assert steering.measure(Period(before, now, {"threads": SETTLED_PERIODS})) is not None
    engine.run()


def test_partitions_go_from_the_busiest_replica():
    def steer(engine: LocalEngine) -> Steering:
        return ShardSteering(engine.element, engine.ask, "slow")

    # Replica 0 begins with every other partition, and all rows are of these.
    keys = [next(key for key in range(100) if hash_value(key) % PARTITIONS == shard) for shard in (0, 2)]
    settings = {"model": "dedicated", "partitioned": "executor", "replicas": {"slow": 2}}
    with flying(lambda rows: rows.key_by("k").scan(count_slowly, name="slow"), steer, keys, **settings) as flown:
        engine, pilot, _ = flown
        squad: Any = engine.element.stations["slow"].squad
        assert squad.table == (0, 1, 0, 1)
        step_until(engine, pilot, lambda: squad.table[0] != squad.table[2])
        rows = [each.rows for each in replicas_of(engine, "slow")]
        wait_for(lambda: all(each.rows > old for each, old in zip(replicas_of(engine, "slow"), rows, strict=True)))
    assert engine.results["out"] == [(v, v // 2 + 1) for v in range(len(engine.results["out"]))]


@pytest.mark.parametrize(("named", "name"), [(True, "42"), (False, "hidden")])
def test_a_key_that_is_too_much_for_a_replica_is_reported(named, name):
    def steer(engine: LocalEngine) -> Steering:
        return ShardSteering(engine.element, engine.ask, "slow", named)

    def hot(engine: LocalEngine) -> list[str]:
        return [each.why for each in engine.decisions if each.what == "hot_shard"]

    settings = {"model": "dedicated", "partitioned": "executor", "replicas": {"slow": 2}}
    with flying(lambda rows: rows.key_by("k").scan(count_slowly, name="slow"), steer, [42], **settings) as flown:
        engine, pilot, _ = flown
        step_until(engine, pilot, lambda: bool(hot(engine)))
    assert f"hottest keys: {name} (100%)" in hot(engine)[0]


@pytest.mark.parametrize(("named", "name"), [(True, "'ann'"), (False, "hidden")])
def test_keys_are_named_if_the_run_asks_for_it(named, name):
    flow = ps.Flow("named")
    flow.source("in", ["ann"]).key_by(lambda row: row).scan(lambda state, row: (1, 1), name="counts").sink("out")
    run = ps.start(flow, engine="threads", partitioned="executor", threads=2, name_keys=named)
    run.await_end(30)
    sampler = run._engine.element.stations["counts"].hot
    sampler.add(0, ["ann"] * 8, 0, 8)
    assert sampler.hottest(0) == [(name, 1.0)]


def test_an_operator_leaves_the_busy_worker():
    def build(rows: ps.Stream) -> ps.Stream:
        # With two workers the first and the third operator belong to one.
        slow = rows.map(lambda row: (time.sleep(WAIT), row)[1], name="first").map(lambda row: row, name="second")
        return slow.map(wait_a_little, name="third")

    with flying(build, lambda engine: RebindingSteering(engine.element), model="bound", workers=2) as flown:
        engine, pilot, _ = flown
        model: Any = engine.element.model
        assert model.bindings()["first"] == model.bindings()["third"]
        step_until(engine, pilot, lambda: model.bindings()["first"] != model.bindings()["third"])
    assert engine.results["out"] == list(range(len(engine.results["out"])))


def test_a_busy_pool_grows():
    def build(rows: ps.Stream) -> ps.Stream:
        # Long enough that a worker is in it for more than 95 % of its time.
        return rows.map(lambda row: (time.sleep(10 * WAIT), row)[1], name="slow")

    def steer(engine: LocalEngine) -> Steering:
        return PoolSteering(engine.element, most=4, period=0.0)

    with flying(build, steer, workers=1) as (engine, pilot, _):
        step_until(engine, pilot, lambda: len(engine.statistics().workers) > 1, batches=6)
    assert [row.v for row in engine.results["out"]] == list(range(len(engine.results["out"])))


def test_the_pool_is_looked_at_every_ten_seconds():
    flow = ps.Flow("f")
    flow.source("in", ps.read.items([1])).sink("out")
    engine = LocalEngine(make_plan(flow), Options())
    steering = PoolSteering(engine.element)
    start = engine.statistics()
    stats = [replace(start, at=start.at + at, workers=(worker(busy),)) for at, busy in enumerate(range(31))]
    seen = [steering.measure(Period(*pair)) for pair in itertools.pairwise(stats[::2])]
    assert [each is not None for each in seen] == [number % 5 == 4 for number in range(15)]
    assert all(each.utilization == (1.0,) for each in seen if each is not None)
    engine.run()


def worker(busy: float) -> WorkerView:
    return WorkerView(0, "busy", "slow", 0.0, busy)


def test_a_flow_keeps_up_where_its_sources_are_waited_for_and_little_waits():
    before = ElementStats(0.0, 0, 0, 0, (), (), None, {})
    now = replace(before, at=2.0, rows_in=1000, batches_in=10, batches_out=10, waited=1.0)
    assert keeps_up(Period(before, now))
    assert not keeps_up(Period(before, replace(now, waited=0.05)))
    assert not keeps_up(Period(before, replace(now, batches_out=8)))


@pytest.mark.parametrize("slow", [False, True])
def test_only_sources_that_give_too_little_are_waited_for(slow):
    def numbers() -> Iterator[dict[str, int]]:
        for number in itertools.count():
            if slow:
                time.sleep(0.001)
            yield {"v": number}

    flow = ps.Flow("numbers")
    stream = flow.source("numbers", ps.read.items(numbers(), schema={"v": int}))
    for _ in range(6):
        stream = stream.map(spin)
    stream.sink("out", ps.write.callback(lambda rows, number: None))
    engine = LocalEngine(make_plan(flow), Options(16, settings=Settings(workers=2, capacity=2, fuse=False)))
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: engine.statistics().batches_out > 20)
        before = engine.statistics()
        wait_for(lambda: engine.statistics().batches_out > before.batches_out + 60)
        after = engine.statistics()
        assert (after.waited - before.waited > 0.5 * (after.at - before.at)) == slow
    finally:
        engine.stop_now()
        thread.join()


def test_rows_in_flight_are_found():
    """Each row waits, nobody computes: the more at once, the more come out."""

    def build(rows: ps.Stream) -> ps.Stream:
        return rows.map(wait_a_little, name="slow", waits=True)

    def steer(engine: LocalEngine) -> Steering:
        station: Any = engine.element.stations["slow"]
        station.set_in_flight(2)
        return WaitSteering(engine.element, "slow")

    with flying(build, steer, in_flight=256) as (engine, pilot, _):
        station: Any = engine.element.stations["slow"]
        step_until(engine, pilot, lambda: station.in_flight > 2, batches=60)
    assert engine.results["out"] == list(range(len(engine.results["out"])))


def test_only_rows_in_flight_that_nobody_asked_for_are_steered():
    flow = ps.Flow("f")
    source = flow.source("in", ps.read.items([1]))
    source.map(str, name="found", waits=True).sink("a")
    source.map(str, name="asked", in_flight=8).sink("b")
    source.map(str, name="plain").sink("c")
    assert waiting_operators(make_plan(flow)) == ["found"]
    run = ps.run(flow, engine="threads")
    assert "rows in flight of found" in {each.controller for each in run.decisions}


def test_batches_grow_when_the_flow_is_behind():
    """Every batch costs the same, so that larger ones are the way to keep up."""

    def build(rows: ps.Stream) -> ps.Stream:
        def slow(batch: Any) -> Any:
            time.sleep(WAIT)
            return batch

        return rows.map_batches(slow, name="slow").map(lambda row: row.v, name="v")

    def steer(engine: LocalEngine) -> Steering:
        engine.set_batch_rows(FEWEST_ROWS)
        return BatchSteering(engine.set_batch_rows, engine._batch_rows, FEWEST_ROWS, None)

    with flying(build, steer) as (engine, pilot, _):
        step_until(engine, pilot, lambda: engine._cutter.batch_rows > FEWEST_ROWS)
    assert engine.results["out"] == list(range(len(engine.results["out"])))


@pytest.mark.parametrize(
    "options",
    [
        {"latency": "5 ms"},
        {"replicas": "auto"},
        {"model": "dedicated", "replicas": "auto", "latency": "10 ms"},
        {"threads": "utilization", "partitioned": "executor"},
        {"model": "dedicated", "replicas": "auto"},
        {"model": "bound", "threads": 2, "replicas": 2},
    ],
)
def test_all_of_them_at_once_and_the_output_is_exact(options, monkeypatch):
    for module in ("pilot", "steering.pool"):
        monkeypatch.setattr(f"penstock.local.{module}.PERIOD", 0.02)
    rows = [{"v": v, "k": v % 17} for v in range(400)]
    flow = ps.Flow("together")
    source = flow.source("in", ps.read.items(rows, schema={"v": int, "k": int}))
    source.filter(lambda row: True, name="all").key_by("k").scan(count_slowly, name="slow").sink("out")
    run = ps.run(flow, engine="threads", batch_rows=2, **options)
    assert run.results["out"] == [(v, v // 17 + 1) for v in range(400)]
    assert len(run.decisions) > 3
    assert replay(run.decisions).same
