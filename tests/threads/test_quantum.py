"""A co-routine gives its worker back when the quantum is over, and nothing that comes out can tell."""

from __future__ import annotations

import gc
import inspect
import itertools
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FlowError, OperatorError
from penstock.plan.plan import Plan, make_plan
from penstock.testing.kit import around_stage
from penstock.testing.torture import Trial, input_sequence, reference
from penstock.threads.element import Element
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.policies import POLICIES
from penstock.threads.ports import OperatorGate
from penstock.threads.rebinding import BindingTable
from penstock.threads.settings import Settings
from tests.conformance.checking import check_case, cuts
from tests.conformance.engines import Engine, Threads
from tests.conformance.flows import CASES
from tests.testing.library_flows import ONE_INPUT, ROWS, TWO, TWO_INPUTS

from ..how import how
from ..patience import PATIENCE

SOON = 60.0
"""Seconds for what happens at once, unless it never happens."""


def pauses(plan: Plan) -> bool:
    """Tell whether a flow has an operator that can be put aside."""
    return any(node.operator.logic.waits for node in plan.keyed)


PAUSING = [name for name, case in CASES.items() if pauses(make_plan(case.flow()))]
WAYS: dict[str, dict[str, Any]] = {
    "1 worker": {"workers": 1},
    "2 workers": {"workers": 2},
    "8 workers": {"workers": 8},
    "short queues": {"workers": 2, "capacity": 1},
    "manual": {"model": "manual", "capacity": 1},
    "dedicated": {"model": "dedicated", "capacity": 1},
    "1 bound": {"model": "bound", "workers": 1},
    "8 bound": {"model": "bound", "workers": 8},
    **{name: {"workers": 2, "policy": make()} for name, make in POLICIES.items()},
}


