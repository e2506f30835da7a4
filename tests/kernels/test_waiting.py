"""Functions that wait: how many rows at once, what happens to errors, and that everything ends."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock import read
from penstock.clock import as_measured, thread_time
from penstock.errors import FlowError, OperatorError
from penstock.flow import Flow
from penstock.kernels.waiting import (
    InFlight,
    Job,
    TaskWindow,
    ThreadWindow,
    close_shared,
    make_window,
    run_job,
    shared_window,
)
from penstock.operators.stateless import DEFAULT_TASKS, DEFAULT_THREADS
from penstock.plan.plan import make_plan
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings
from penstock.threads.waiting_stations import SpanningStation, WaitingStation

from ..patience import PATIENCE
from ..running import numbers, out

MODELS = ("dynamic", "manual", "dedicated", "bound")


class Gauge:
    """Count how many calls are under way."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = self.ended = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1
            self.ended += 1


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must come, however slow the machine is."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.001)


async def until_async(condition: Callable[[], bool]) -> None:
    """Wait as `until` does, while other rows go on."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.001)


def lookups(
    gauge: Gauge, seconds: float = 0.002, *, ready: Callable[[], bool] = lambda: True
) -> dict[bool, Callable[[Any], Any]]:
    """Return a lookup as a plain function and as an async def, both of which end only when something is `ready`."""

    def plain(row: Any) -> Any:
        with gauge:
            time.sleep(seconds)
            until(ready)
            return row

    async def waiting(row: Any) -> Any:
        with gauge:
            await asyncio.sleep(seconds)
            await until_async(ready)
            return row

    return {False: plain, True: waiting}


def together(gauge: Gauge, rows: int) -> dict[bool, Callable[[Any], Any]]:
    """Return lookups none of which ends before so many were under way at once, however slow the machine is."""
    return lookups(gauge, ready=lambda: gauge.most >= rows)


def engine_of(stream: ps.Stream, batch_rows: int = 8, **settings: Any) -> LocalEngine:
    """Make a threads engine for a stream."""
    return LocalEngine(make_plan(stream.sink("out")), LocalOptions(batch_rows, settings=Settings(**settings)))


def when(condition: Callable[[], bool], action: Callable[[], None]) -> None:
    """Do something as soon as a condition holds, in another thread."""
    threading.Thread(target=lambda: (until(condition), action()), daemon=True).start()


def runners(window: Any) -> int:
    """Return how many runners a window has: no more rows than that can be begun."""
    return len(window._threads if isinstance(window, ThreadWindow) else window._tasks)


def threads_left() -> list[str]:
    """Return the names of Penstock's threads that a station should have ended."""
    return [t.name for t in threading.enumerate() if t.name.startswith(("penstock-worker", "penstock-waiting"))]


