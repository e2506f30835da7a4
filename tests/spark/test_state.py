"""State on disk and in workers: it is found again, kept as long as is promised, and damage shows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock as ps
from penstock.rows.keys import SHARDS, hash_value
from penstock.spark import worker_state
from penstock.spark.stages import CHAIN_LIMIT
from penstock.store import state_files as deltas
from penstock.store.checkpoint import RETAIN, Checkpoint
from penstock.store.keeper import Keeper
from penstock.store.objects import LocalStore

from .running import (
    Crash,
    Workers,
    assert_as_sequential,
    make_engine,
    make_rows,
    run_inline,
    sequential,
    two_sinks,
    write_files,
)


def last_value(state: Any, row: Any) -> tuple[Any, Any]:
    return row.v, (row.k, state, row.v)


def keyed(rows: list[Any], function: Any = last_value) -> ps.Flow:
    flow = ps.Flow("keyed")
    flow.source("in", ps.read.items(rows)).key_by("k").scan(function, name="last").sink("out")
    return flow


def same_shard(count: int) -> list[int]:
    """Return keys that share a shard."""
    return [key for key in range(100_000) if hash_value(key) % SHARDS == 0][:count]


class TestWorkerCache:
    def test_a_job_that_was_lost_after_it_was_done_counts_once(self, tmp_path):
        write_files(tmp_path / "data", make_rows(60), 60)
        flow = two_sinks(tmp_path / "data", tmp_path / "out")
        backend = Workers(1, lambda epoch, task: 0, lost=[1, 3, 4])
        stats: list[Any] = []
        engine = make_engine(flow, tmp_path / "ck", backend=backend, epoch_rows=10)
        engine._listener = stats.append
        engine.run()
        assert [s.attempts for s in stats[:5]] == [2, 1, 2, 2, 1]
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_a_retried_task_writes_the_same_file_whatever_its_worker_knew(self, tmp_path):
        names = []
        write_files(tmp_path / "data", make_rows(200), 200)
        for lost in ([], range(1, 20, 3)):
            work = tmp_path / f"{len(lost)} lost"
            backend = Workers(3, lambda epoch, task: epoch % 3, lost=lost)
            run_inline(two_sinks(tmp_path / "data", work / "out"), work / "ck", backend=backend, epoch_rows=9)
            names.append(sorted(path.name for path in (work / "ck/state").iterdir()))
        assert len(names[0]) > 20
        assert names[0] == names[1]

    @pytest.mark.parametrize("seed", range(5))
    def test_workers_catch_up_from_what_they_last_saw(self, tmp_path, seed):
        write_files(tmp_path / "data", make_rows(200), 200)
        flow = two_sinks(tmp_path / "data", tmp_path / "out")
        draw = random.Random(seed)
        backend = Workers(3, lambda epoch, task: draw.randrange(3), lost=draw.sample(range(1, 20), 5))
        run_inline(flow, tmp_path / "ck", backend=backend, epoch_rows=9, tasks=3)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_a_worker_reads_only_what_it_has_missed(self, tmp_path, monkeypatch):
        read: list[tuple[int, str]] = []
        epochs: list[int] = []
        original = deltas.read_file

        def counting(root: str, name: str) -> Any:
            read.append((len(epochs), name))
            return original(root, name)

        monkeypatch.setattr(deltas, "read_file", counting)
        keys = same_shard(2)
        rows = [{"k": keys[i % 2], "v": i} for i in range(6)]
        backend = Workers(2, lambda epoch, task: epoch in (4, 6))
        engine = make_engine(keyed(rows), tmp_path, backend=backend, epoch_rows=1, tasks=1)
        engine._listener = lambda stats: epochs.append(stats.epoch)
        engine.run()
        per_epoch = [sum(done == epoch - 1 for done, _ in read) for epoch in range(1, 7)]
        # Worker 1 comes new to epoch 4 and misses 3 files; worker 0 then misses that of epoch 4, worker 1 that of 5.
        assert per_epoch == [0, 0, 0, 3, 1, 1]

    def test_a_state_that_returns_to_an_earlier_value_is_not_taken_for_the_earlier_one(self, tmp_path):
        one, two = same_shard(2)
        values = [(one, 0), (one, 1), (two, 9), (one, 2), (one, 1), (two, 10)]
        rows = [{"k": k, "v": v} for k, v in values]
        backend = Workers(2, lambda epoch, task: epoch in (3, 4, 5))
        engine = run_inline(keyed(rows), tmp_path, backend=backend, tasks=1, epoch_rows=1)
        assert engine.outputs is not None
        assert engine.outputs.results["out"][-1] == (two, 9, 10)

    def test_what_earlier_runs_left_is_let_go(self, tmp_path):
        (cache,) = (backend := Workers(1, lambda epoch, task: 0)).caches
        rows = [{"k": n, "v": n} for n in range(50)]
        for run in ("first", "second", "third"):
            run_inline(keyed(rows), tmp_path / run, backend=backend, epoch_rows=20)
            assert len({flow for flow, _, _ in cache._shards}) == 1
            assert len(cache._shards) <= 50


class TestDamage:
    @pytest.fixture
    def broken(self, tmp_path: Path) -> tuple[ps.Flow, Path]:
        """Run some epochs, and return a state file that the next one will need."""
        flow = keyed([{"k": i % 3, "v": i} for i in range(9)])
        engine = make_engine(flow, tmp_path / "ck", epoch_rows=6, tasks=1)
        engine._listener = lambda stats: engine.stop()
        engine.run()
        worker_state.CACHE._shards.clear()
        (path,) = (tmp_path / "ck/state").glob("*.state")
        return flow, path

    @pytest.mark.parametrize("damage", ["truncated", "one bit", "missing", "empty"])
    def test_it_is_found_and_named(self, broken, tmp_path, damage):
        flow, path = broken
        content = path.read_bytes()
        match damage:
            case "truncated":
                path.write_bytes(content[:-1])
            case "one bit":
                path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
            case "missing":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
        word = "missing" if damage == "missing" else "damaged"
        for read in (lambda: run_inline(flow, tmp_path / "ck"), lambda: ps.state.read(str(tmp_path / "ck"), "last")):
            with pytest.raises(ps.CheckpointError, match=f"{path} is {word}.*restore it"):
                read()
        path.write_bytes(content)
        run_inline(flow, tmp_path / "ck")
        assert ps.state.values(str(tmp_path / "ck"), "last") == {0: 6, 1: 7, 2: 8}

    def test_every_flipped_bit_shows(self, broken):
        _, path = broken
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
            with pytest.raises(ps.CheckpointError, match="damaged"):
                deltas.read_file(str(path.parent), path.name)


class TestChains:
    def test_they_are_bounded_and_written_whole_in_between(self, tmp_path):
        # Two keys: a shard of which more than half has changed is written whole anyway.
        still, busy = same_shard(2)
        rows = [{"k": busy if i else still, "v": i} for i in range(3 * CHAIN_LIMIT)]
        lengths: list[int] = []
        engine = make_engine(keyed(rows), tmp_path, epoch_rows=1, tasks=1)
        engine._listener = lambda stats: lengths.append(len(engine._position.state["last"].chains[0]))
        engine.run()
        grow = list(range(1, CHAIN_LIMIT + 1))
        assert lengths[: 3 * CHAIN_LIMIT] == [*grow, *grow, *grow]

    def test_a_delta_holds_what_changed_and_not_the_shard(self, tmp_path):
        keys = same_shard(60)
        rows = [{"k": key, "v": "x" * 1000} for key in keys] + [{"k": keys[0], "v": "y"}]
        sizes: list[int] = []
        engine = make_engine(keyed(rows), tmp_path, epoch_rows=60, tasks=1)
        engine._listener = lambda stats: sizes.append(engine._position.state["last"].sizes[0][-1])
        engine.run()
        assert sizes[0] > 60_000
        assert sizes[1] < 100

    def test_the_bytes_on_disk_and_the_keys_are_measured(self, tmp_path):
        rows = [{"k": i % 50, "v": i} for i in range(200)]
        stats: list[Any] = []
        engine = make_engine(keyed(rows), tmp_path, epoch_rows=100, tasks=3)
        engine._listener = stats.append
        engine.run()
        (found,) = ps.state.operators(str(tmp_path))
        assert (found.operator, found.keys) == ("last", 50)
        assert stats[-1].operators["last"].state_bytes == stats[-1].state_bytes == found.bytes
        blocks = sum(path.stat().st_size for path in (tmp_path / "state").iterdir())
        assert 0 < found.bytes < blocks  # the rest are headers, and blocks that newer ones replace


class TestRetention:
    def test_the_state_of_the_last_epochs_can_be_read_and_no_more_is_kept(self, tmp_path):
        rows = [{"k": i % 7, "v": i} for i in range(120)]
        run_inline(keyed(rows), tmp_path, epoch_rows=1, end=False)
        readable = ps.state.epochs(str(tmp_path))
        assert readable == list(range(120 - RETAIN + 1, 121))
        for epoch in readable:
            expected = {row["k"]: row["v"] for row in rows[:epoch]}
            assert ps.state.values(str(tmp_path), "last", epoch) == expected
        for epoch in (1, 120 - RETAIN, 121):
            with pytest.raises(ps.CheckpointError, match=f"epoch {epoch} is not kept .* the epochs 111 to 120"):
                ps.state.values(str(tmp_path), "last", epoch)
        # 7 shards with a chain each, of which the last epochs' manifests name some more.
        assert len(list((tmp_path / "state").iterdir())) <= 7 * CHAIN_LIMIT + RETAIN
        assert len(list((tmp_path / "intents").iterdir())) <= 2 * RETAIN

    def test_files_are_not_read_again_after_a_hundred_epochs_and_restarts(self, tmp_path):
        write_files(tmp_path / "data", make_rows(250), 2)
        flow = two_sinks(tmp_path / "data", tmp_path / "out")
        for stop_at in (30, 60, 119):
            engine = make_engine(flow, tmp_path / "ck", epoch_rows=2)
            engine._listener = lambda stats, engine=engine, at=stop_at: engine.stop() if stats.epoch == at else None
            engine.run()
        assert Checkpoint(str(tmp_path / "ck")).entries()[0] > 50  # older manifests are gone
        run_inline(flow, tmp_path / "ck", epoch_rows=2)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_a_crash_while_cleaning_loses_nothing(self, tmp_path, monkeypatch):
        write_files(tmp_path / "data", make_rows(70), 70)
        flow = two_sinks(tmp_path / "data", tmp_path / "out")
        original, clean = LocalStore._delete, Keeper.clean
        for crash_at in range(1, 12):
            removed: list[str] = []

            def crashing(store: Any, name: str, removed: list[str] = removed, at: int = crash_at) -> None:
                removed.append(name)
                if len(removed) == at:
                    raise Crash
                original(store, name)

            def cleaning(keeper: Keeper, position: Any, crashing: Any = crashing) -> None:
                with monkeypatch.context() as patch:
                    patch.setattr(LocalStore, "_delete", crashing)
                    clean(keeper, position)

            monkeypatch.setattr(Keeper, "clean", cleaning)
            try:
                run_inline(flow, tmp_path / "ck", epoch_rows=1)
                break
            except Crash:
                pass
        assert crash_at > 4
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


class Visit(NamedTuple):
    page: str
    seconds: float


class TestReader:
    def test_an_arrow_table_by_key(self, tmp_path):
        run_inline(keyed([{"k": k, "v": v} for k, v in [(3, 1.5), (1, 2.5), (3, 4.5)]]), tmp_path)
        assert ps.state.read(str(tmp_path), "last").to_pydict() == {"key": [1, 3], "value": [2.5, 4.5]}

    def test_records_become_structs(self, tmp_path):
        flow = ps.Flow("visits")
        rows = flow.source("in", ps.read.items([{"k": "a", "p": "x"}, {"k": "b", "p": "y"}]))
        rows.key_by("k").scan(lambda state, row: (Visit(row.p, 1.0), row.k), name="visits").sink("out")
        run_inline(flow, tmp_path)
        assert ps.state.read(str(tmp_path), "visits").column("value").to_pylist() == [
            {"page": "x", "seconds": 1.0},
            {"page": "y", "seconds": 1.0},
        ]

    def test_the_state_of_a_whole_stream_and_of_windows(self, tmp_path):
        rows = [{"t": t, "k": t % 2} for t in range(25)]
        flow = ps.Flow("open")
        stream = flow.source("in", ps.read.items(rows), time="t")
        stream.reduce(lambda a, b: b, name="newest").sink("one")
        stream.key_by("k").window(10).count(name="counts").sink("two")
        run_inline(flow, tmp_path, end=False)
        assert [row.t for row in ps.state.values(str(tmp_path), "newest").values()] == [24]
        windows = ps.state.values(str(tmp_path), "counts")
        assert {key: list(open_) for key, open_ in windows.items()} == {0: [20], 1: [20]}
        expected = sequential(flow, end=False).state("counts")
        assert {k: v[20][0] for k, v in windows.items()} == {k: v[20][0] for k, v in expected.items()}

    def test_forgotten_keys_are_gone(self, tmp_path):
        def forget_nines(state: Any, row: Any) -> Any:
            return (None if row.v == 9 else row.v), row.v

        rows = [{"k": i, "v": i} for i in range(4)] + [{"k": 2, "v": 9}]
        for size in (1, 5):
            run_inline(keyed(rows, forget_nines), tmp_path / str(size), epoch_rows=size)
            assert ps.state.values(str(tmp_path / str(size)), "last") == {0: 0, 1: 1, 3: 3}

    def test_an_operator_that_is_not_there_is_named_with_those_that_are(self, tmp_path):
        run_inline(keyed([{"k": 1, "v": 1}]), tmp_path)
        with pytest.raises(ps.CheckpointError, match=r"no stateful operator 'lost' at epoch .*; it has last"):
            ps.state.read(str(tmp_path), "lost")

    def test_a_place_without_checkpoint_is_named(self, tmp_path):
        with pytest.raises(ps.CheckpointError, match=f"{tmp_path}/none is no checkpoint"):
            ps.state.read(str(tmp_path / "none"), "any")