@pytest.fixture
def put_aside(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note whenever an operator is put aside, by which scheduler."""
    noted: list[str] = []
    for kind in (OperatorGate, BindingTable):
        real = kind.put_aside

        def note(self: Any, *args: Any, real: Any = real, kind: type = kind) -> None:
            noted.append(kind.__name__)
            real(self, *args)

        monkeypatch.setattr(kind, "put_aside", note)
    return noted


class TestTheSameComesOut:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("batch_rows", [2, pytest.param(1000, marks=pytest.mark.slow)])
    def test_of_every_flow_with_co_routines(self, way: str, batch_rows: int, put_aside: list[str]) -> None:
        engine = Engine(way, Threads(batch_rows, quantum=0.0, **WAYS[way]))
        for name in PAUSING:
            drawn = Random(f"{name} {way}").choice(["own", "whole"])
            check_case(engine, name, [drawn] if batch_rows == 2 else cuts(CASES[name]), alone=True)
        if way not in ("manual", "dedicated"):  # which put aside only what a full queue makes them begin
            assert len(put_aside) > len(PAUSING)

    @pytest.mark.parametrize("way", WAYS)
    def test_of_every_operator_in_the_library(self, way: str) -> None:
        for stage, rows in [*((each, ROWS) for each in ONE_INPUT.values()), *((e, TWO) for e in TWO_INPUTS.values())]:
            plan = make_plan(around_stage(stage, rows, {"time": "at"}))
            if pauses(plan):
                self.hold(plan, way)

    def hold(self, plan: Plan, way: str) -> None:
        """Hold a flow, all of whose input is one batch a source, to the reference."""
        sequence = input_sequence(plan)
        trial = Trial(plan, Settings(quantum=0.0, **WAYS[way]))
        trial.run([*trial.parts(sequence), trial.ends()])
        trial.close()
        assert trial.results == reference(plan, sequence).rows


class Noting(ps.Coroutine):
    """Emit each row so many times, and note every one."""

    def __init__(self, events: list[str], times: int) -> None:
        self.events, self.times = events, times

    async def process(self, ctx: ps.CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 1}):
            row = ctx.pop()
            for _ in range(self.times):
                self.events.append("co-routine")
                await ctx.emit(row)


def made_ready(
    flow: ps.Flow, rows: list[Any], clock: Callable[[], float] = time.perf_counter, **settings: Any
) -> tuple[Element, list[Any]]:
    """Make an element that has one batch to run, before it has workers; and the list of what it publishes."""
    published: list[Any] = []
    plan = make_plan(flow)
    trial = Trial(plan, Settings(model="manual"))
    trial.close()

    def publish(header: Any, chunks: list[Any]) -> None:
        published.extend((name, chunk.get_rows()) for name, chunk in zip(header.sinks, chunks, strict=True) if chunk)

    element = Element(plan, publish, Settings(**settings), clock=clock)
    (cut,) = trial.parts([("in", row) for row in rows])
    assert element.submit(cut.rows, cut.marks, cut.steps)
    return element, published


class TestOthersHaveTheirTurn:
    def flow(self, events: list[str], times: int) -> ps.Flow:
        flow = ps.Flow("two ways")
        rows = flow.source("in", ps.read.items([]))
        ps.operate(Noting(events, times), rows, name="slow").sink("a")
        rows.map(lambda row: events.append("other") or row, name="other").sink("b")
        return flow

    @pytest.mark.parametrize(("rows", "times"), [(50, 1), (1, 50)], ids=["at waits", "at emits"])
    @pytest.mark.parametrize("model", ["dynamic", "bound"])
    def test_while_a_co_routine_is_in_a_long_batch(self, model: str, rows: int, times: int) -> None:
        """The only worker has both batches before it begins; the co-routine's comes first."""
        events: list[str] = []
        element, published = made_ready(
            self.flow(events, times), list(range(rows)), model=model, workers=1, quantum=0.0
        )
        element.start()
        element.drain()
        element.close()
        assert events.index("other") < 2, "a step of the co-routine, and then the other"
        assert events.count("co-routine") == rows * times
        assert dict(published)["a"] == [row for row in range(rows) for _ in range(times)]

    @pytest.mark.parametrize("model", ["dynamic", "bound"])
    def test_not_before_the_quantum_is_over(self, model: str) -> None:
        events: list[str] = []
        element, _ = made_ready(self.flow(events, 1), list(range(50)), model=model, workers=1, quantum=SOON)
        element.start()
        element.drain()
        element.close()
        assert events.index("other") == 50

    def test_and_their_time_is_not_counted(self) -> None:
        """What an operator takes is what its workers spend in it, not the time for which it lies aside."""
        events: list[str] = []
        now = [0.0]

        def clock() -> float:
            now[0] += 1.0
            return now[0]

        flow = ps.Flow("two ways")
        rows = flow.source("in", ps.read.items([]))
        ps.operate(Noting(events, 1), rows, name="slow").sink("a")
        rows.map(lambda row: now.__setitem__(0, now[0] + 1e6) or row).sink("b")
        element, _ = made_ready(flow, list(range(5)), clock, workers=1, quantum=0.0)
        element.start()
        element.drain()
        slow = element.statistics().operators["slow"]
        element.close()
        assert now[0] > 5e6
        assert 5 <= slow.wall < 1000
        assert (slow.batches, slow.rows_in, slow.rows_out) == (1, 5, 5)


class Endless(ps.Coroutine):
    """Emit for ever; tell when it has begun, and when it is closed."""

    def __init__(self, begun: threading.Event, closed: list[str]) -> None:
        self.begun, self.closed = begun, closed

    async def process(self, ctx: ps.CoroutineContext) -> None:
        await ctx.wait_for_all({0: 1})
        try:
            while True:
                await ctx.emit(1)
                self.begun.set()
        finally:
            self.closed.append("closed")


def no_frame_is_left(operator: ps.Coroutine) -> bool:
    """Tell whether no co-routine of an operator is suspended."""
    return not any(
        inspect.iscoroutine(found) and found.cr_frame is not None and found.cr_frame.f_locals.get("self") is operator
        for found in gc.get_objects()
    )


class TestEndings:
    @pytest.mark.parametrize("model", ["dynamic", "bound", "dedicated"])
    @pytest.mark.parametrize("quantum", [0.0, SOON])
    def test_stopping_at_once_ends_a_batch_that_would_not_end(self, model: str, quantum: float) -> None:
        begun, closed = threading.Event(), list[str]()
        operator = Endless(begun, closed)
        flow = ps.Flow("endless")
        ps.operate(operator, flow.source("in", ps.read.items([1]))).sink("out")
        before = threading.active_count()
        engine = LocalEngine(make_plan(flow), LocalOptions(1, settings=Settings(model=model, quantum=quantum)))
        running = threading.Thread(target=engine.run)
        running.start()
        assert begun.wait(SOON)
        engine.stop_now()
        running.join(SOON)
        assert not running.is_alive()
        assert closed == ["closed"]
        assert threading.active_count() == before
        assert no_frame_is_left(operator)

    @pytest.mark.parametrize("way", ["1 worker", "2 workers", "1 bound", "dedicated"])
    def test_an_error_in_the_middle_is_the_one_that_is_meant(self, way: str) -> None:
        class Fails(ps.Coroutine):
            async def process(self, ctx: ps.CoroutineContext) -> None:
                while await ctx.wait_for_all({0: 1}):
                    row = ctx.pop()
                    for number in range(row):
                        await ctx.emit(number)
                        assert number < 3, "no more than three"

        operator = Fails()
        flow = ps.Flow("fails")
        ps.operate(operator, flow.source("in", ps.read.items([1, 2, 5, 7])), name="failing").sink("out")
        before = threading.active_count()
        engine = LocalEngine(make_plan(flow), LocalOptions(4, settings=Settings(quantum=0.0, **WAYS[way])))
        with pytest.raises(OperatorError, match="no more than three") as found:
            engine.run()
        assert found.value.operator == "failing"
        assert found.value.row == "5"
        assert threading.active_count() == before
        assert no_frame_is_left(operator)
        assert not any(station.gate.is_begun() for station in engine.element.stations.values())

    @pytest.mark.parametrize("model", ["dynamic", "bound"])
    def test_an_error_elsewhere_ends_what_lies_aside(self, model: str) -> None:
        """The other operator fails, and the batch that says so is published, while the co-routine is at the next."""
        begun, closed = threading.Event(), list[str]()

        class Second(Endless):
            async def process(self, ctx: ps.CoroutineContext) -> None:
                while await ctx.wait_for_all({0: 1}):
                    if ctx.pop() == 2:
                        self.begun.set()
                        while True:
                            await ctx.emit(0)

        def fails(row: int) -> int:
            assert begun.wait(SOON), "the co-routine is in the second batch"
            raise ValueError("of the other")

        operator = Second(begun, closed)
        flow = ps.Flow("fails")
        rows = flow.source("in", ps.read.items([1, 2]))
        ps.operate(operator, rows).sink("a")
        rows.map(fails, name="other").sink("b")
        before = threading.active_count()
        settings = Settings(model=model, workers=4, quantum=0.0)
        engine = LocalEngine(make_plan(flow), LocalOptions(1, settings=settings))
        with pytest.raises(OperatorError, match="of the other"):
            engine.run()
        assert threading.active_count() == before
        assert no_frame_is_left(operator)

    def test_a_worker_that_must_go_leaves_the_rest_to_another(self) -> None:
        here, on = threading.Event(), threading.Event()
        threads: list[str] = []

        class Held(ps.Coroutine):
            async def process(self, ctx: ps.CoroutineContext) -> None:
                while await ctx.wait_for_all({0: 1}):
                    row = ctx.pop()
                    threads.append(threading.current_thread().name)
                    here.set()
                    assert on.wait(SOON)
                    await ctx.emit(row)

        flow = ps.Flow("held")
        ps.operate(Held(), flow.source("in", ps.read.items([])), name="held").sink("out")
        element, published = made_ready(flow, [1, 2, 3], workers=2, quantum=SOON)
        element.start()
        assert here.wait(SOON)
        (busy,) = (worker for worker in element.model._workers if worker.view().operator == "held")  # type: ignore[attr-defined]
        # The list is in the order of their numbers, and the last ones go: so that it is this one.
        element.model._workers.sort(key=lambda worker: worker is busy)  # type: ignore[attr-defined]
        element.set_workers(1)
        on.set()
        element.drain()
        element.close()
        assert published == [("out", [1, 2, 3])]
        assert threads[0] == busy.thread.name
        assert threads[0] not in threads[1:], "the one that was told to go has come back"


class TestTheOption:
    @pytest.fixture
    def flow(self) -> ps.Flow:
        flow = ps.Flow("option")
        ps.operate(ps.library.Throttle(every=2), flow.source("in", ps.read.items([1, 2, 3]))).sink("out")
        return flow

    @pytest.mark.parametrize("model", ["dynamic", "bound"])
    @pytest.mark.parametrize(("given", "seconds"), [("5 ms", 0.005), (0, 0.0), (None, 0.05)])
    def test_is_taken(self, flow: ps.Flow, model: Any, given: Any, seconds: float) -> None:
        run = ps.run(flow, on=ps.Threads(model=model, quantum=given))
        assert run.results["out"] == [1, 3]
        assert run.engine.element._settings.quantum == seconds

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"engine": "threads", "quantum": -1}, "quantum=-1; it must be a time"),
            (
                {"engine": "threads", "quantum": "1 ms", "model": "manual"},
                'needs model="dynamic" or model="bound"',
            ),
            ({"engine": "threads", "quantum": "1 ms", "model": "dedicated"}, "no worker chooses"),
            ({"engine": "threads", "quantum": "soon"}, "quantum='soon' is no duration"),
        ],
    )
    def test_is_refused(self, flow: ps.Flow, options: dict[str, Any], message: str) -> None:
        with pytest.raises(FlowError, match=message):
            ps.run(flow, **how(**options))


