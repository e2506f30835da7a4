"""A task's shards stay in one Python worker, or leave it: the state of a key is in memory once."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps
from penstock.kernels.shards import Shard
from penstock.spark import worker_state
from penstock.spark.entry import PutAside
from penstock.spark.shuffles import threads_of
from penstock.spark.stages import CHAIN_LIMIT, LONG_CHAIN, StatePointers
from penstock.spark.worker_state import LANE, ShardCache, _Cached
from penstock.store.checkpoint import ShardIndex

from .running import Workers, make_engine

SEEN = {"k": int, "task": int, "process": int, "held": int}


def seen(count: int | None, row: Any) -> tuple[int, tuple[int, int, int, int]]:
    """Tell where a key's state is, and how many shards that process holds."""
    from pyspark import TaskContext

    context = TaskContext.get()
    task = -1 if context is None else context.partitionId()
    return (count or 0) + 1, (row.k, task, os.getpid(), len(worker_state.CACHE._shards))


@pytest.mark.spark
@pytest.mark.parametrize("tasks", [2, 5])
def test_a_task_stays_in_its_process(spark, tmp_path, tasks):
    flow = ps.Flow("places")
    rows = flow.source("in", ps.read.items([{"k": i % 97} for i in range(97 * 12)]))
    first = rows.key_by("k").scan(seen, schema=SEEN, name="first")
    first.key_by("k").scan(seen, schema=SEEN, name="second").sink("out")
    first.sink("also")
    run = ps.run(flow, on=ps.Spark(spark, tasks=tasks, epoch_rows=97), checkpoint=str(tmp_path))
    cores = spark.sparkContext.defaultParallelism
    for sink in ("out", "also"):
        assert len(run.results[sink]) == 97 * 12
        assert {row.task for row in run.results[sink]} == set(range(tasks))
        if tasks <= cores:
            places = {(row.task, row.process) for row in run.results[sink]}
            assert len(places) == tasks, "each task in one process, and no two in the same"


def test_there_are_as_many_lanes_as_tasks_that_run_at_once():
    assert [threads_of(master) for master in ("local", "local[3]", "local[2,4]")] == [1, 3, 2]
    assert threads_of("local[*]") == threads_of("local[*,4]") == os.cpu_count()


class TestWhatAWorkerDrops:
    def test_shards_that_another_task_has_now(self, tmp_path):
        """Two workers that change places each epoch hold each shard once between them, where it is large."""
        flow = ps.Flow("dropped")
        rows = [{"k": i % 50, "v": i} for i in range(400)]
        flow.source("in", ps.read.items(rows)).key_by("k").scan(lambda n, r: ((n or 0) + 1, n), name="n").sink("out")
        backend = Workers(2, lambda epoch, task: (epoch + task) % 2)
        backend.caches = [ShardCache(others=0) for _ in range(2)]
        held: list[int] = []

        def note(stats: Any) -> None:
            places = [[key[2] for key in cache._shards] for cache in backend.caches]
            held.append(len(places[0]) + len(places[1]))
            assert not set(places[0]) & set(places[1])

        engine = make_engine(flow, tmp_path, backend=backend, epoch_rows=50, tasks=2)
        engine._listener = note
        engine.run()
        assert held[:8] == [held[0]] * 8  # the last epoch has no rows
        assert ps.state.values(str(tmp_path), "n") == dict.fromkeys(range(50), 8)

    def test_a_lane_keeps_what_its_other_tasks_have(self, monkeypatch):
        monkeypatch.setenv(LANE, "1/2")
        cache = ShardCache(others=0)
        for shard in range(4):
            cache.put(("flow", "n", shard), _Cached("file", Shard(), 10))
        node, spec = _Named("n"), _Spec("flow", (1, 4), {"n": (0, 1, 2, 3)})
        worker_state.drop_others(cache, [node], spec, 3)  # type: ignore[list-item, arg-type]
        assert [key[2] for key in cache._shards] == [1, 3]

    def test_small_ones_stay_and_only_catch_up_when_they_come_back(self):
        cache = ShardCache(others=25, flows=15)
        for shard in range(6):
            cache.put(("flow", "n", shard), _Cached("file", Shard(), 10))
        for shard in range(2):
            cache.put(("other", "n", shard), _Cached("file", Shard(), 10))
        cache.put(("flow", "below", 0), _Cached("file", Shard(), 1000))
        cache.trim("flow", {"n": {0, 1}})
        assert list(cache._shards) == [
            *[("flow", "n", shard) for shard in (0, 1, 4, 5)],
            ("other", "n", 1),
            ("flow", "below", 0),
        ]
        assert cache.held("flow", "n", range(6)) == 40


