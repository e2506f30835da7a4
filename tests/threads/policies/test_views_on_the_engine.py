"""What policies are told by the threads engine, looked at step by step, with workers held where the test wants them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.policies import POLICIES, LeastRecent, Moment, OperatorView, Preempting, by_name
from penstock.threads.settings import Settings
from tests.threads.policies.driving import SOON, Clock, Stage, on_stage


class Gate:
    """Hold whoever comes to a row until the test lets go."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Semaphore(0), threading.Event()

    def __call__(self, row: Any) -> Any:
        if not self._open.is_set():
            self.reached.release()
            assert self._open.wait(SOON)
        return row

    def open(self) -> None:
        self._open.set()


def numbers(flow: ps.Flow, count: int) -> Any:
    return flow.source("in", ps.read.items(range(count), schema=int))


def test_workers_inside_are_seen_and_a_full_operator_is_not_offered() -> None:
    gates, flow = (Gate(), Gate()), ps.Flow("inside")
    source = numbers(flow, 40)
    source.map(gates[0], name="any").sink("a")
    source.scan(lambda count, n: (count + 1, gates[1](n)), 0, schema=int, name="one").sink("b")
    stage = Stage(flow, range(40), [10], Clock(), workers=1, capacity=16)
    for _ in range(3):
        stage.submit()
    with on_stage(stage):
        stage.run("in", "in", "in")
        assert {name: view.workers for name, view in stage.look().items()} == {"any": 0, "one": 0}
        for number, name in enumerate(("any", "one")):
            stage.hold(name, gates[number].reached)
            stage.element.set_workers(number + 2)
        seen = stage.look()
        # The operator without memory admits any number, and still has two batches; the other one admits no more.
        assert list(seen) == ["any"]
        assert (seen["any"].workers, seen["any"].permits, seen["any"].queued) == (1, None, (20,))
        for gate in gates:
            gate.open()


def test_parts_that_wait_inside_are_counted_and_permits_are_partitions() -> None:
    gates, flow = (Gate(), Gate()), ps.Flow("parts")
    source = numbers(flow, 40)
    source.map(gates[0], name="aside").sink("a")
    keyed = source.key_by(lambda n: n % 5)
    keyed.scan(lambda count, n: (count + 1, gates[1](n)), 0, schema=int, name="keyed").sink("b")
    stage = Stage(flow, range(40), [40], Clock(), workers=1, capacity=16, partitions=64)
    stage.submit()
    with on_stage(stage):
        stage.run("in")
        stage.hold("aside", gates[0].reached)
        stage.element.set_workers(2)  # one that is alone does not cut
        assert stage.look()["keyed"].queued == (40,)
        stage.run("keyed")
        cut = stage.look()["keyed"]
        assert (cut.queued, cut.permits, cut.workers, cut.front_number) == ((40,), 64, 0, 0)
        stage.hold("keyed", gates[1].reached)
        stage.element.set_workers(3)
        held = stage.look()["keyed"]
        assert (held.queued, held.workers) == ((32,), 1)  # five keys, in as many partitions, of eight rows each
        for gate in gates:
            gate.open()


def test_the_front_of_a_queue_is_a_batch_with_its_number_and_its_age() -> None:
    clock, flow = Clock(), ps.Flow("front")
    numbers(flow, 40).map(clock.work(0.0), name="a").sink("out")
    stage = Stage(flow, range(40), [10], clock, workers=1, capacity=16)
    for second in range(3):
        clock.now = float(second)
        stage.submit()
    with on_stage(stage):
        clock.now = 5.0
        stage.run("in", "in")
        seen = stage.look()
        assert [(seen[n].front_number, seen[n].front_time) for n in ("in", "a")] == [(2, 2.0), (0, 0.0)]
        assert seen["in"].waiting_time == pytest.approx(4.5)  # two batches: five seconds and four
        clock.now = 8.0
        stage.run("a")
        seen = stage.look()
        assert (seen["a"].front_number, seen["a"].front_time) == (1, 1.0)
        assert seen["a"].waiting_time == pytest.approx(3.0)
        assert seen["a"].last_run == 5.0  # when it was decided
        assert seen["a"].inflow == 1.0


