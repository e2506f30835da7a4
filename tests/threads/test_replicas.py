"""Replicas of an operator: they come and go while a flow runs, and nothing but the statistics can tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FlowError, OperatorError
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.threads.batch import CALL
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.policies import POLICIES
from penstock.threads.settings import Settings
from penstock.threads.stations import INNER

from ..how import how
from ..patience import PATIENCE
from .support import MODELS, numbers, wait_for

KEYS = 13
ROWS = 500


def keyed(rows: Any, sink: Any = None) -> ps.Flow:
    """A stateless operator, a keyed one and a keyed one with timers, so that each kind is there."""
    flow = ps.Flow("replicas")
    source = flow.source("in", ps.read.items(rows, schema={"v": int}), time="v")
    work = source.map(lambda row: {"v": row.v, "k": row.v % KEYS}, schema={"v": int, "k": int}, name="work")
    work.key_by("k").scan(count, name="count").sink("counts", sink)
    work.key_by("k").window(50).aggregate(rows=ps.agg.count(), name="windows").sink("closed")
    return flow


def count(state: int | None, row: Any) -> tuple[int, tuple[int, int, int]]:
    return (state or 0) + 1, (row.v, row.k, (state or 0) + 1)


@cache
def expected(rows: int) -> dict[str, list[Any]]:
    engine = SequentialEngine(make_plan(keyed(numbers(rows))))
    row_type = make_plan(keyed(numbers(1))).sources[0].types[0]
    assert row_type is not None
    for row in numbers(rows):
        engine.row("in", row_type.roundtrip(row))
    engine.end("in")
    return engine.results


class Script:
    """Rows, with something to do before some of them: in the thread that brings them in, between two batches."""

    def __init__(self, rows: int, steps: dict[int, Callable[[], object]]) -> None:
        self._rows, self._steps = rows, steps

    def __iter__(self):
        for number in range(self._rows):
            if number in self._steps:
                self._steps[number]()
            yield {"v": number}


def run_script(steps: dict[int, Callable[[LocalEngine], object]], rows: int = ROWS, **settings: Any) -> LocalEngine:
    """Run the flow, making changes before some of its rows."""
    engines: list[LocalEngine] = []
    script = Script(rows, {at: (lambda step=step: step(engines[0])) for at, step in steps.items()})
    options = LocalOptions(
        batch_rows=4, settings=Settings(**{"workers": 3, "partitions": 6, "in_flight": 24, **settings})
    )
    engines.append(LocalEngine(make_plan(keyed(script)), options))
    engines[0].run()
    return engines[0]


def replicas_of(engine: LocalEngine, name: str) -> list[Any]:
    return list(engine.statistics().operators[name].replicas)


@pytest.mark.parametrize("model", MODELS)
def test_they_come_and_go_and_the_output_is_the_same(model):
    changes = [("work", 3), ("count", 2), ("windows", 4), ("count", 5), ("work", 1), ("windows", 1), ("count", 1)]
    changes += [("work", 4), ("count", 6), ("windows", 3)]
    steps = {
        44 * number + 50: (lambda engine, name=name, many=many: engine.element.set_replicas(name, many))
        for number, (name, many) in enumerate(changes)
    }
    engine = run_script(steps, model=model)
    want = expected(ROWS)
    assert engine.results["counts"] == want["counts"]
    assert engine.results["closed"] == want["closed"]
    assert [len(replicas_of(engine, name)) for name in ("work", "count", "windows")] == [4, 6, 3]


@pytest.mark.parametrize("model", MODELS)
def test_each_replica_has_its_share(model):
    engine = run_script({}, model=model, replicas={"work": 3, "count": 2})
    assert engine.results["counts"] == expected(ROWS)["counts"]
    work, keyed_ = replicas_of(engine, "work"), replicas_of(engine, "count")
    assert sum(each.rows for each in work) == ROWS
    assert sum(each.rows for each in keyed_) == ROWS
    assert all(each.rows for each in keyed_)
    assert sorted(partition for each in keyed_ for partition in each.partitions) == list(range(6))
    assert [each.label for each in work] == ["work#0", "work#1", "work#2"]
    assert replicas_of(engine, "windows") == []


def test_replicas_work_at_the_same_time():
    meet = threading.Barrier(3, timeout=PATIENCE)

    def wait_for_the_others(row: Any) -> int:
        if row.v < 3:
            meet.wait()  # each of them is with another one, because those before it are still here
        return row.v

    flow = ps.Flow("together")
    rows = ps.read.items(numbers(30), schema={"v": int})
    flow.source("in", rows).parallel(3).map(wait_for_the_others, name="work").sink("out")
    run = ps.run(flow, on=ps.Threads(model="dedicated", batch_rows=1))
    assert run.results["out"] == list(range(30))
    work = run.stats.operators["work"]
    assert sum(each.rows for each in work.replicas) == 30
    assert all(each.rows for each in work.replicas)


def test_partitions_move_between_replicas_that_run_on():
    def move(engine: LocalEngine, at: int) -> None:
        for partition in range(6):
            engine.element.move_partition("count", partition, (partition + at) % 3)

    steps = {at: (lambda engine, at=at: move(engine, at)) for at in range(20, ROWS, 37)}
    engine = run_script(steps, partitioned="executor", replicas={"count": 3})
    assert engine.results["counts"] == expected(ROWS)["counts"]
    assert [list(each.partitions) for each in replicas_of(engine, "count")] == [
        [partition for partition in range(6) if (partition + max(steps)) % 3 == index] for index in range(3)
    ]


@pytest.mark.parametrize("partitioned", ["hybrid", "partitioned", "shared", "executor"])
def test_however_workers_share_a_keyed_operator(partitioned):
    engine = run_script({}, partitioned=partitioned)
    want = expected(ROWS)
    assert engine.results["counts"] == want["counts"]
    assert engine.results["closed"] == want["closed"]
    assert len(replicas_of(engine, "count")) == (3 if partitioned == "executor" else 0)


def test_who_finds_the_head_of_the_shared_queue_busy_calls_nobody():
    """Whoever is busy with it comes back; calls would fill the port until all wait for room in it."""
    settings = Settings(workers=3, partitions=6, partitioned="shared")
    station: Any = LocalEngine(make_plan(keyed(numbers(1))), LocalOptions(settings=settings)).element.stations["count"]
    busy = station._queue.work()
    for part in ("with another worker", "waits for it"):
        station._queue.put(2, part)
    next(busy)
    assert list(station.take(INNER, CALL)) == []
    assert next(busy) == (2, "waits for it")


@pytest.mark.parametrize("name", ["work", "count"])
def test_the_first_row_that_fails_is_the_one_reported(name):
    def fail(row: Any) -> Any:
        if row.v >= 70:
            raise ValueError(f"row {row.v}")
        return row

    def fail_in_scan(state: Any, row: Any) -> Any:
        fail(row)
        return None, row.v

    flow = ps.Flow("fails")
    source = flow.source("in", ps.read.items(numbers(200), schema={"v": int}))
    made = source.map(fail, name="work") if name == "work" else source.key_by("v").scan(fail_in_scan, name="count")
    made.sink("out")
    options = LocalOptions(batch_rows=3, settings=Settings(workers=3, replicas={name: 3}))
    engine = LocalEngine(make_plan(flow), options)
    with pytest.raises(OperatorError, match="row 70"):
        engine.run()
    assert len(engine.results["out"]) == 69  # whole batches before the one that failed


def test_rows_that_fail_and_are_passed_over_are_named():
    flow = ps.Flow("letters")
    source = flow.source("in", ps.read.items(numbers(100), schema={"v": int}))
    made = source.parallel(3).map(lambda row: 1 // (row.v % 10) and row.v, name="work", on_error="dead_letter")
    made.sink("out")
    made.errors.sink("errors")
    run = ps.run(flow, on=ps.Threads(workers=3, batch_rows=4))
    assert run.results["out"] == [v if v % 10 == 1 else 0 for v in range(100) if v % 10]
    assert [letter.row for letter in run.results["errors"]] == [f'{{"v": {v}}}' for v in range(0, 100, 10)]


def test_a_run_is_told_while_it_runs():
    go, flow = threading.Semaphore(0), ps.Flow("live")

    def rows():
        for number in range(400):
            if number >= 200:
                go.acquire()
            yield {"v": number}

    source = flow.source("in", ps.read.items(rows(), schema={"v": int}))
    source.key_by(lambda row: row.v % KEYS).scan(lambda s, row: ((s or 0) + 1, (s or 0) + 1), name="count").sink("out")
    run = ps.start(flow, on=ps.Threads(workers=2, batch_rows=5))
    wait_for(lambda: len(run.results["out"]) == 200)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(run.set_replicas, "count", 3)
        wait_for(lambda: run.engine._changes or asked.done())  # it is made once the source has its next row
        go.release(200)
        first = asked.result()
    run.await_end(PATIENCE)
    assert 40 <= first < 80
    assert run.results["out"] == [number // KEYS + 1 for number in range(400)]
    stats = run.stats.operators["count"]
    assert sum(each.rows for each in stats.replicas) == 400 - 5 * first
    with pytest.raises(Exception, match="ended"):
        run.set_replicas("count", 2)


def test_a_replica_that_is_not_needed_lets_its_thread_go():
    def threads(engine: LocalEngine, found: list[int]) -> None:
        found.append(len(engine.element.model.workers()))

    found: list[int] = []
    steps: dict[int, Callable[[LocalEngine], object]] = {
        100: lambda engine: threads(engine, found),
        104: lambda engine: engine.element.set_replicas("count", 5),
        200: lambda engine: threads(engine, found),
        204: lambda engine: engine.element.set_replicas("count", 1),
        480: lambda engine: (engine.element.drain(), engine.element._settle(), threads(engine, found)),
    }
    engine = run_script(steps, model="dedicated")
    assert engine.results["counts"] == expected(ROWS)["counts"]
    assert found == [found[0], found[0] + 5, found[0] + 1]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_finds_them(policy):
    flow = ps.Flow("policy")
    source = flow.source("in", ps.read.items(numbers(60), schema={"v": int}))
    source.map(lambda row: row.v, name="work").key_by(lambda v: v % 5).scan(running, 0, name="count").sink("out")
    run = ps.run(flow, on=ps.Threads(workers=2, policy=policy, replicas=2, batch_rows=3))
    assert run.results["out"] == [(v, v // 5 + 1) for v in range(60)]


def running(state: int, v: int) -> tuple[int, tuple[int, int]]:
    return state + 1, (v, state + 1)


@pytest.mark.parametrize("model", MODELS)
def test_queries_with_replicas_come_and_go(model):
    flow = ps.Flow("queries")
    runs: list[ps.Run] = []

    def changed(step: str) -> None:
        # From the thread that brings rows in, as the engine makes changes itself.
        engine = runs[0].engine
        plan = make_plan(flow)
        engine._change(plan if step == "add" else plan.only({"out"}))

    ready = threading.Event()

    def rows() -> Any:
        ready.wait(PATIENCE)
        for number in range(300):
            if number in (60, 180):
                changed("add")
            if number == 120:
                changed("cancel")
            yield {"v": number}

    source = flow.source("in", ps.read.items(rows(), schema={"v": int}))
    source.map(lambda row: row.v, name="work").sink("out")
    runs.append(ps.start(flow, on=ps.Threads(model=model, workers=2, batch_rows=1)))
    source.parallel(3).map(lambda row: row.v, name="later").sink("late")
    ready.set()
    assert runs[0].await_end(PATIENCE)
    assert runs[0].results["out"] == list(range(300))
    late = runs[0].results["late"]
    assert late == [v for v in range(300) if 60 <= v < 120 or v >= 180]


def test_a_chain_has_replicas_as_a_whole_and_one_that_is_named_has_its_own():
    def script(engines: list[LocalEngine]) -> Any:
        for number in range(90):
            if number == 45:
                engines[0].element.set_replicas("third", 2)
            yield {"v": number}

    def run(**settings: Any) -> LocalEngine:
        engines: list[LocalEngine] = []
        flow = ps.Flow("chain")
        made = flow.source("in", ps.read.items(script(engines), schema={"v": int}))
        made = made.map(lambda row: row.v + 1, name="first").filter(lambda v: v % 3, name="second")
        made.map(lambda v: v * 10, name="third").sink("out")
        engines.append(
            LocalEngine(make_plan(flow), LocalOptions(batch_rows=1, settings=Settings(workers=2, **settings)))
        )
        engines[0].run()
        return engines[0]

    want = [(v + 1) * 10 for v in range(90) if (v + 1) % 3]
    fused = run()
    assert fused.results["out"] == want
    assert list(fused.element.stations) == ["in", "first", "out"]
    assert sum(each.rows for each in replicas_of(fused, "first")) == 45
    named = run(replicas={"second": 2})
    assert named.results["out"] == want
    assert list(named.element.stations) == ["in", "first", "second", "third", "out"]
    assert sum(each.rows for each in replicas_of(named, "second")) == 90


def refused(flow: ps.Flow, message: str, **options: Any) -> None:
    with pytest.raises(FlowError, match=message):
        ps.run(flow, **how("threads", **options))


def test_what_cannot_have_replicas_says_why():
    def flow(parallel: int = 2) -> ps.Stream:
        return ps.Flow("f").source("in", ps.read.items(numbers(3), schema={"v": int})).parallel(parallel)

    refused(flow().scan(count, name="all").sink("out"), "'all'.*key_by")
    refused(flow().map(str, name="slow", waits=True).sink("out"), "'slow'.*in_flight=")
    refused(flow().sink("out"), "'out'.*map")
    with pytest.raises(FlowError, match=r"'in'.*at least 1"):
        flow(0)
    plain = keyed(numbers(3))
    refused(plain, "'nobody'.*work", replicas={"nobody": 2})
    refused(plain, "'counts'.*map", replicas={"counts": 2})
    refused(plain, "one a partition", replicas={"count": 100})
    refused(plain, "replicas=0; it must be 1 or more", replicas=0)
    refused(plain, "auto", replicas="some")
    refused(plain, "auto", replicas=2.5)
    refused(plain, "dedicated", replicas="auto", model="bound")
    refused(plain, "dynamic", threads="utilization", model="manual")
    refused(plain, "leave out replicas=", latency="1 s", replicas=2, model="dedicated")
    refused(plain, "hybrid", partitioned="other")
    with pytest.raises(TypeError, match="Sequential has no option 'replicas'"):
        ps.Sequential(replicas=2)  # type: ignore[call-arg]


def test_hints_change_nothing_elsewhere():
    flow = ps.Flow("f")
    source = flow.source("in", ps.read.items(numbers(30), schema={"v": int}))
    (source >> ps.threaded() >> ps.parallel(2) >> ps.map(lambda row: row.v)).sink("out")
    assert ps.run(flow, on=ps.Sequential()).results == ps.run(flow, on=ps.Threads()).results


@pytest.mark.parametrize("model", ["manual", "dynamic", "dedicated"])
def test_a_threaded_port_has_a_thread_of_its_own(model):
    seen: dict[str, set[str]] = {"before": set(), "own": set(), "after": set()}

    def note(where: str) -> Callable[[Any], Any]:
        def work(row: Any) -> Any:
            seen[where].add(threading.current_thread().name)
            return row

        return work

    flow = ps.Flow("threaded")
    source = flow.source("in", ps.read.items(numbers(50), schema={"v": int}))
    before = source.map(note("before"), name="before")
    before.threaded().map(note("own"), name="own").map(note("after"), name="after").sink("out")
    options = LocalOptions(batch_rows=1, settings=Settings(model=model, workers=1, capacity=64))
    engine = LocalEngine(make_plan(flow), options)
    engine.run()
    assert [row.v for row in engine.results["out"]] == list(range(50))
    assert len(seen["own"]) == 1
    assert not seen["own"] & seen["before"]
    own = [each for each in engine.statistics().workers if each.own]
    assert len(own) == (4 if model == "dedicated" else 1)


def test_threaded_streams_that_meet():
    flow = ps.Flow("meet")
    source = flow.source("in", ps.read.items(numbers(300), schema={"v": int}))
    left, right = source.filter(lambda row: row.v % 2 == 0), source.filter(lambda row: row.v % 2)
    left.threaded().union(right.threaded()).map(lambda row: row.v).sink("out")
    for model in ("manual", "dynamic"):
        assert ps.run(flow, on=ps.Threads(model=model, workers=2, batch_rows=3)).results["out"] == list(range(300))


def test_the_bound_model_places_operators_itself():
    flow = ps.Flow("bound")
    flow.source("in", ps.read.items(numbers(3))).threaded().map(str, name="work").sink("out")
    refused(flow, "'work'.*dynamic", model="bound")


def test_blocked_time_has_a_cause():
    gate, inside = threading.Event(), threading.Event()

    def slow(row: Any) -> Any:
        inside.set()
        gate.wait(PATIENCE)
        return row.v

    def rows() -> Any:
        yield from numbers(1)
        inside.wait(PATIENCE)  # its own thread is in it, before another one finds its queue full and helps out
        yield from numbers(90)[1:]

    flow = ps.Flow("slow")
    source = flow.source("in", ps.read.items(rows(), schema={"v": int}))
    source.map(lambda row: row, name="fast").scan(lambda state, row: (None, slow(row)), name="slow").sink("out")
    run = ps.start(flow, on=ps.Threads(model="dedicated", batch_rows=1))

    def stats() -> dict[str, Any]:
        return {each.name: each for each in run.stats.operators.values()}

    wait_for(lambda: stats()["fast"].blocked["full"] > 0.05 and stats()["slow"].full[0] > 0.05)
    assert stats()["slow"].blocked["full"] == 0  # nothing has left it, so nothing below could hold it back
    gate.set()
    run.await_end(PATIENCE)
    assert run.results["out"] == list(range(90))
    assert stats()["slow"].blocked["wait"] > 0.05


def test_sources_are_blocked_by_a_flow_that_is_full():
    gate = threading.Event()
    flow = ps.Flow("full")
    source = flow.source("in", ps.read.items(numbers(40), schema={"v": int}))
    source.map(lambda row: gate.wait(PATIENCE) and row.v, name="slow").sink("out")
    engine = LocalEngine(make_plan(flow), LocalOptions(1, settings=Settings(in_flight=8)))
    thread = threading.Thread(target=engine.run)
    thread.start()
    wait_for(lambda: engine.statistics().batches_in == 8)
    gate.set()
    thread.join(PATIENCE)
    assert engine.results["out"] == list(range(40))
    assert engine.statistics().operators["in"].blocked["full"] > 0


def test_a_replica_is_rebound_by_its_label():
    seen: list[dict[str, int]] = []

    def rebind(engine: LocalEngine) -> None:
        model: Any = engine.element.model
        seen.append(model.bindings())
        model.rebind("work#1", 1 - model.bindings()["work#1"])

    engine = run_script(dict.fromkeys(range(40, ROWS, 60), rebind), model="bound", workers=2, replicas={"work": 2})
    assert engine.results["counts"] == expected(ROWS)["counts"]
    assert {each["work#1"] for each in seen} == {0, 1}
