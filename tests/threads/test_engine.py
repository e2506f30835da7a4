"""The threads engine as its users meet it: it ends cleanly, slows its sources, and changes while it runs."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any

import pytest

import penstock as ps
from penstock.clock import as_measured, thread_time
from penstock.errors import FlowError, OperatorError, PenstockError
from penstock.plan.plan import make_plan
from penstock.threads import engine as engines
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings

from ..how import how
from ..patience import PATIENCE
from .support import MODELS, Held, numbers, simple, wait_for, wait_until_still


class Lines:
    """A server that sends lines of text when the test says so."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._client: socket.socket | None = None

    def send(self, text: str) -> None:
        if self._client is None:
            self._client, _ = self._server.accept()
        self._client.sendall(text.encode())

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._server.close()


class TestEnds:
    @pytest.mark.parametrize("model", MODELS)
    def test_every_last_row_comes_out(self, model):
        run = ps.run(simple(numbers(1000)), on=ps.Threads(model=model, workers=3, batch_rows=7))
        assert run.results["out"] == list(range(1, 1001))

    @pytest.mark.parametrize("model", MODELS)
    def test_an_operator_that_raises_ends_the_flow_at_the_first_row_that_fails(self, model):
        flow = ps.Flow("fails")
        source = flow.source("in", ps.read.items(numbers(500)))
        for name, bad in (("a", 400), ("b", 123), ("c", 300)):
            source = source.map(lambda row, bad=bad: 1 / (row.v - bad) and row, name=name)
        source.sink("out")
        with pytest.raises(OperatorError, match="operator 'b'") as caught:
            ps.run(flow, on=ps.Threads(model=model, workers=3, batch_rows=10))
        assert "123" in str(caught.value)

    def test_what_was_out_before_an_error_is_a_prefix(self):
        out: list[int] = []
        flow = ps.Flow("prefix")
        flow.source("in", ps.read.items(numbers(100))).map(lambda row: 1 // (77 - row.v) * 0 + row.v).sink(
            "out", lambda rows, number: out.extend(rows)
        )
        with pytest.raises(OperatorError):
            ps.run(flow, on=ps.Threads(workers=3, batch_rows=5))
        assert out == list(range(75))  # whole batches

    @pytest.mark.parametrize("model", MODELS)
    def test_stop_lets_out_what_came_in(self, model):
        held = Held(1000)
        run = ps.start(simple(held), on=ps.Threads(model=model, workers=2, batch_rows=1))
        for _ in range(10):
            held.go.release()
        wait_for(lambda: len(run.results["out"]) == 10)
        run.stop()
        held.go.release()
        run.await_end(PATIENCE)
        assert run.results["out"] == list(range(1, held.taken + 1))

    def test_stop_now_drops_what_is_inside(self):
        slow = threading.Event()
        run = ps.start(simple(numbers(1000), lambda row: slow.wait(PATIENCE) and row.v), on=ps.Threads(batch_rows=1))
        wait_for(lambda: run.stats.batches_in > 1)
        run.engine.stop_now()
        slow.set()
        assert run.await_end(PATIENCE)
        assert len(run.results["out"]) < 10

    @pytest.mark.parametrize("model", MODELS)
    def test_a_function_that_exits_ends_the_flow(self, model):
        with pytest.raises(PenstockError, match="SystemExit"):
            ps.run(simple(numbers(10), lambda row: sys.exit(3)), on=ps.Threads(model=model))

    @pytest.mark.parametrize("in_flight", [1, 2, 3])
    def test_few_batches_in_flight_are_enough(self, in_flight):
        options = LocalOptions(1, settings=Settings(workers=4, in_flight=in_flight))
        engine = LocalEngine(make_plan(simple(numbers(500))), options)
        engine.run()
        assert engine.results["out"] == list(range(1, 501))

    def test_a_sink_that_raises_ends_the_flow(self):
        flow = ps.Flow("sink")

        def broken(rows: list[Any], number: int) -> None:
            raise RuntimeError("disk full")

        flow.source("in", ps.read.items(numbers(10))).sink("out", broken)
        with pytest.raises(RuntimeError, match="disk full"):
            ps.run(flow, on=ps.Threads())