def test_what_waits_below_is_in_rows_that_came_out() -> None:
    clock, flow = Clock(), ps.Flow("units")
    many = numbers(flow, 400).flat_map(lambda n: [clock.work(0.001)(n)] * 50, schema=int, name="many")
    many.filter(lambda n: clock.work(0.001)(n) % 100 == 0, name="few").sink("out")
    stage = Stage(flow, range(400), [100], clock, workers=1, capacity=16)
    for _ in range(3):
        stage.submit()
    with on_stage(stage):
        stage.run("in", "in", "in", "many", "many", "few")
        seen = stage.look()
        assert seen["many"].downstream_queued == (5000,)
        assert seen["many"].downstream_room == (15 * 5000,)
        assert (seen["few"].queued, seen["out"].queued) == ((5000,), (50,))
        assert seen["few"].downstream_room == (15 * 50,)
        assert seen["many"].cost == pytest.approx(0.001)
        assert seen["many"].write_rates == pytest.approx((50_000.0,))
        assert seen["few"].read_rates == pytest.approx((1000.0,))
        assert seen["few"].write_rates == pytest.approx((10.0,))


def test_costs_and_times_are_those_of_a_window() -> None:
    clock, flow, cost = Clock(), ps.Flow("window"), [0.001]

    def work(n: int) -> int:
        clock.now += cost[0]
        return n

    numbers(flow, 100).map(work, name="a").sink("out")
    stage = Stage(flow, range(100), [10], clock, workers=1, capacity=32)
    for _ in range(8):
        stage.submit()
    with on_stage(stage):
        stage.run(*["in"] * 8, "a")
        assert stage.look()["a"].window_time == pytest.approx(0.01)
        clock.now, cost[0] = 1.0, 0.002
        stage.run("a")
        assert stage.look()["a"].window_time == pytest.approx(0.02)
        assert stage.look()["a"].cost == pytest.approx(0.0015)  # this window and the one before
        clock.now, cost[0] = 2.0, 0.004
        stage.run("a")
        assert stage.look()["a"].cost == pytest.approx(0.003)
        clock.now = 10.0
        stage.run("out")
        seen = stage.look()["a"]
        assert seen.window_time == 0.0
        assert seen.cost == pytest.approx((0.01 + 0.02 + 0.04) / 30)  # nothing of late, so all that is known


def test_views_are_kept_not_made_anew() -> None:
    flow = ps.Flow("kept")
    numbers(flow, 40).map(lambda n: n, name="a").map(lambda n: n, name="b").sink("out")
    stage = Stage(flow, range(40), [10], Clock(), workers=1, capacity=16)
    for _ in range(3):
        stage.submit()
    with on_stage(stage):
        objects: dict[str, set[int]] = {}
        for name in ("in", "in", "a", "a", "b"):
            stage.run(name)
            assert stage.now is not None
            for view in stage.now[0]:
                objects.setdefault(view.name, set()).add(id(view))
        assert all(len(ids) == 1 for ids in objects.values())


def test_a_query_that_is_added_is_at_the_virtual_time_of_the_flow() -> None:
    flow = ps.Flow("added")
    source = numbers(flow, 90)
    source.map(lambda n: n, name="old").sink("first")
    stage = Stage(flow, range(90), [10], Clock(), workers=1, capacity=16)
    for _ in range(4):
        stage.submit()
    with on_stage(stage):
        stage.run("in", "in", "in")
        stage.run("old", "old")
        source.map(lambda n: n, name="new").sink("second")
        assert stage.element.change(make_plan(flow)) == 4
        stage.submit()
        stage.run("in", "in")
        seen = stage.look()
        assert {name: seen[name].front_number for name in ("old", "new")} == {"old": 2, "new": 4}


