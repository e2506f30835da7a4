"""Runs of the engine at the worst moments: reads that fail, drivers that sleep through their own replacement.

The engine, its tasks, the store and the sinks are the real ones.
"""

from __future__ import annotations

import copy
import os
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.store.checkpoint import Checkpoint, Position
from penstock.store.keeper import Keeper
from penstock.store.objects import LocalStore
from penstock.store.publication import staged_name

from ..conformance.inline import InlineBackend
from ..spark.running import (
    assert_as_sequential,
    change_document,
    make_engine,
    make_rows,
    read_document,
    run_inline,
    two_sinks,
    write_files,
)


class Asleep(BaseException):
    """Stands for a process that is paused."""


@pytest.fixture
def flow(tmp_path: Path) -> ps.Flow:
    write_files(tmp_path / "data", make_rows(400), 10)
    return two_sinks(tmp_path / "data", tmp_path / "out")


def thought_dead(checkpoint: Path) -> None:
    """Let the lease be free, as if its driver had not been seen for a while."""
    change_document(sorted((checkpoint / "lease").glob("*.json"))[-1], released=True)


class Failing:
    """Fail reads of the newest entry of the log while cleaning, a number of times."""

    def __init__(self, patch: pytest.MonkeyPatch, times: int) -> None:
        self.failed, self._cleaning = 0, False
        get, clean = LocalStore._get, Keeper.clean

        def failing(store: LocalStore, name: str) -> bytes | None:
            if self._cleaning and name.startswith("epochs/") and self.failed < times:
                self.failed += 1
                raise OSError("AWS Error SLOW_DOWN during GetObject operation")
            return get(store, name)

        def cleaning(keeper: Keeper, position: Any) -> None:
            self._cleaning = True
            try:
                clean(keeper, position)
            finally:
                self._cleaning = False

        patch.setattr(LocalStore, "_get", failing)
        patch.setattr(Keeper, "clean", cleaning)


class TestFailedReads:
    def test_one_while_cleaning_is_tried_again(self, flow, tmp_path, monkeypatch):
        failing = Failing(monkeypatch, 1)
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert failing.failed == 1
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_a_store_that_stays_away_ends_the_run_and_loses_nothing(self, flow, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr("penstock.store.objects._FIRST_PAUSE", 100.0)  # longer than anyone is patient
            Failing(patch, 1)
            with pytest.raises(ps.StorageError, match=r"reading .*epochs/.*SLOW_DOWN.*start again with the same"):
                run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert ps.state.epochs(str(tmp_path / "ck"))[-1] == 10
        assert len(ps.state.values(str(tmp_path / "ck"), "running")) == 11
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    @pytest.mark.parametrize("name", ["flow.json", "lease/", "epochs/", "intents/", "_penstock/owner.json"])
    def test_nothing_that_could_not_be_read_counts_as_absent(self, flow, tmp_path, monkeypatch, name):
        """Whatever it is that a restart cannot read: it says so, and changes nothing."""
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "commit", lambda *_: (_ for _ in ()).throw(Asleep()))
            with pytest.raises(Asleep):
                run_inline(flow, tmp_path / "ck", epoch_rows=20)
        thought_dead(tmp_path / "ck")
        run_inline(flow, tmp_path / "ck", epoch_rows=300, end=False)
        kept = {path: path.read_bytes() for path in (tmp_path / "ck").rglob("*.*") if path.is_file()}
        with monkeypatch.context() as patch:
            patch.setattr("penstock.store.objects._FIRST_PAUSE", 100.0)
            get = LocalStore._get

            def failing(store: LocalStore, wanted: str) -> bytes | None:
                if wanted.startswith(name):
                    raise OSError("Input/output error")
                return get(store, wanted)

            patch.setattr(LocalStore, "_get", failing)
            if name == "intents/":
                with pytest.raises(ps.StorageError, match="reading"):
                    Checkpoint(str(tmp_path / "ck")).intent(1)
            else:
                with pytest.raises(ps.StorageError, match="reading"):
                    run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert all(path.read_bytes() == content for path, content in kept.items() if "lease" not in path.parts)
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    @pytest.mark.parametrize("directory", ["lease", "epochs", "intents", ""], ids=lambda name: name or "sink")
    def test_nothing_that_could_not_be_listed_counts_as_empty(self, flow, tmp_path, monkeypatch, directory):
        run_inline(flow, tmp_path / "ck", epoch_rows=300, end=False)
        kept = {path: path.read_bytes() for path in (tmp_path / "ck").rglob("*.*") if path.is_file()}
        with monkeypatch.context() as patch:
            patch.setattr("penstock.store.objects._FIRST_PAUSE", 100.0)
            list_names = LocalStore._list

            def failing(store: LocalStore, wanted: str) -> list[str]:
                if wanted == directory:
                    raise OSError("Input/output error")
                return list_names(store, wanted)

            patch.setattr(LocalStore, "_list", failing)
            with pytest.raises(ps.StorageError, match="listing"):
                run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert all(path.read_bytes() == content for path, content in kept.items() if "lease" not in path.parts)
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