class TestBackPressure:
    @pytest.mark.parametrize("model", MODELS)
    def test_a_slow_sink_slows_the_source(self, model):
        gate = threading.Semaphore(0)
        held = Held(10_000)
        for _ in range(10_000):
            held.go.release()
        flow = ps.Flow("slow")

        def wait(rows: list[Any], number: int) -> None:
            gate.acquire()

        flow.source("in", ps.read.items(held, schema={"v": int})).map(lambda row: row.v).sink(
            "out", lambda rows, number: gate.acquire()
        )
        run = ps.start(flow, on=ps.Threads(model=model, workers=2, batch_rows=1))
        for _ in range(5):
            gate.release()
        wait_for(lambda: run.stats.batches_out == 5)
        wait_until_still(lambda: held.taken)
        assert held.taken < 200  # of the 10,000 that are there
        run.engine.stop_now()
        for _ in range(1000):
            gate.release()
        run.await_end(PATIENCE)


class TestWorkers:
    def test_they_come_and_go_while_the_flow_runs(self):
        held = Held(200)
        run = ps.start(simple(held), on=ps.Threads(workers=1, batch_rows=1))
        for count in (4, 2, 8, 1):
            run.set_threads(count)
            for _ in range(50):
                held.go.release()
            wait_for(lambda: len(run.stats.workers) == count)  # noqa: B023
        run.await_end(PATIENCE)
        assert run.results["out"] == list(range(1, 201))

    def test_one_that_is_suspended_rests_and_goes_on(self):
        held = Held(30)
        run = ps.start(simple(held), on=ps.Threads(workers=1, batch_rows=1))
        held.go.release(10)
        wait_for(lambda: len(run.results["out"]) == 10)
        model = run.engine.element.model
        model.suspend(0)
        wait_for(lambda: run.stats.workers[0].state == "suspended")
        held.go.release(5)
        wait_until_still(lambda: held.taken)
        assert len(run.results["out"]) == 10
        model.resume(0)
        held.go.release(15)
        run.await_end(PATIENCE)
        assert run.results["out"] == list(range(1, 31))

    def test_a_worker_that_is_stuck_is_seen_and_does_not_stop_the_others(self):
        stuck = threading.Event()
        flow = ps.Flow("stuck")
        source = flow.source("in", ps.read.items(numbers(3)))
        seen: list[int] = []
        source.map(lambda row: stuck.wait(PATIENCE), name="sticks").sink("a")
        source.map(lambda row: seen.append(row.v), name="runs").sink("b")
        run = ps.start(flow, on=ps.Threads(workers=2, batch_rows=3))
        wait_for(lambda: seen == [0, 1, 2])
        wait_for(lambda: [worker.operator for worker in run.stats.stuck(0.01)] == ["sticks"])
        stuck.set()
        run.await_end(PATIENCE)

    def test_operators_move_between_bound_workers(self):
        held = Held(300)
        run = ps.start(simple(held), on=ps.Threads(model="bound", workers=3, batch_rows=1))
        for number in range(300):
            run.engine.element.model.rebind("work", number % 3)
            held.go.release()
        run.await_end(PATIENCE)
        assert run.results["out"] == list(range(1, 301))
        assert run.engine.element.model.bindings()["work"] in (0, 1, 2)


