"""Entries of the log are damaged after a crash in the middle of a publication: what is visible tells the rest."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.spark.outputs import Outputs
from penstock.store import lease as leases
from penstock.store.checkpoint import Checkpoint
from penstock.store.objects import LocalStore

from ..patience import PATIENCE
from ..spark.running import Crash, make_engine, make_rows, run_inline, write_files

ROWS = 104
FILES: dict[str, dict[str, Any]] = {
    "at the end": {},
    "by size": {"file_size": 4000},
    "each epoch": {"roll_every": 0},
    "partitions": {"partition_by": "k", "file_size": 60_000},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", make_rows(ROWS), 13)
    return tmp_path / "data"


def plain(data: Path, out: Path, **files: Any) -> ps.Flow:
    flow = ps.Flow("plain")
    flow.source("rows", ps.read.parquet(str(data))).sink("out", ps.write.parquet(str(out), **files))
    return flow


def damage(checkpoint: Path, entries: int) -> None:
    for path in sorted((checkpoint / "epochs").iterdir())[-entries:]:
        path.write_bytes(path.read_bytes()[:-20])


def crash_at_move(patch: pytest.MonkeyPatch, due: int) -> None:
    """Let a run end before a file of a sink gets its name, the so-many-th time."""
    original, moves = LocalStore._move, 0

    def move(store: LocalStore, source: str, target: str) -> bool:
        nonlocal moves
        moves += 1
        if moves == due:
            raise Crash
        return original(store, source, target)

    patch.setattr(leases, "_exists", lambda pid: False)
    patch.setattr(LocalStore, "_move", move)


def run_until_crash(monkeypatch: pytest.MonkeyPatch, due: int, flow: ps.Flow, checkpoint: Path) -> None:
    with monkeypatch.context() as patch:
        crash_at_move(patch, due)
        with pytest.raises(Crash):
            run_inline(flow, checkpoint, epoch_rows=20)


def numbers(out: Path, by_key: bool) -> list[int]:
    found = [row["n"] for row in ps.read.sink(str(out))]
    return sorted(found) if by_key else found


@pytest.mark.parametrize("renames", [True, False], ids=["renames", "copies"])
@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("due", [1, 2, 3, 5, 8])
def test_a_crash_between_two_files(data, tmp_path, monkeypatch, renames, files, due):
    """Some files of a roll are visible and the entry that names the others cannot be read."""
    monkeypatch.setattr(LocalStore, "renames", renames)
    flow = plain(data, tmp_path / "out", **FILES[files])
    draw = random.Random(due)
    for _ in range(6):
        with monkeypatch.context() as patch:
            crash_at_move(patch, due)
            try:
                run_inline(flow, tmp_path / "ck", epoch_rows=draw.randint(5, 30), tasks=2)
            except Crash:
                damage(tmp_path / "ck", 1)
    run_inline(flow, tmp_path / "ck", epoch_rows=10)
    assert numbers(tmp_path / "out", files == "partitions") == list(range(ROWS))


@pytest.mark.parametrize("renamed", [0, 1, 2, 3], ids=lambda count: f"{count} are renamed")
def test_a_crash_among_large_parts(tmp_path, monkeypatch, renamed):
    """Large parts are not where they waited, and not visible yet, and the entry that tells cannot be read."""
    draw = random.Random(1)
    rows = [{"n": n, "text": draw.randbytes(400 if n // 10 in (1, 4) else 1).hex()} for n in range(60)]
    write_files(tmp_path / "data", rows, 60)
    flow = plain(tmp_path / "data", tmp_path / "out", file_size=9000)
    rename, sources = LocalStore._rename, list[str]()

    def some(store: LocalStore, source: str, target: str) -> bool:
        sources.append(source)
        if len(sources) > renamed:
            raise Crash
        return rename(store, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(leases, "_exists", lambda pid: False)
        patch.setattr(LocalStore, "_rename", some)
        with pytest.raises(Crash):
            run_inline(flow, tmp_path / "ck", epoch_rows=10)
    assert ["-roll." in source for source in sources] == [False, False, False, True][: renamed + 1]
    damage(tmp_path / "ck", 1)
    run_inline(flow, tmp_path / "ck", epoch_rows=10)
    assert numbers(tmp_path / "out", False) == list(range(60))


@pytest.mark.parametrize("files", FILES)
def test_two_epochs_cannot_be_run_again(data, tmp_path, files):
    """Only what the next epoch was to read is known for sure: rows of later ones would come twice, or never."""
    flow = plain(data, tmp_path / "out", **FILES[files])
    engine = make_engine(flow, tmp_path / "ck", epoch_rows=10)
    engine._listener = lambda stats: engine.stop() if stats.epoch == 4 else None
    engine.run()
    damage(tmp_path / "ck", 2 if files == "each epoch" else 3)
    with pytest.raises(ps.CheckpointError, match=r"has rows up to epoch 4, newer than the checkpoint, .* at epoch 2"):
        run_inline(flow, tmp_path / "ck", epoch_rows=10)


@pytest.mark.parametrize("files", FILES)
def test_rows_of_another_run(data, tmp_path, files):
    """Partitions are rows, too."""
    run_inline(plain(data, tmp_path / "out", **FILES[files]), tmp_path / "ck")
    with pytest.raises(ps.CheckpointError, match=r"holds the rows of another run \(flow 'plain'\)"):
        run_inline(plain(data, tmp_path / "out", **FILES[files]), tmp_path / "other")


@pytest.mark.parametrize("together", [False, True], ids=["while rows wait", "at one moment"])
def test_a_directory_of_a_run_that_is_at_work(data, tmp_path, monkeypatch, together):
    """No row is visible yet, and parts of both runs would have the same names."""
    out, accepted, committed, refused = tmp_path / "out", threading.Event(), threading.Event(), list[str]()
    write_files(tmp_path / "other", make_rows(30), 13)
    accept = Outputs.accept

    def accept_early(outputs: Outputs, *given: Any) -> None:
        accept(outputs, *given)
        if threading.current_thread() is second:
            accepted.set()
            assert committed.wait(PATIENCE)

    def run_another() -> None:
        with pytest.raises(ps.CheckpointError) as caught:
            run_inline(plain(tmp_path / "other", out), tmp_path / "ck of another", epoch_rows=20)
        refused.append(str(caught.value))

    def first_is_done(_: Any) -> None:
        if not committed.is_set():
            committed.set()
            if not together:
                second.start()
            second.join(PATIENCE)

    second = threading.Thread(target=run_another)
    monkeypatch.setattr(Outputs, "accept", accept_early)
    if together:
        second.start()
        assert accepted.wait(PATIENCE)
    engine = make_engine(plain(data, out), tmp_path / "ck", epoch_rows=20)
    engine._listener = first_is_done
    engine.run()
    assert numbers(out, False) == list(range(ROWS))
    (message,) = refused
    assert f"{out} is the directory of a run that is at work (flow 'plain', process {os.getpid()} on " in message


def test_a_file_that_is_called_as_a_partition_would_be(data, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/k=1").write_text("a stranger's")
    with pytest.raises(ps.FlowError, match="holds files that no run of Penstock has written"):
        run_inline(plain(data, tmp_path / "out"), tmp_path / "ck")


@pytest.mark.parametrize("due", [1, 5], ids=["nothing was visible", "what was visible is removed"])
def test_a_note_of_another_run(data, tmp_path, monkeypatch, due):
    """A directory that has no rows is anybody's, whatever a run that crashed there was about to publish."""
    out = tmp_path / "out"
    run_until_crash(monkeypatch, due, plain(data, out, **FILES["partitions"]), tmp_path / "ck")
    assert list((out / "_penstock").rglob("_roll.json"))
    for partition in out.glob("k=*"):
        shutil.rmtree(partition)
    write_files(tmp_path / "new", make_rows(30), 13)
    run_inline(plain(tmp_path / "new", out, **FILES["partitions"]), tmp_path / "other", epoch_rows=7)
    assert numbers(out, True) == list(range(30))