class Waking(InlineBackend):
    """The heir's Spark: behind the job of an epoch, the driver that slept wakes up."""

    def __init__(self, epoch: int, wake: Any) -> None:
        super().__init__(2, 0)
        self._epoch, self._wake = epoch, wake

    def run(self, spec: Any, frame: Any) -> Any:
        outcome = super().run(spec, frame)
        if spec.epoch == self._epoch:
            self._wake()
        return outcome


class TestOldDrivers:
    @pytest.mark.parametrize("files", [{}, {"roll_every": 0}], ids=["rolling", "at once"])
    def test_one_that_wakes_up_before_its_commit_cannot_commit(self, flow, tmp_path, monkeypatch, files):
        """Where no files roll, nothing but the entry of the heir itself is in its way."""
        flow = two_sinks(tmp_path / "data", tmp_path / "out", **files)
        commit, woken, refused = Checkpoint.commit, [], []

        def sleeping(checkpoint: Checkpoint, position: Any, fence: int, *rest: Any) -> None:
            if position.epoch == 2 and fence == 1:
                woken.append((checkpoint, copy.deepcopy(position), fence, *rest))
                raise Asleep
            commit(checkpoint, position, fence, *rest)

        def wake() -> None:
            with pytest.raises(ps.LeaseError, match="another driver has taken over"):
                commit(*woken[0])
            refused.append(True)

        monkeypatch.setattr(Checkpoint, "commit", sleeping)
        with pytest.raises(Asleep):
            run_inline(flow, tmp_path / "ck", epoch_rows=20)
        thought_dead(tmp_path / "ck")
        run_inline(flow, tmp_path / "ck", epoch_rows=20, backend=Waking(2, wake))
        assert refused
        fences = [read_document(path)["fence"] for path in sorted((tmp_path / "ck/epochs").iterdir())]
        assert fences == sorted(fences)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_one_that_wakes_up_ages_later_cannot_commit_under_a_name_that_is_free_again(self, flow, tmp_path):
        run_inline(flow, tmp_path / "ck", epoch_rows=4, end=False)
        checkpoint = Checkpoint(str(tmp_path / "ck"))
        first = checkpoint.entries()[0]
        assert first > 2  # older entries are cleaned away
        position = checkpoint.latest()
        position.entry, position.epoch = first - 2, first - 1
        with pytest.raises(ps.LeaseError, match="another driver has taken over"):
            checkpoint.commit(position, 1, {}, False, {})
        assert checkpoint.latest().epoch == 100
        run_inline(flow, tmp_path / "ck", epoch_rows=4)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    @pytest.mark.parametrize("epoch", [11, 13, 20])
    def test_one_that_wakes_up_while_cleaning_removes_nothing_that_is_needed(self, flow, tmp_path, monkeypatch, epoch):
        clean, asleep = Keeper.clean, []

        def sleeping(keeper: Keeper, position: Any) -> None:
            if position.epoch == 10 and not asleep:
                asleep.append((keeper, copy.deepcopy(position)))
                raise Asleep
            clean(keeper, position)

        def wake() -> None:
            keeper, position = asleep[0]
            with pytest.raises(ps.LeaseError, match="another driver has taken over"):
                clean(keeper, position)
            # Even where it believes that the lease is its own: names carry the fence.
            keeper.checkpoint.clean(position, keeper.fence, lambda: None)

        monkeypatch.setattr(Keeper, "clean", sleeping)
        with pytest.raises(Asleep):
            run_inline(flow, tmp_path / "ck", epoch_rows=20)
        thought_dead(tmp_path / "ck")
        run_inline(flow, tmp_path / "ck", epoch_rows=20, backend=Waking(epoch, wake))
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    @pytest.mark.parametrize("epoch", [3, 4])
    def test_one_that_wakes_up_before_it_publishes_changes_nothing(self, flow, tmp_path, monkeypatch, epoch):
        commit, asleep = Checkpoint.commit, []

        def sleeping(checkpoint: Checkpoint, position: Any, fence: int, *rest: Any) -> None:
            commit(checkpoint, position, fence, *rest)
            if position.epoch == 2 and fence == 1:
                asleep.append(copy.deepcopy(position.staged))
                raise Asleep

        monkeypatch.setattr(Checkpoint, "commit", sleeping)
        with pytest.raises(Asleep):
            run_inline(flow, tmp_path / "ck", epoch_rows=20)
        thought_dead(tmp_path / "ck")
        from penstock.store.publication import Publication

        run_inline(
            flow, tmp_path / "ck", epoch_rows=20, backend=Waking(epoch, lambda: Publication({}).publish(asleep[0]))
        )
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_its_intent_comes_too_late_to_be_in_the_way(self, flow, tmp_path, monkeypatch):
        """The heir has looked for an intent and found none; then the old driver writes one."""
        calls: list[tuple[int, list[int]]] = []
        begin, late = Keeper.begin, []

        def sleeping(keeper: Keeper, epoch: int, body: Any) -> None:
            if epoch == 2 and keeper.fence == 1:
                late.append((keeper, epoch, body))
                raise Asleep
            if epoch == 2:
                with pytest.raises(ps.LeaseError):
                    begin(*late[0])
            begin(keeper, epoch, body)

        monkeypatch.setattr(Keeper, "begin", sleeping)
        rows = flow.source("more", ps.read.items([{"n": n} for n in range(50)])).map(lambda row: row.n, name="n")
        rows.sink("called", lambda values, epoch: calls.append((epoch, values)))
        with pytest.raises(Asleep):
            run_inline(flow, tmp_path / "ck", epoch_rows=20)
        thought_dead(tmp_path / "ck")
        run_inline(flow, tmp_path / "ck", epoch_rows=15)
        assert calls == [(1, [*range(20)]), (2, [*range(20, 35)]), (3, [*range(35, 50)])]
        assert ps.state.values(str(tmp_path / "ck"), "running")