class TestStatistics:
    def test_they_count_rows_and_time(self):
        flow = ps.Flow("counts")
        source = flow.source("in", ps.read.items(numbers(100)))
        quarter = source.filter(lambda row: row.v % 4 == 0, name="quarter")
        # Not a map, which would be fused: the time of fused operators is estimated.
        computed: list[float] = []

        def wait(row: Any) -> list[None]:
            began = thread_time()
            time.sleep(0.001)
            computed.append(thread_time() - began)
            return [None]

        quarter.flat_map(wait, name="wait").sink("out")
        run = ps.run(flow, on=ps.Threads(workers=2, batch_rows=10))
        found = {each.name: each for each in run.stats.operators.values()}
        assert (found["quarter"].rows_in, found["quarter"].rows_out) == (100, 25)
        assert found["quarter"].selectivity == 0.25
        assert found["wait"].wall >= as_measured(25 * 0.001)
        assert found["wait"].cpu >= sum(computed)
        assert found["wait"].blocked["wait"] == found["wait"].wall - found["wait"].cpu > 0
        assert run.stats.latency is not None
        assert 0 < run.stats.latency.p50 <= run.stats.latency.p99
        assert run.stats.rows_in == 100


class TestReports:
    def test_each_has_what_came_since_the_last(self, monkeypatch):
        monkeypatch.setattr(engines, "REPORT_SECONDS", 0.0)
        monkeypatch.setattr(engines, "REPORT_RATIO", 0)
        run = ps.run(simple(numbers(100)), on=ps.Threads(workers=1, batch_rows=10))
        assert len(run.epochs) > 5
        assert sum(stats.rows_in for stats in run.epochs) == 100
        assert sum(stats.operators["work"].rows_in for stats in run.epochs) == 100
        assert sum(stats.operators["work"].rows_out for stats in run.epochs) == 100


class TestForgottenKeys:
    ROWS = 20_000

    def run_and_count(self, forget: Any, **options: Any) -> int | None:
        flow = ps.Flow("forgets")
        pairs = ps.read.items([{"k": number // 2} for number in range(self.ROWS)], schema={"k": int})
        counted = flow.source("in", pairs).key_by("k").scan(forget, 0, name="pairs")
        counted.sink("out")
        run = ps.run(flow, **how("threads", batch_rows=100, **options))
        assert run.results["out"] == [number % 2 + 1 for number in range(self.ROWS)]
        return run.stats.operators["pairs"].keys

    @pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 3}, {"threads": 2, "replicas": 2}])
    def test_they_do_not_stay_in_memory(self, options):
        def until_two(count, row):
            return (None if count else 1), count + 1

        found = self.run_and_count(until_two, **options)
        assert found is not None
        assert found < 500  # what was left before anybody looked; ten thousand keys came and went

    def test_those_that_live_long_go_too(self):
        """Neither the oldest keys are forgotten, nor the newest."""
        alive, ever = 4500, 200
        opened = [(number, number + alive) for number in range(self.ROWS)]
        times = sorted([(at, key) for key, (first, last) in enumerate(opened) for at in (first, last)])
        flow = ps.Flow("long lives")
        rows = flow.source("in", ps.read.items([{"k": key} for _, key in times], schema={"k": int}))
        lives = rows.key_by("k").scan(lambda count, row: ((None if count and row.k >= ever else 1), 1), 0, name="lives")
        lives.sink("out", lambda rows, epoch: None)
        run = ps.run(flow, on=ps.Threads(batch_rows=100, workers=2))
        found = run.stats.operators["lives"].keys
        assert ever <= found < 3 * (alive + ever) < self.ROWS

    def test_keys_that_are_not_forgotten_stay(self):
        assert self.run_and_count(lambda count, row: (count + 1, count + 1), threads=3) == self.ROWS // 2