class TestWhatTheCollectorLooksAt:
    @pytest.fixture(autouse=True)
    def thawed(self) -> Iterator[None]:
        yield
        gc.unfreeze()

    def test_not_all_states_after_each_task(self):
        put_aside, states, rubbish = PutAside(), {0: [0]}, _Named("in a cycle")
        for _ in range(2):
            put_aside.after_task(PutAside.MANY)
            assert not _looks_at(states)
        rubbish.itself, gone = rubbish, weakref.ref(rubbish)
        put_aside.after_task(PutAside.MANY)
        del rubbish
        for _ in range(PutAside.EVERY - 4):
            put_aside.after_task(PutAside.MANY)
        put_aside.after_task(PutAside.MANY)
        assert gone() is None, "now and then it does: cycles may be among them"

    def test_not_what_was_loaded_as_the_first_tasks_went_on(self):
        put_aside, late = PutAside(), []
        for number in range(1, 17):
            if number in (1, 3, 10):
                late.append([number])
            put_aside.after_task(0)
            if number in (1, 4, 16):
                assert not any(map(_looks_at, late))
        late.append([17])
        put_aside.after_task(0)
        assert _looks_at(late[-1]), "what comes later may go again"

    def test_at_what_became_rubbish_since(self):
        put_aside, rubbish = PutAside(), _Named("in a cycle")
        rubbish.itself, gone = rubbish, weakref.ref(rubbish)
        put_aside.after_task(0)
        del rubbish
        for _ in range(3):
            put_aside.after_task(0)
        assert gone() is None


def _looks_at(thing: object) -> bool:
    return any(each is thing for each in gc.get_objects())


class _Named:
    itself: Any = None

    def __init__(self, name: str) -> None:
        self.name = name


class _Spec:
    def __init__(self, flow_id: str, tasks: tuple[int, ...], tables: dict[str, tuple[int, ...]]) -> None:
        self.flow_id, self.tasks, self.tables, self.running = flow_id, tasks, tables, {flow_id}


class TestWhatIsWrittenWhole:
    def make(self, sizes: list[int], shards: int = 16) -> ShardIndex:
        index = ShardIndex()
        for shard in range(shards):
            for number, size in enumerate(sizes):
                index.add(f"{number:03d}", shard, number == 0, size, 1, None)
        return index

    def test_not_all_shards_in_one_epoch(self):
        index = self.make([100, *[50] * (CHAIN_LIMIT - 1)])
        whole = [StatePointers.of(index, epoch).full for epoch in range(CHAIN_LIMIT)]
        assert {len(some) for some in whole} == {16 // CHAIN_LIMIT}
        assert frozenset.union(*whole) == frozenset(range(16))

    def test_a_large_shard_waits_until_its_changes_are_as_large(self):
        index = self.make([1000, *[10] * CHAIN_LIMIT])
        assert not any(StatePointers.of(index, epoch).full for epoch in range(CHAIN_LIMIT))
        index = self.make([1000, *[10] * (LONG_CHAIN - 1)])
        assert StatePointers.of(index, 0).full == frozenset(range(16))

    def test_a_short_chain_goes_on(self):
        assert not StatePointers.of(self.make([1, 1, 1], 1), 0).full
        assert StatePointers.of(self.make([1] * CHAIN_LIMIT, 1), 0).full == {0}