class Counts(ps.Coroutine):
    """Count in a local variable; tell when it is closed."""

    def __init__(self):
        self.closed = []

    async def process(self, ctx):
        count = 0
        try:
            while await ctx.wait_for_all({0: 1}):
                count += 1
                await ctx.emit((ctx.pop(), count))
        finally:
            self.closed.append(count)


@pytest.mark.parametrize("model", ["manual", "dedicated", "dynamic", "bound"])
class TestFrames:
    def engine(self, operator, rows, **settings):
        flow = ps.Flow("frames")
        made = ps.operate(operator, flow.source("in", rows), name="op").sink("out")
        return LocalEngine(make_plan(made), LocalOptions(2, settings=Settings(**settings)))

    def test_live_on_across_batches(self, model):
        operator = Counts()
        engine = self.engine(operator, list("abcde"), model=model, quantum=0.0)
        engine.run()
        assert engine.results["out"] == [(row, number + 1) for number, row in enumerate("abcde")]
        assert operator.closed == [5]

    def test_begin_again_where_state_is_saved(self, model):
        engine = self.engine(Counts(), list("abc"), model=model, keeps_frames=False)
        engine.run()
        assert engine.results["out"] == [("a", 1), ("b", 1), ("c", 1)]

    def test_are_closed_at_a_stop(self, model):
        operator = Counts()
        engine = self.engine(operator, itertools.count(), model=model)
        thread = threading.Thread(target=engine.run)
        thread.start()
        deadline = time.monotonic() + 60
        while not engine.results["out"] and time.monotonic() < deadline:
            time.sleep(0.001)
        engine.stop_now()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        (count,) = operator.closed
        assert count >= len(engine.results["out"]) > 0
