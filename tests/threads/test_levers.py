"""Controllers on a live flow: what they see, what they change, and that nothing else changes."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.clock import as_measured
from penstock.elastic.decisions import replay
from penstock.elastic.levers import SETTLED_PERIODS, keeps_up
from penstock.elastic.pilot import Lever, Period
from penstock.plan.plan import make_plan
from penstock.rows.keys import hash_value
from penstock.statistics import FlowStats, OperatorStats, WorkerStats
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.levers import (
    FEWEST_ROWS,
    BindingLever,
    CoresLever,
    PartitionsLever,
    ReplicasLever,
    batch_lever,
    in_flight_lever,
    pool_lever,
    waiting_operators,
    workers_lever,
)
from penstock.threads.pilot import PilotThread
from penstock.threads.settings import Settings

from ..how import how
from ..patience import PATIENCE
from .support import wait_for

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


def value(row: Any) -> Any:
    return row.v


def counted(state: int | None, row: Any) -> tuple[int, tuple[int, int]]:
    return (state or 0) + 1, (row.v, (state or 0) + 1)


def count_slowly(state: int | None, row: Any) -> tuple[int, tuple[int, int]]:
    time.sleep(WAIT)
    return (state or 0) + 1, (row.v, (state or 0) + 1)


class MadeUp:
    """What is seen of a live flow, with figures that the test makes up: what it really takes is up to the machine.

    It is a second later at each look. All of that second went into each replica of the operators that are `busy`, for
    100 batches, and their queues were nearly always full; the others took no time. More batches wait than go out.
    """

    def __init__(self, engine: LocalEngine, busy: Collection[str]) -> None:
        self._engine, self._busy, self._seconds = engine, busy, 0
        self._spent = dict.fromkeys(busy, 0)

    def __call__(self) -> FlowStats:
        self._seconds += 1
        stats, batches = self._engine.statistics(), 100 * self._seconds
        return replace(
            stats,
            at=float(self._seconds),
            rows_in=FEWEST_ROWS * (batches + 50),
            batches_in=batches + 50,
            batches_out=batches,
            operators={name: self._operator(each) for name, each in stats.operators.items()},
            workers=tuple(replace(each, busy_seconds=float(self._seconds)) for each in stats.workers),
        )

    def _operator(self, real: OperatorStats) -> OperatorStats:
        done, full = 100 * self._seconds, 0.9 * self._seconds
        if real.name not in self._busy:
            return replace(real, batches=done, rows_in=done, wall=0.0, cpu=0.0, full=(0.0,) * len(real.full))
        self._spent[real.name] += max(1, len(real.replicas))
        spent = self._spent[real.name]
        return replace(
            real,
            batches=100 * spent,
            rows_in=100 * spent,
            wall=float(spent),
            cpu=spent / 10,
            full=(full,) * len(real.full),
            replicas=tuple(
                replace(each, batches=done, seconds=float(self._seconds), full=full) for each in real.replicas
            ),
        )


@contextmanager
def flying(
    build: Callable[[ps.Stream], ps.Stream],
    steer: Callable[[LocalEngine], Lever],
    keys: list[int] | None = None,
    busy: Collection[str] = ("slow",),
    **settings: Any,
) -> Iterator[tuple[LocalEngine, PilotThread, Rows]]:
    """Run a flow whose pilot steps when the test says so; end it, and look at its decisions, behind the block.

    What is decided is decided on figures that are made up; what is done is done to the flow that runs.
    """
    rows = Rows(keys or [0])
    flow = ps.Flow("steered")
    build(flow.source("in", ps.read.items(rows, schema={"v": int, "k": int}))).sink("out")
    options = LocalOptions(batch_rows=1, settings=Settings(partitions=PARTITIONS, **settings))
    engine = LocalEngine(make_plan(flow), options)
    engine.pilot = pilot = PilotThread(MadeUp(engine, busy), [steer(engine)], period=3600)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        yield engine, pilot, rows
    finally:
        rows.enough = True
        thread.join(PATIENCE)
    assert len(engine.results["out"]) == rows.given
    changes = [each for each in engine.decisions if each.what not in ("start", "hold")]
    assert changes
    assert all(each.why for each in changes)
    assert replay(engine.decisions).same


def step_until(engine: LocalEngine, pilot: PilotThread, done: Callable[[], bool], batches: int = 12) -> None:
    """Let some batches through, step, and again, until it is done."""
    for _ in range(200):
        out = engine.statistics().batches_out
        wait_for(lambda out=out: engine.statistics().batches_out >= out + batches)
        pilot.step()
        if done():
            return
    raise AssertionError([each.why for each in engine.decisions])


def replicas_of(engine: LocalEngine, name: str) -> tuple[Any, ...]:
    return engine.statistics().operators[name].replicas


def test_the_bottleneck_gets_replicas():
    def steer(engine: LocalEngine) -> Lever:
        return ReplicasLever(engine.element, engine.between_batches, most=4)

    settings = {"model": "dedicated", "replicas": 1}
    with flying(lambda rows: rows.map(value, name="slow"), steer, **settings) as (engine, pilot, _):
        step_until(engine, pilot, lambda: len(replicas_of(engine, "slow")) >= 3)
    assert engine.results["out"] == list(range(len(engine.results["out"])))
    assert {each.target for each in engine.decisions if each.what == "replicas"} == {"slow"}


def test_a_keyed_bottleneck_gets_replicas_and_keeps_its_state():
    def steer(engine: LocalEngine) -> Lever:
        return ReplicasLever(engine.element, engine.between_batches, most=4)

    keys = list(range(17))
    settings = {"model": "dedicated", "replicas": {"slow": 1}}
    with flying(lambda rows: rows.key_by("k").scan(counted, name="slow"), steer, keys, **settings) as flown:
        engine, pilot, _ = flown
        step_until(engine, pilot, lambda: len(replicas_of(engine, "slow")) >= 2)
    assert engine.results["out"] == [(v, v // 17 + 1) for v in range(len(engine.results["out"]))]


def test_an_operator_gets_the_replicas_that_its_latency_needs():
    def steer(engine: LocalEngine) -> Lever:
        # So short that it cannot be met: as many as shorten the wait, of four.
        return CoresLever(engine.element, engine.between_batches, WAIT / 10, processors=4)

    settings = {"model": "dedicated", "replicas": {"slow": 1}}
    with flying(lambda rows: rows.map(value, name="slow"), steer, **settings) as (engine, pilot, _):
        step_until(engine, pilot, lambda: len(replicas_of(engine, "slow")) > 1)
    assert engine.results["out"] == list(range(len(engine.results["out"])))
    assert any(each.what == "latency_target" for each in engine.decisions)


def test_replicas_follow_the_workers_until_these_have_settled():
    flow = ps.Flow("f")
    flow.source("in", ps.read.items([1])).map(str, name="work").sink("out")
    engine = LocalEngine(make_plan(flow), LocalOptions(settings=Settings(replicas=2, workers=3)))
    lever = ReplicasLever(engine.element, engine.between_batches)
    before, now = engine.statistics(), engine.statistics()
    assert lever.read(Period(before, now, {"threads": SETTLED_PERIODS - 1})).workers == 3
    assert lever.read(Period(before, now, {"threads": 9}, frozenset({"threads"}))).workers == 3
    assert lever.read(Period(before, now, {"pool": 0})).workers == 3
    assert lever.read(Period(before, now, {"threads": SETTLED_PERIODS})).workers is None
    engine.run()


@pytest.mark.parametrize(
    "find",
    [lambda element: workers_lever(element, most=6, cpu_usage=float), lambda e: pool_lever(e, most=6, period=0)],
)
def test_workers_and_replicas_grow_together(find):
    """One worker gains nothing by a second replica, and one replica nothing by a second worker."""

    def steer(engine: LocalEngine) -> Lever:
        return find(engine.element)

    def build(rows: ps.Stream) -> ps.Stream:
        return rows.map(lambda row: (time.sleep(10 * WAIT), row.v)[1], name="slow")

    with flying(build, steer, workers=1, replicas=1) as (engine, pilot, _):
        pilot.add([ReplicasLever(engine.element, engine.between_batches)])
        step_until(
            engine,
            pilot,
            lambda: engine.element.model.active > 2 and len(replicas_of(engine, "slow")) > 2,
            batches=20,
        )
    assert engine.results["out"] == list(range(len(engine.results["out"])))
    first = next(each for each in engine.decisions if each.what == "replicas")
    assert "workers are tried" in first.why


def seconds_in(monkeypatch: pytest.MonkeyPatch, engine: LocalEngine, *partitions: int) -> None:
    """Let each of some partitions be seen to take a second more at each look."""
    looks = itertools.count(1)

    def made_up() -> tuple[tuple[int, float], ...]:
        now = float(next(looks))
        return tuple((1, now if partition in partitions else 0.0) for partition in range(PARTITIONS))

    monkeypatch.setattr(engine.element.stations["slow"], "partitions", made_up)


def test_partitions_go_from_the_busiest_replica(monkeypatch):
    def steer(engine: LocalEngine) -> Lever:
        return PartitionsLever(engine.element, engine.between_batches, "slow")

    # Replica 0 begins with every other partition, and all rows are of these.
    keys = [next(key for key in range(100) if hash_value(key) % PARTITIONS == shard) for shard in (0, 2)]
    settings = {"model": "dedicated", "partitioned": "executor", "replicas": {"slow": 2}}
    with flying(lambda rows: rows.key_by("k").scan(counted, name="slow"), steer, keys, **settings) as flown:
        engine, pilot, _ = flown
        squad: Any = engine.element.stations["slow"].squad
        assert squad.table == (0, 1, 0, 1)
        seconds_in(monkeypatch, engine, 0, 2)
        step_until(engine, pilot, lambda: squad.table[0] != squad.table[2])
        rows = [each.rows for each in replicas_of(engine, "slow")]
        wait_for(lambda: all(each.rows > old for each, old in zip(replicas_of(engine, "slow"), rows, strict=True)))
    assert engine.results["out"] == [(v, v // 2 + 1) for v in range(len(engine.results["out"]))]


@pytest.mark.parametrize(("named", "name"), [(True, "42"), (False, "hidden")])
def test_a_key_that_is_too_much_for_a_replica_is_reported(named, name, monkeypatch):
    def steer(engine: LocalEngine) -> Lever:
        return PartitionsLever(engine.element, engine.between_batches, "slow", named)

    def hot(engine: LocalEngine) -> list[str]:
        return [each.why for each in engine.decisions if each.what == "hot_shard"]

    settings = {"model": "dedicated", "partitioned": "executor", "replicas": {"slow": 2}}
    with flying(lambda rows: rows.key_by("k").scan(counted, name="slow"), steer, [42], **settings) as flown:
        engine, pilot, _ = flown
        seconds_in(monkeypatch, engine, hash_value(42) % PARTITIONS)
        step_until(engine, pilot, lambda: bool(hot(engine)), batches=60)
    assert f"hottest keys: {name} (100%)" in hot(engine)[0]


@pytest.mark.parametrize(("named", "name"), [(True, "'ann'"), (False, "hidden")])
def test_keys_are_named_if_the_run_asks_for_it(named, name):
    flow = ps.Flow("named")
    flow.source("in", ["ann"]).key_by(lambda row: row).scan(lambda state, row: (1, 1), name="counts").sink("out")
    run = ps.start(flow, on=ps.Threads(partitioned="executor", workers=2), name_keys=named)
    run.await_end(PATIENCE)
    sampler = run.engine.element.stations["counts"].hot
    sampler.add(0, ["ann"] * 8, 0, 8)
    assert sampler.hottest(0) == [(name, 1.0)]


def test_an_operator_leaves_the_busy_worker():
    def build(rows: ps.Stream) -> ps.Stream:
        # With two workers the first and the third operator belong to one.
        return rows.map(lambda row: row, name="first").map(lambda row: row, name="second").map(value, name="third")

    def steer(engine: LocalEngine) -> Lever:
        return BindingLever(engine.element)

    with flying(build, steer, busy=("first", "third"), model="bound", workers=2) as flown:
        engine, pilot, _ = flown
        model: Any = engine.element.model
        assert model.bindings()["first"] == model.bindings()["third"]
        step_until(engine, pilot, lambda: model.bindings()["first"] != model.bindings()["third"])
    assert engine.results["out"] == list(range(len(engine.results["out"])))


def test_bindings_may_be_asked_for_while_queries_come_and_go():
    flow = ps.Flow("f")
    stream = flow.source("in", ps.read.items([1]))
    for number in range(50):
        stream.map(str, name=f"op {number}").sink(f"out {number}")
    engine = LocalEngine(make_plan(flow), LocalOptions(settings=Settings(model="bound", workers=3)))
    model: Any = engine.element.model
    problems, asked, done, usual = [], [], threading.Event(), sys.getswitchinterval()

    def ask() -> None:
        try:
            while not done.is_set():
                model.rebind(next(reversed(model.bindings())), 1)
                asked.append(None)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=ask)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for number in itertools.count():
            if len(asked) > 3000 or problems:
                break
            come = SimpleNamespace(label=f"query {number % 7}", first_task=lambda first: first)
            model.add([come], 0)
            model.retire(come)
    finally:
        sys.setswitchinterval(usual)
        done.set()
        thread.join()
    assert problems == []
    assert "query 1" not in model.bindings()
    engine.run()


def test_a_busy_pool_grows():
    def steer(engine: LocalEngine) -> Lever:
        return pool_lever(engine.element, most=4, period=0.0)

    with flying(lambda rows: rows.map(value, name="slow"), steer, workers=1) as (engine, pilot, _):
        step_until(engine, pilot, lambda: len(engine.statistics().workers) > 1)
    assert engine.results["out"] == list(range(len(engine.results["out"])))


def test_the_pool_is_looked_at_every_ten_seconds():
    flow = ps.Flow("f")
    flow.source("in", ps.read.items([1])).sink("out")
    engine = LocalEngine(make_plan(flow), LocalOptions())
    lever = pool_lever(engine.element)
    start = engine.statistics()
    stats = [replace(start, at=start.at + at, workers=(worker(busy),)) for at, busy in enumerate(range(31))]
    seen = [lever.read(Period(*pair)) for pair in itertools.pairwise(stats[::2])]
    assert [each is not None for each in seen] == [number % 5 == 4 for number in range(15)]
    assert all(each.utilization == (1.0,) for each in seen if each is not None)
    engine.run()


def worker(busy: float, number: int = 0) -> WorkerStats:
    return WorkerStats(number, "busy", "slow", 0.0, busy)


class Periods:
    """Made-up periods of ten seconds, one after the other, as the pool sees them."""

    def __init__(self) -> None:
        flow = ps.Flow("f")
        flow.source("in", ps.read.items([1])).map(str, name="slow").sink("out")
        engine = LocalEngine(make_plan(flow), LocalOptions())
        self.lever, start = pool_lever(engine.element), engine.statistics()
        engine.run()
        # From zero, so that ten seconds later is ten seconds later: sums with the clock's own number are rounded.
        self._last = replace(start, at=0.0, operators={"slow": start.operators["slow"]}, workers=())

    def see(self, workers: int, rows: int, *, cpu: float, computed: float | None = None) -> float:
        """Return how busy workers are that were in the operator all the time, and computed for so many seconds."""
        before, slow = self._last, self._last.operators["slow"]
        busy = {each.number: each.busy_seconds for each in before.workers}
        self._last = now = replace(
            before,
            at=before.at + 10,
            operators={
                "slow": replace(slow, rows_in=slow.rows_in + rows, wall=slow.wall + 10 * workers, cpu=slow.cpu + cpu)
            },
            workers=tuple(worker(busy.get(number, 0.0) + 10, number) for number in range(workers)),
            computed=before.computed + (cpu if computed is None else computed),
        )
        seen = self.lever.read(Period(before, now))
        assert seen is not None
        return round(seen.mean, 2)


def test_waiting_for_the_lock_is_no_work():
    periods = Periods()
    assert periods.see(1, 1000, cpu=10.0) == 1.0
    # Four in turns do what one does: three of them wait.
    assert periods.see(4, 1000, cpu=10.0) == 0.25
    assert periods.see(2, 1000, cpu=10.0) == 0.5


def test_waiting_for_answers_is_work():
    periods = Periods()
    assert [periods.see(n, 100 * n, cpu=0.1 * n) for n in (1, 2, 8)] == [1.0, 1.0, 1.0]
    # Answers take longer now: still nobody else computes.
    assert periods.see(8, 200, cpu=0.2) >= 0.95


def test_both_kinds_of_waiting_are_told_apart():
    periods = Periods()
    # Half of the time of a row is computing, half waiting for an answer.
    assert periods.see(1, 1000, cpu=5.0) == 1.0
    assert periods.see(2, 1600, cpu=8.0) == 0.8
    # Four get no further than the lock allows.
    assert periods.see(4, 2000, cpu=10.0) == 0.5


def test_processors_that_others_use_are_waited_for():
    periods = Periods()
    assert periods.see(1, 1000, cpu=10.0) == 1.0
    # Released locks, two processors: three workers compute for two.
    assert periods.see(3, 2000, cpu=20.0) == 0.67


def test_a_flow_keeps_up_where_its_sources_are_waited_for_and_little_waits():
    before = FlowStats()
    now = replace(before, at=2.0, rows_in=1000, batches_in=10, batches_out=10, waited=1.0)
    assert keeps_up(Period(before, now))
    assert not keeps_up(Period(before, replace(now, waited=0.05)))
    assert not keeps_up(Period(before, replace(now, batches_out=8)))


def waited_for(rows: Iterator[dict[str, int]]) -> float:
    """Run a flow of some rows; return how long its sources were waited for."""
    flow = ps.Flow("numbers")
    flow.source("numbers", ps.read.items(rows, schema={"v": int})).map(value).sink("out")
    engine = LocalEngine(make_plan(flow), LocalOptions(16, settings=Settings(workers=2)))
    engine.run()
    return engine.statistics().waited


def test_a_source_is_waited_for_as_long_as_it_sleeps():
    def numbers() -> Iterator[dict[str, int]]:
        for number in range(20):
            time.sleep(WAIT)
            yield {"v": number}

    assert waited_for(numbers()) >= as_measured(20 * WAIT)


def test_a_source_that_computes_is_not_waited_for(monkeypatch):
    """Time passes only in the source, and it computes all the while."""
    now = [0.0]

    def numbers() -> Iterator[dict[str, int]]:
        for number in range(100):
            now[0] += 1.0
            yield {"v": number}

    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(f"penstock.threads.engine.{clock}", lambda: now[0])
    assert waited_for(numbers()) == 0
    assert now == [100.0]


def test_rows_in_flight_are_found(monkeypatch):
    """Of the 10 ms that each row is seen to take, it computes for one."""

    def build(rows: ps.Stream) -> ps.Stream:
        return rows.map(value, name="slow", waits=True)

    def steer(engine: LocalEngine) -> Lever:
        station: Any = engine.element.stations["slow"]
        station.set_in_flight(2)
        looks = itertools.count(1)
        monkeypatch.setattr(station, "in_flight_seconds", lambda: float(next(looks)))
        return in_flight_lever(engine.element, "slow")

    with flying(build, steer, in_flight=256) as (engine, pilot, _):
        station: Any = engine.element.stations["slow"]
        step_until(engine, pilot, lambda: station.in_flight > 2)
    assert engine.results["out"] == list(range(len(engine.results["out"])))


def test_only_rows_in_flight_that_nobody_asked_for_are_steered():
    flow = ps.Flow("f")
    source = flow.source("in", ps.read.items([1]))
    source.map(str, name="found", waits=True).sink("a")
    source.map(str, name="asked", in_flight=8).sink("b")
    source.map(str, name="plain").sink("c")
    assert waiting_operators(make_plan(flow)) == ["found"]
    run = ps.run(flow, on=ps.Threads())
    assert "rows in flight of found" in {each.controller for each in run.decisions}


def test_batches_grow_when_the_flow_is_behind():
    """More wait than go out, and workers are busy all the time."""

    def build(rows: ps.Stream) -> ps.Stream:
        return rows.map_batches(lambda batch: batch, name="slow").map(value, name="v")

    def steer(engine: LocalEngine) -> Lever:
        engine.set_batch_rows(FEWEST_ROWS)
        return batch_lever(engine.set_batch_rows, engine._batch_rows, None)

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
    for constant in ("pilot.PERIOD", "levers.POOL_SECONDS"):
        monkeypatch.setattr(f"penstock.threads.{constant}", 0.02)
    runs: list[ps.Run] = []

    def rows() -> Iterator[dict[str, int]]:
        for v in range(400):
            if v == 300:  # the rest comes when all of them have had some turns
                wait_for(lambda: runs and runs[0].engine.pilot.periods >= 8)
            yield {"v": v, "k": v % 17}

    flow = ps.Flow("together")
    source = flow.source("in", ps.read.items(rows(), schema={"v": int, "k": int}))
    source.filter(lambda row: True, name="all").key_by("k").scan(count_slowly, name="slow").sink("out")
    runs.append(ps.start(flow, **how("threads", batch_rows=2, **options)))
    runs[0].await_end(PATIENCE)
    assert runs[0].results["out"] == [(v, v // 17 + 1) for v in range(400)]
    assert runs[0].decisions
    assert replay(runs[0].decisions).same