@pytest.fixture(params=[False, True], ids=["plain", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def window(asynchronous: bool):
    made = make_window(asynchronous, 4)
    yield made
    made.close()


class TestBuilding:
    def test_an_async_def_waits_by_itself(self):
        async def ask(row: int) -> int:
            return row

        class Asker:
            async def __call__(self, row: int) -> int:
                return row

        for function in (ask, functools.partial(ask), Asker()):
            operator = numbers([1]).map(function).node.operator
            assert operator.in_flight == DEFAULT_TASKS
            assert operator.is_async

    def test_a_plain_function_is_declared(self):
        stream = numbers([1])
        assert stream.map(str).node.operator.in_flight is None
        assert stream.map(str, waits=False).node.operator.in_flight is None
        assert stream.map(str, waits=True).node.operator.in_flight == DEFAULT_THREADS
        assert stream.filter(bool, waits=True).node.operator.in_flight == DEFAULT_THREADS
        assert stream.flat_map(str, in_flight=7).node.operator.in_flight == 7

    def test_stages_take_the_options(self):
        assert (numbers([1]) >> ps.map(str, in_flight=3)).node.operator.in_flight == 3

    def test_the_type_of_an_async_def_is_known(self):
        async def ask(row: int) -> str:
            return str(row)

        stream = numbers([1, 2]).map(ask)
        assert stream.type is not None
        assert out(stream) == ["1", "2"]

    @pytest.mark.parametrize("rows", [0, -1, 2.5, "many", True])
    def test_a_wrong_number_is_refused(self, rows):
        with pytest.raises(FlowError, match=r"'str': in_flight=.*give a whole number of rows, 1 or more"):
            numbers([1]).map(str, in_flight=rows)

    def test_too_many_threads_are_refused(self):
        with pytest.raises(FlowError, match=r"give at most 1024, or write the function as async def"):
            numbers([1]).map(str, in_flight=5000)

    def test_contradictions_are_refused(self):
        async def ask(row: int) -> int:
            return row

        async def several(row: int) -> Any:
            yield row

        stream = numbers([1])
        with pytest.raises(FlowError, match="is an async def, which always waits"):
            stream.map(ask, waits=False)
        with pytest.raises(FlowError, match="leave out waits=False"):
            stream.map(str, waits=False, in_flight=3)
        with pytest.raises(FlowError, match="waits='yes'; use True"):
            stream.map(str, waits="yes")
        with pytest.raises(FlowError, match=r"several is an asynchronous generator.*flat_map\(\)"):
            stream.map(several)
        with pytest.raises(FlowError, match=r"a predicate of split.* cannot be async def"):
            stream.split(ask)

    def test_an_expression_never_waits(self):
        import pyarrow.compute as pc

        stream = Flow("test").source("in", read.items([{"a": 1}]))
        with pytest.raises(FlowError, match="an expression never waits"):
            stream.filter(pc.field("a") > 0, waits=True)


def test_rows_before_the_first_failure_are_not_left_out():
    """A thread may have taken a row before another one fails behind it, and look at the job only then."""
    job = Job(str, list("abcde"), True, lambda _: None)
    for index, first in [(3, 3), (1, 1), (2, 1)]:
        job.failed(index, ValueError())
        assert job.first_failed == first
    going_on = Job(str, list("abc"), False, lambda _: None)
    going_on.failed(0, ValueError())
    assert going_on.first_failed > 2


class TestWindow:
    def test_results_are_in_the_places_of_their_rows(self, window: InFlight, asynchronous):
        function = lookups(Gauge(), 0.0005)[asynchronous]
        job = run_job(window, function, list(range(50)), True)
        assert job.results == list(range(50))
        assert not job.errors

    def test_no_more_rows_than_the_limit(self, window: InFlight, asynchronous):
        gauge = Gauge()
        run_job(window, together(gauge, 4)[asynchronous], list(range(40)), True)
        assert gauge.most == 4
        assert gauge.now == 0

    def test_the_limit_can_be_changed_meanwhile(self, window: InFlight, asynchronous):
        gauge, turns = Gauge(), threading.Semaphore(0)
        function = lookups(gauge, 0, ready=lambda: turns.acquire(blocking=False))[asynchronous]
        done = threading.Event()
        window.submit(Job(function, list(range(500)), True, lambda _: done.set()))
        until(lambda: gauge.now == 4)
        window.set_limit(16)
        until(lambda: gauge.now == 16)
        window.set_limit(2)
        # Some may begin another row before they hear of it: rows end one by one, until two runners are left.
        ended = 0
        while runners(window) > 2:
            turns.release()
            ended += 1
            until(lambda ended=ended: gauge.ended == ended)
        until(lambda: gauge.now == 2)
        gauge.most, begun = 0, gauge.calls
        turns.release(100)
        until(lambda: gauge.calls == begun + 100 and gauge.now == 2)
        assert gauge.most == 2
        window.set_limit(100)
        until(lambda: gauge.now == 100)
        turns.release(500)
        assert done.wait(PATIENCE)
        assert gauge.calls == 500

    def test_jobs_overlap(self, window: InFlight, asynchronous):
        """The next job begins while the last rows of the one before are still waited for."""
        gauge, done = Gauge(), threading.Semaphore(0)
        for _ in range(4):
            window.submit(Job(together(gauge, 4)[asynchronous], [1], True, lambda _: done.release()))
        assert all(done.acquire(timeout=PATIENCE) for _ in range(4))
        assert gauge.most == 4

    def test_the_time_in_flight_is_added_up(self, window: InFlight, asynchronous):
        seen, done = threading.Event(), threading.Event()
        assert window.seconds() == 0
        function = lookups(Gauge(), 0.05, ready=seen.is_set)[asynchronous]
        window.submit(Job(function, list(range(12)), True, lambda _: done.set()))
        until(lambda: window.waiting() == 8)
        until(lambda: window.seconds() > 0)
        seen.set()
        assert done.wait(PATIENCE)
        until(lambda: window.seconds() == window.seconds())  # the last runner is told of after its row is
        total = window.seconds()
        assert total >= as_measured(12 * 0.05)
        time.sleep(0.01)
        assert window.seconds() == pytest.approx(total, abs=1e-6)

    def test_nothing_is_begun_behind_a_failure(self, window: InFlight, asynchronous):
        called = []

        def plain(row: int) -> int:
            called.append(row)
            if row == 3:
                raise ValueError(row)
            time.sleep(0.001)
            return row

        async def waiting(row: int) -> int:
            called.append(row)
            if row == 3:
                raise ValueError(row)
            await asyncio.sleep(0.001)
            return row

        job = run_job(window, waiting if asynchronous else plain, list(range(100_000)), True)
        assert list(job.errors) == [3]
        assert len(called) < 100_000
        assert job.results[:3] == [0, 1, 2]

    def test_an_exit_is_an_error_of_its_row(self, window: InFlight, asynchronous):
        def plain(row: int) -> int:
            raise SystemExit(1)

        async def waiting(row: int) -> int:
            raise asyncio.CancelledError

        job = run_job(window, waiting if asynchronous else plain, [1, 2], False)
        assert [str(e) for e in job.errors.values()] == [
            f"the function raised {'CancelledError' if asynchronous else 'SystemExit'}"
        ] * 2
        assert run_job(window, lookups(Gauge())[asynchronous], [1, 2], False).results == [1, 2]

    def test_functions_that_never_wait_leave_others_their_turn(self):
        ticks = []

        async def tick() -> None:
            while True:
                ticks.append(1)
                await asyncio.sleep(0)

        async def instant(row: int) -> int:
            if row == 0:
                background.append(asyncio.create_task(tick()))
            return row

        background: list[Any] = []
        made = TaskWindow(4)
        done = threading.Semaphore(0)
        for start in (0, 1000, 2000):
            made.submit(Job(instant, list(range(start, start + 1000)), True, lambda _: done.release()))
        assert all(done.acquire(timeout=PATIENCE) for _ in range(3))
        made.close()
        assert ticks

    def test_closing_cancels_what_waits(self):
        made, begun, cancelled = TaskWindow(4), [], []

        async def forever(row: int) -> None:
            begun.append(row)
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                cancelled.append(row)
                raise

        made.submit(Job(forever, list(range(10)), True, lambda _: pytest.fail("nothing is done")))
        until(lambda: len(begun) == 4)
        made.close()
        assert sorted(cancelled) == [0, 1, 2, 3]

    def test_windows_share_one_loop(self):
        async def home(row: int) -> Any:
            return asyncio.get_running_loop()

        first, second = TaskWindow(1), TaskWindow(1)
        loops = {id(run_job(each, home, [0], True).results[0]) for each in (first, second)}
        first.close()
        loops.add(id(run_job(second, home, [0], True).results[0]))
        second.close()
        assert len(loops) == 1

    def test_idle_threads_leave_where_nobody_closes(self):
        made = ThreadWindow(3, idle_seconds=0.05)
        function = lookups(Gauge())[False]
        assert run_job(made, function, [1, 2, 3], True).results == [1, 2, 3]
        until(lambda: not made._threads)
        assert run_job(made, function, [4], True).results == [4]

    def test_the_windows_of_the_process_are_kept(self, asynchronous):
        assert shared_window(asynchronous, 5) is shared_window(asynchronous, 5)
        assert shared_window(asynchronous, 5) is not shared_window(asynchronous, 6)

    def test_the_windows_of_the_process_end_when_they_are_told_to(self, asynchronous):
        close_shared()
        before = set(threading.enumerate())
        for _ in range(2):
            job = run_job(shared_window(asynchronous, 5), lookups(Gauge())[asynchronous], [1, 2], True)
            assert job.results == [1, 2]
            assert set(threading.enumerate()) - before
            close_shared()
            assert not set(threading.enumerate()) - before


class TestSequential:
    def test_one_loop_for_the_run(self):
        async def home(row: int) -> int:
            return id(asyncio.get_running_loop())

        assert len(set(out(numbers([1, 2, 3]).map(home)))) == 1

    def test_one_row_at_a_time(self):
        gauge = Gauge()
        assert out(numbers([1, 2, 3]).map(lookups(gauge)[True])) == [1, 2, 3]
        assert gauge.most == 1


class TestThreadsEngine:
    @pytest.mark.parametrize("model", MODELS)
    def test_many_rows_at_once_and_in_order(self, model, asynchronous):
        gauge = Gauge()
        stream = numbers(range(200)).map(together(gauge, 8)[asynchronous], in_flight=8)
        engine = engine_of(stream, model=model)
        engine.run()
        assert engine.results["out"] == list(range(200))
        assert gauge.most == 8
        assert not threads_left()

    def test_rows_of_several_batches_are_in_flight(self, asynchronous):
        gauge = Gauge()
        stream = numbers(range(60)).map(together(gauge, 20)[asynchronous], in_flight=20)
        engine = engine_of(stream, batch_rows=1, workers=1)
        engine.run()
        assert engine.results["out"] == list(range(60))
        assert gauge.most == 20

    def test_a_slow_row_holds_only_the_order(self):
        seen = []

        async def ask(row: int) -> int:
            await until_async(lambda: row != 0 or len(seen) == 39)
            seen.append(row)
            return row

        engine = engine_of(numbers(range(40)).map(ask), batch_rows=2)
        engine.run()
        assert engine.results["out"] == list(range(40))
        assert seen[-1] == 0

    @pytest.mark.parametrize("model", MODELS)
    def test_the_first_error_is_reported(self, model, asynchronous):
        def plain(row: int) -> float:
            time.sleep(0.002 * (row < 30))
            return 1 / (row % 25 - 20)

        async def waiting(row: int) -> float:
            await asyncio.sleep(0.002 * (row < 30))
            return 1 / (row % 25 - 20)

        stream = numbers(range(200)).map(waiting if asynchronous else plain, name="ask", in_flight=30)
        engine = engine_of(stream, batch_rows=7, model=model)
        with pytest.raises(OperatorError, match=r"'ask' failed at .*test_waiting.py:\d+: ZeroDivisionError.*row: 20$"):
            engine.run()
        assert engine.results["out"] == [1 / (n - 20) for n in range(14)]
        assert not threads_left()

    def test_stop_and_drain(self, asynchronous):
        gauge = Gauge()
        stream = numbers(range(100_000)).map(lookups(gauge)[asynchronous], in_flight=4)
        engine = engine_of(stream, batch_rows=4, in_flight=5)
        when(lambda: gauge.calls > 20, engine.stop)
        engine.run()
        found = engine.results["out"]
        assert found == list(range(len(found)))
        assert len(found) == gauge.calls
        assert not threads_left()

    def test_stop_now(self, asynchronous):
        gauge = Gauge()
        stream = numbers(range(100_000)).map(lookups(gauge, 0.05)[asynchronous], in_flight=4)
        engine = engine_of(stream, batch_rows=4, in_flight=5)
        when(lambda: gauge.calls > 10, engine.element.stop)
        engine.run()
        assert len(engine.results["out"]) < gauge.calls
        assert not threads_left()
        assert gauge.now == 0

    def test_memory_is_bounded(self, asynchronous):
        """No more batches than the element admits are taken in, however slow the lookup is."""
        taken, counted = [], []

        def note(row: int) -> int:
            taken.append(row)
            return row

        gauge = Gauge()
        function = lookups(gauge, ready=lambda: bool(counted))[asynchronous]
        engine = engine_of(numbers(range(10_000)).map(note).map(function, in_flight=4), batch_rows=10, in_flight=6)

        def count() -> None:
            time.sleep(0.05)  # in which more would be taken in, if more were allowed
            counted.append(len(taken))
            engine.element.stop()

        when(lambda: gauge.now == 4 and len(taken) >= 60, count)
        engine.run()
        assert counted == [60]

    @pytest.mark.parametrize("model", ["dynamic", "manual"])
    def test_the_number_in_flight_changes_while_it_runs(self, model, asynchronous):
        gauge = Gauge()
        stream = numbers(range(100_000)).map(lookups(gauge)[asynchronous], name="ask", in_flight=2)
        engine = engine_of(stream, batch_rows=50, model=model)
        station = engine.element.stations["ask"]
        assert isinstance(station, WaitingStation)
        assert isinstance(station, SpanningStation) == (model == "dynamic")
        thread = threading.Thread(target=engine.run)
        thread.start()
        until(lambda: gauge.most == 2)
        station.set_in_flight(40)
        until(lambda: gauge.most == 40)
        engine.stop()
        thread.join()
        assert gauge.most == station.in_flight == 40
        assert engine.results["out"] == list(range(gauge.calls))
        with pytest.raises(FlowError, match="'ask': in_flight=0; give a whole number"):
            station.set_in_flight(0)

    def test_other_operators_go_on_meanwhile(self):
        """One worker is enough: it does not wait for the rows."""
        seen: list[int] = []
        gate = threading.Event()

        def ask(row: int) -> int:
            assert gate.wait(PATIENCE), "the other operator did not go on"
            return row

        flow = Flow("test")
        source = flow.source("in", read.items(list(range(20))))
        source.map(ask, waits=True).sink("slow")
        source.map(lambda n: seen.append(n) or gate.set() if n == 19 else seen.append(n)).sink("fast")
        engine = LocalEngine(make_plan(flow), LocalOptions(2, settings=Settings(workers=1)))
        engine.run()
        assert seen == list(range(20))
        assert engine.results["slow"] == list(range(20))

    def test_an_engine_that_never_runs_leaves_no_thread(self, asynchronous):
        before = threading.active_count()
        engine_of(numbers([1]).map(lookups(Gauge())[asynchronous], in_flight=3))
        assert threading.active_count() == before

    def test_processor_time_is_counted(self, asynchronous):
        spent: list[float] = []

        def plain(row: int) -> int:
            began = thread_time()
            total = sum(range(20_000))
            spent.append(thread_time() - began)
            return total

        async def waiting(row: int) -> int:
            return plain(row)

        stream = numbers(range(100)).map(waiting if asynchronous else plain, name="ask", in_flight=2)
        engine = engine_of(stream)
        engine.run()
        total = engine.element.stations["ask"].counts.totals()
        assert total.cpu >= sum(spent) > 0
        assert (total.rows_in, total.rows_out, total.batches) == (100, 100, 13)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_window_counts_rows_when_they_are_begun(asynchronous: bool) -> None:
    """So that what is measured does not come in lumps of a batch."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def plain(row: int) -> int:
        begun.release()
        go_on.wait(PATIENCE)
        return row

    async def waiting(row: int) -> int:
        begun.release()
        while not go_on.is_set():
            await asyncio.sleep(0.001)
        return row

    window = make_window(asynchronous, 3)
    try:
        done = threading.Event()
        window.submit(Job(waiting if asynchronous else plain, list(range(10)), True, lambda _: done.set()))
        for _ in range(3):
            assert begun.acquire(timeout=PATIENCE)
        assert window.begun() == 3
        go_on.set()
        assert done.wait(PATIENCE)
        assert window.begun() == 10
    finally:
        go_on.set()
        window.close()
