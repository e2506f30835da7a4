"""Python workers are there before a task needs them, and while a run waits."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.lab.demo.workers import python_workers
from penstock.plan.plan import make_plan
from penstock.spark import ready
from penstock.spark.pilot import START_SECONDS, EpochPilot, UserLimits
from penstock.spark.ready import EVERY_SECONDS, GROUP, MOST_LANES, Ready
from penstock.spark.stages import Stages

from ..patience import PATIENCE
from .piloting import scanned

SEEN = {"k": int, "n": int, "task": int, "process": int}


def seen(count: int, row: Any) -> tuple[int, tuple[int, int, int, int]]:
    """Tell where a row was counted."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return count + 1, (row.k, count, -1 if context is None else context.partitionId(), os.getpid())


def following(data: Path) -> ps.Flow:
    """Build a flow over files that go on coming."""
    data.mkdir(exist_ok=True)
    flow = ps.Flow("ready")
    rows = flow.source("in", ps.read.parquet(str(data), schema={"k": int}, follow=True))
    rows.key_by("k").scan(seen, 0, schema=SEEN, name="seen").sink("out")
    return flow


def put(data: Path, number: int) -> None:
    pq.write_table(pa.table({"k": list(range(97))}), data / ".next")
    (data / ".next").rename(data / f"{number}.parquet")


def wait_for(what: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.05)
    return found


def end_workers() -> None:
    """End all workers that other tests have left, as Spark does a minute after their last task."""
    for pid in python_workers():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not python_workers())


def processes(rows: list[Any]) -> dict[int, int]:
    return {row.task: row.process for row in rows}


@pytest.mark.spark
def test_a_change_of_tasks_finds_its_workers(spark, tmp_path):
    end_workers()
    flow, done = following(tmp_path / "data"), threading.Semaphore(0)
    put(tmp_path / "data", 1)
    run = ps.start(flow, on=ps.Spark(spark), checkpoint=str(tmp_path / "ck"), on_epoch=lambda stats: done.release())
    try:
        assert done.acquire(timeout=PATIENCE)
        first = list(run.results["out"])
        assert len(set(processes(first).values())) == 1, "so few rows are one task's"
        there = set(wait_for(lambda: len(found := python_workers()) == 2 and found))
        run.set_tasks(2)
        put(tmp_path / "data", 2)
        assert done.acquire(timeout=PATIENCE)
        second = processes(run.results["out"][len(first) :])
        assert len(set(second.values())) == 2
        assert set(second.values()) == there, "both were there before the epoch"
        assert set(python_workers()) == there, "and there are no others"
    finally:
        run.stop()
        run.await_end()
    assert [row.n for row in run.results["out"]] == [0] * 97 + [1] * 97


@pytest.mark.spark
def test_a_run_that_waits_gives_its_workers_tasks_of_nothing(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(ready, "EVERY_SECONDS", 0.05)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs(GROUP))
    run = ps.start(following(tmp_path / "data"), on=ps.Spark(spark), checkpoint=str(tmp_path / "ck"))
    try:
        wait_for(lambda: len(jobs(GROUP)) > before + 3)
        there = set(python_workers())
        put(tmp_path / "data", 1)
        wait_for(lambda: len(run.results["out"]) == 97)
        assert set(processes(run.results["out"]).values()) <= there
    finally:
        run.stop()
        run.await_end()
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-ready"]


@pytest.mark.spark
@pytest.mark.slow
def test_workers_outlive_a_pause_of_more_than_a_minute(spark, tmp_path):
    """Spark ends a worker a minute after its last task, and looks every ten seconds."""
    run = ps.start(following(tmp_path / "data"), on=ps.Spark(spark, tasks=2), checkpoint=str(tmp_path / "ck"))
    try:
        put(tmp_path / "data", 1)
        wait_for(lambda: len(run.results["out"]) == 97)
        time.sleep(75)
        put(tmp_path / "data", 2)
        wait_for(lambda: len(run.results["out"]) == 2 * 97)
        first, second = (processes(run.results["out"][start : start + 97]) for start in (0, 97))
        assert first == second
    finally:
        run.stop()
        run.await_end()