def test_drivers_that_come_to_nothing_do_not_fill_the_log(flow, tmp_path, monkeypatch):
    run_inline(flow, tmp_path / "ck", epoch_rows=100, end=False)
    entries = len(list((tmp_path / "ck/epochs").iterdir()))
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "pending", lambda *_: (_ for _ in ()).throw(Asleep()))
        for _ in range(10):
            with pytest.raises(Asleep):
                run_inline(flow, tmp_path / "ck")
    assert len(list((tmp_path / "ck/epochs").iterdir())) == entries + 1
    run_inline(flow, tmp_path / "ck")
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


def test_a_checkpoint_of_the_first_format_goes_on(tmp_path):
    """Made when names had no fence and sinks were published before the commit: a crash has left epoch 4 between."""
    with tarfile.open(Path(__file__).with_name("format1.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in tmp_path.rglob("*.json"):
        _, text = path.read_bytes().rstrip(b"\n").split(b" ", 1)
        text = text.replace(b"/tmp/oldfix", str(tmp_path).encode())
        path.write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    assert ps.state.epochs(str(tmp_path / "ck")) == [1, 2, 3]
    assert (tmp_path / "out/scanned/epoch=000000004").exists()
    run_inline(flow, tmp_path / "ck", epoch_rows=20)
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
    assert read_document(tmp_path / "ck/flow.json")["format"] == 3


def test_what_an_older_driver_had_not_committed_is_removed(flow, tmp_path, monkeypatch):
    """Files of its tasks wait where nobody looks; crash after crash they would add up."""
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "commit", lambda *_: (_ for _ in ()).throw(Asleep()))
        with pytest.raises(Asleep):
            run_inline(flow, tmp_path / "ck", epoch_rows=20)
    waiting = [tmp_path / "out" / sink / "_penstock/staging" for sink in ("scanned", "windowed")]
    assert any(list(directory.glob("*/*.parquet")) for directory in waiting if directory.exists())
    thought_dead(tmp_path / "ck")
    run_inline(flow, tmp_path / "ck", epoch_rows=20)
    assert not [left for directory in waiting if directory.exists() for left in directory.iterdir()]
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


def test_while_an_entry_is_damaged_no_state_is_removed(flow, tmp_path):
    """Nobody knows what it names, nor what those before it do; what is older can be read again once it is restored."""
    checkpoint = tmp_path / "ck"
    damaged, whole = checkpoint / "epochs/000000019.json", b""
    engine = make_engine(flow, checkpoint, epoch_rows=20)

    def damage(stats: Any) -> None:
        nonlocal whole
        if stats.epoch == 19:
            whole = damaged.read_bytes()
            damaged.write_bytes(whole[:-20])
        if stats.epoch == 20:  # where it is cleaned
            engine.stop()

    engine._listener = damage
    engine.run()
    damaged.write_bytes(whole)
    assert ps.state.epochs(str(checkpoint)) == list(range(11, 21))
    for epoch in range(11, 21):
        assert ps.state.values(str(checkpoint), "running", epoch=epoch)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_what_a_commit_names_is_on_the_disk_before_it_and_so_is_the_commit_after_it(flow, tmp_path, monkeypatch):
    synced: set[str] = set()
    fsync, rename, append, commits = os.fsync, os.rename, Checkpoint._append, []
    outs = {f"{tmp_path}/out/{sink}" for sink in ("scanned", "windowed")}

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    def renaming(source: str, target: str) -> None:
        rename(source, target)
        synced.discard(os.path.dirname(target))

    def checking(checkpoint: Checkpoint, number: int, position: Any, *rest: Any, **options: Any) -> bool:
        state = {f"{tmp_path}/ck/state/{name}" for index in position.state.values() for name in index.files()}
        parts = {
            f"{kept['path']}/{staged_name(epoch, fence)}/{name}"
            for kept in position.waiting.values()
            for epoch, fence, files in kept["parts"]
            for name, *_ in files
        }
        rolls = [] if position.staged is None else position.staged["rolls"].values()
        parts |= {f"{roll['path']}/{roll['source']}/{name}" for roll in rolls for name in roll["names"]}
        published = {path for path in outs if list(Path(path).glob("epoch=*"))}
        places = {os.path.dirname(path) for path in parts}
        assert state | parts | places | published <= synced
        if rest[1]:  # else it only rolls files
            assert {f"{tmp_path}/ck/state", f"{tmp_path}/ck/intents"} <= synced
        commits.append(len(parts))
        synced.difference_update({f"{tmp_path}/ck/{name}" for name in ("state", "intents", "epochs")})
        done = append(checkpoint, number, position, *rest, **options)
        assert any(name.startswith(f"{tmp_path}/ck/epochs/.{number:09d}.json.") for name in synced)
        assert f"{tmp_path}/ck/epochs" in synced
        return done

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "rename", renaming)
    monkeypatch.setattr(Checkpoint, "_append", checking)
    run_inline(flow, tmp_path / "ck", epoch_rows=100)
    assert sum(commits) > 4
    assert outs <= synced  # what was published last, too


def test_what_a_sleeper_puts_under_a_number_that_is_free_again_is_no_history(tmp_path):
    kept, position = Checkpoint(str(tmp_path / "ck")), Position()
    kept.commit(position, 1, {}, True, {})
    asleep = copy.deepcopy(position)
    for _ in range(2):
        kept.commit(position, 2, {}, True, {})
    kept.store.delete("epochs/000000002.json")  # cleaned away
    with pytest.raises(ps.LeaseError, match="another driver has taken over"):
        kept.commit(asleep, 1, {}, True, {})
    assert kept.entries() == [1, 2, 3]
    assert [body["entry"] for body in kept.history(3)] == [3]