class Twice(ps.Coroutine):
    """Emit each row twice."""

    async def process(self, ctx: ps.CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 1}):
            row = ctx.pop()
            await ctx.emit(row)
            await ctx.emit(row)


def test_a_batch_that_was_put_aside_waits() -> None:
    flow = ps.Flow("aside")
    ps.operate(Twice(), numbers(flow, 40), name="twice").sink("out")
    stage = Stage(flow, range(40), [10], Clock(), workers=1, capacity=16)
    for _ in range(3):
        stage.submit()
    with on_stage(stage):
        stage.run("in", "in")
        assert (stage.look()["twice"].queued, stage.look()["twice"].front_number) == ((20,), 0)
        stage.run("twice")  # the time slice is over at once: it is put aside after a row, in the middle of batch 0
        assert "out" not in stage.look()
        seen = stage.look()["twice"]
        assert (seen.queued, seen.front_number, seen.workers) == ((20,), 0, 0)
        while "out" not in stage.look():
            stage.run("twice")
        seen = stage.look()["twice"]
        assert (seen.queued, seen.front_number) == ((10,), 1)


class Steps:
    """A policy that leaves an operator after so many batches, whatever the time."""

    def __init__(self, batches: int) -> None:
        self._left = self._batches = batches
        self.runs: list[str] = []

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        self._left = self._batches
        index = min(range(len(ready)), key=lambda each: ready[each].order)
        self.runs.append(ready[index].name)
        return index

    def preempt(self, running: OperatorView, ran: float, moment: Moment) -> bool:
        self._left -= 1
        return self._left == 0


def test_a_policy_may_decide_preemption() -> None:
    assert isinstance(Steps(1), Preempting)
    assert not isinstance(LeastRecent(), Preempting)
    flow = ps.Flow("preempted")
    numbers(flow, 40).map(lambda n: n, name="a").sink("out")
    runs = {}
    for batches in (1, 2):
        # A time slice that would be over at once, and never: what counts is what the policy says.
        for quantum in (0.0, 1e9):
            policy = Steps(batches)
            stage = Stage(flow, range(40), [10], Clock(), workers=1, capacity=16, policy=policy, quantum=quantum)
            for _ in range(4):
                stage.submit()
            stage.element.start()
            stage.element.drain()
            stage.element.close()
            assert stage.published == [0, 1, 2, 3]
            runs[batches, quantum] = policy.runs
    assert runs[1, 0.0] == runs[1, 1e9] == [name for name in ("in", "a", "out") for _ in range(4)]
    assert runs[2, 0.0] == runs[2, 1e9] == [name for name in ("in", "a", "out") for _ in range(2)]


@pytest.mark.parametrize("partitioned", ["hybrid", "shared", "executor"])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_when_all_is_done_nothing_waits_and_nobody_is_inside(policy: str, partitioned: Any) -> None:
    flow = ps.Flow("counts")
    source = numbers(flow, 600)
    dealt = source.map(lambda n: n + 1, name="dealt")
    waits = dealt.map(lambda n: n, name="waits", in_flight=4)
    keyed = waits.key_by(lambda n: n % 11).scan(lambda count, n: (count + 1, n), 0, schema=int, name="keyed")
    keyed.union(source, name="joined").sink("out")
    settings = Settings(
        workers=4, policy=by_name(policy), fuse=False, capacity=4, quantum=0.0, partitioned=partitioned,
        replicas={"dealt": 3}, partitions=5,
    )  # fmt: skip
    engine = LocalEngine(make_plan(flow), LocalOptions(7, settings=settings))
    engine.run()
    assert len(engine.results["out"]) == 1200
    for name, counts in engine.element.around.measured.operators.items():
        assert (counts.rows_waiting, counts.workers, counts.front_number) == (0, 0, None), name
        assert counts.totals().rows_out == (0 if name == "out" else 1200 if name == "joined" else 600)