@pytest.mark.spark
def test_a_run_that_ends_with_its_first_epoch_starts_nothing(spark, tmp_path):
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs(GROUP))
    flow = ps.Flow("short")
    flow.source("in", [{"k": 1}, {"k": 2}]).key_by("k").scan(seen, 0, schema=SEEN).sink("out")
    assert len(ps.run(flow, on=ps.Spark(spark)).results["out"]) == 2
    assert len(jobs(GROUP)) == before


class TestWhoIsWoken:
    @pytest.fixture
    def now(self) -> list[float]:
        return [100.0]

    def ready(self, now: list[float], lanes: int = 3) -> Ready:
        return Ready(MagicMock(master="local[3]", pythonExec=sys.executable), lanes, lambda: now[0])

    def test_all_lanes_at_first_but_not_too_many(self, now):
        assert self.ready(now).due() == ([0, 1, 2], 0.0)
        assert len(self.ready(now, 100).due()[0]) == MOST_LANES

    def test_those_that_had_no_task_for_long(self, now):
        lanes = self.ready(now)
        with lanes.in_use({0, 1, 2}):
            assert lanes.due() == ([], EVERY_SECONDS)
        assert lanes.due() == ([], EVERY_SECONDS)
        now[0] += EVERY_SECONDS - 1
        with lanes.in_use({0}):
            pass
        now[0] += 1
        assert lanes.due() == ([1, 2], 0.0)
        with lanes.in_use({1}):
            assert lanes.due()[0] == [2], "not one that has a task"

    def test_those_that_the_first_epoch_did_not_use(self, now):
        woken: list[tuple[list[int], bool, int]] = []
        lanes = self.ready(now)
        with lanes.in_use({0}):
            assert lanes.starting == 0, "nobody starts them"
        try:
            lanes.keep(lambda some, first: woken.append((some, first, lanes.starting)))
            wait_for(lambda: woken)
        finally:
            lanes.close()
        assert woken == [([1, 2], True, 2)]
        assert lanes.starting == 0

    def test_an_epoch_waits_for_those_of_its_lanes_and_for_no_others(self, now):
        lanes, going, go = self.ready(now), threading.Event(), threading.Event()

        def wake(some: list[int], first: bool) -> None:
            going.set()
            go.wait(PATIENCE)

        try:
            with lanes.in_use({0}):
                lanes.keep(wake)
                assert going.wait(PATIENCE)
            with lanes.in_use({0}):
                assert not go.is_set()
            waiting = threading.Thread(target=lambda: lanes.in_use({1}).__enter__())
            waiting.start()
            waiting.join(0.1)
            assert waiting.is_alive()
            go.set()
            waiting.join(PATIENCE)
            assert not waiting.is_alive()
        finally:
            go.set()
            lanes.close()

    def test_one_failure_does_not_end_it(self, now):
        woken: list[list[int]] = []

        def wake(some: list[int], first: bool) -> None:
            woken.append(some)
            now[0] += 2 * EVERY_SECONDS
            raise OSError("Spark is busy")

        lanes = self.ready(now)
        try:
            lanes.keep(wake)
            wait_for(lambda: woken)
            with lanes.in_use(()):
                now[0] += 2 * EVERY_SECONDS
            wait_for(lambda: len(woken) > 1)
        finally:
            lanes.close()


class TestWhileWorkersStart:
    @pytest.fixture
    def pilot(self) -> EpochPilot:
        return EpochPilot(Stages(make_plan(scanned())), UserLimits(), cores=2, executors=None, tables={}, epoch=0)

    def choose(self, pilot: EpochPilot, seconds: float, ready: int) -> int:
        rows = int(seconds / pilot._one_task.state.row_seconds)
        return pilot.choose(UserLimits(), rows, 2, 1, at=1.0, ready=ready).tasks[1]

    def test_a_short_epoch_does_with_those_that_are_there(self, pilot):
        assert self.choose(pilot, START_SECONDS / 2, ready=1) == 1

    def test_a_long_one_waits_for_the_others(self, pilot):
        assert self.choose(pilot, START_SECONDS * 2, ready=1) == 2

    def test_once_they_are_there_it_is_as_ever(self, pilot):
        assert self.choose(pilot, START_SECONDS / 2, ready=2) == 2