def test_a_damaged_note_of_what_is_visible(data, tmp_path, monkeypatch):
    """Nobody needs it."""
    flow = plain(data, tmp_path / "out", partition_by="k", roll_every=0)
    run_until_crash(monkeypatch, 15, flow, tmp_path / "ck")  # in the second epoch: the first note is not removed yet
    note = tmp_path / "out/_penstock/staging/epoch=000000001-roll.1/_roll.json"
    note.write_bytes(note.read_bytes()[:-20])
    run_inline(flow, tmp_path / "ck", epoch_rows=20)
    assert numbers(tmp_path / "out", True) == list(range(ROWS))


def test_names_are_on_the_disk_before_nothing_waits_for_them(data, tmp_path, monkeypatch):
    """The entry after a damaged one says that no rows wait: by then the files that have them must last."""
    flow = plain(data, tmp_path / "out", **FILES["partitions"])
    run_until_crash(monkeypatch, 5, flow, tmp_path / "ck")
    damage(tmp_path / "ck", 1)
    synced, before = set[str](), list[set[str]]()
    sync, commit = LocalStore.sync, Checkpoint.commit

    def noted_sync(store: LocalStore, directory: str) -> None:
        sync(store, directory)
        synced.add(store.path(directory))

    def noted_commit(*given: Any) -> None:
        before.append(set(synced))
        commit(*given)

    monkeypatch.setattr(LocalStore, "sync", noted_sync)
    monkeypatch.setattr(Checkpoint, "commit", noted_commit)
    run_inline(flow, tmp_path / "ck", epoch_rows=20)
    out = tmp_path / "out"
    assert before[0] >= {str(out), *(str(path) for path in out.glob("k=*"))}
    assert numbers(out, True) == list(range(ROWS))