class TestDirectories:
    @pytest.mark.parametrize("engine", ["threads", "sequential"])
    def test_rows_are_written_in_order_and_read_back(self, tmp_path, engine):
        flow = ps.Flow("files")
        flow.source("in", ps.read.items(numbers(50))).sink("out", ps.write.parquet(str(tmp_path / "out")))
        ps.run(flow, **how(engine))
        back = ps.Flow("back")
        back.source("in", ps.read.parquet(str(tmp_path / "out"))).map(lambda row: row.v).sink("out")
        assert ps.run(back, on=ps.Threads()).results["out"] == list(range(50))

    def test_rows_are_seen_though_nothing_new_comes(self, tmp_path):
        flow = ps.Flow("idle")
        lines = Lines()
        flow.source("in", ps.read.socket("127.0.0.1", lines.port)).sink("out", ps.write.json(str(tmp_path / "out")))
        run = ps.start(flow, on=ps.Threads())
        lines.send("a\nb\n")
        wait_for((tmp_path / "out" / "epoch=000000001").exists)
        lines.close()
        run.await_end(PATIENCE)

    def test_a_directory_of_another_run_is_refused(self, tmp_path):
        for expected in (None, "holds the rows of another run"):
            flow = ps.Flow("files")
            flow.source("in", ps.read.items(numbers(5))).sink("out", ps.write.json(str(tmp_path / "out")))
            if expected is None:
                ps.run(flow, on=ps.Threads())
            else:
                with pytest.raises(FlowError, match=expected):
                    ps.run(flow, on=ps.Threads())

    @pytest.mark.parametrize("engine", ["threads", "sequential", "spark"])
    def test_a_path_that_is_a_file_is_refused_at_the_start(self, tmp_path, engine):
        (tmp_path / "out").write_text("mine")
        flow = ps.Flow("files")
        flow.source("in", ps.read.items(numbers(5))).sink("out", ps.write.json(str(tmp_path / "out")))
        with pytest.raises(FlowError, match=r"sink 'out': .*/out is a file; give a directory"):
            ps.start(flow, **how(engine))  # and before Spark starts
        assert (tmp_path / "out").read_text() == "mine"

    def test_spark_need_not_start_to_refuse_the_rows_of_another_engine(self, tmp_path):
        flow = ps.Flow("files")
        flow.source("in", ps.read.items(numbers(5))).sink("out", ps.write.json(str(tmp_path / "out")))
        ps.run(flow, on=ps.Threads())
        with pytest.raises(ps.CheckpointError, match=r"rows of a run with on=ps\.Threads"):
            ps.start(flow, checkpoint=str(tmp_path / "kept"))


class TestOptions:
    def test_an_option_that_is_not_there(self):
        with pytest.raises(TypeError, match=r"Threads has no option 'replica'; did you mean 'replicas'\?"):
            ps.Threads(replica=3)  # type: ignore[call-arg]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"workers": 0}, "workers=0; it must be 1 or more"),
            ({"batch_rows": 0}, "batch_rows=0"),
            ({"model": "magic"}, "model='magic'; there are manual"),
            ({"policy": "magic"}, "policy='magic'; give .*min-latency"),
        ],
    )
    def test_bad_ones_are_refused(self, options, message):
        with pytest.raises(FlowError, match=message):
            ps.run(simple(numbers(1)), **how("threads", **options))

    def test_workers_of_other_models_cannot_be_changed(self):
        held = Held(1)
        run = ps.start(simple(held), on=ps.Threads(model="manual"))
        with pytest.raises(PenstockError, match="manual"):
            run.set_threads(2)
        held.go.release()
        run.await_end(PATIENCE)


class TestStandingIn:
    """A small batch is run by the thread that reads the sources, where there is one worker."""

    def run_and_see(self, rows: int, threads: int) -> set[str]:
        seen: set[str] = set()
        flow = ps.Flow("small")
        source = flow.source("in", ps.read.items(range(rows)))
        source.map(lambda v: seen.add(threading.current_thread().name) or v).key_by(lambda v: v % 3).scan(
            lambda state, v: (state + 1, v), 0
        ).sink("out")
        run = ps.run(flow, on=ps.Threads(workers=threads, batch_rows=10))
        assert run.results["out"] == list(range(rows))
        return {name.split("-")[1] for name in seen}

    def test_with_one_worker(self):
        assert self.run_and_see(5, 1) == {"small"}

    def test_not_with_two(self):
        assert self.run_and_see(5, 2) == {"worker"}
