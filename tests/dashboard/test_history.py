"""The history of a run, in memory and on disk: bounded, whole after a crash, and replayable."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pyarrow import fs

from penstock.clock import as_real
from penstock.dashboard import history
from penstock.dashboard.history import Bounds, History, HistoryFile, Timed, read_history, replayable
from penstock.dashboard.recorder import wall_time
from penstock.elastic.decisions import Decision, Journal, Recorded, replay, to_json
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics
from penstock.errors import PenstockError, StorageError

GRAPH = {"flow": "f", "engine": "threads", "started": 1.0, "graph": {"nodes": [], "edges": []}}


def decided(moments: int, first: int = 0) -> list[Timed]:
    """Return what two controllers decided, with a chapter begun every so often."""
    journal, known, lines = Journal(), 0, []
    journal.begin("threads", ThreadLevel(high=8, initial=1), first, float(first))
    journal.begin("others", ThreadLevel(high=4, initial=1), first, float(first))
    for moment in range(first + 1, first + moments + 1):
        for name in ("threads", "others"):
            journal.step(name, ThreadStatistics(1000.0 * (moment % 5 + 1), 0.3, 0), moment, float(moment))
        found, known = journal.decisions_since(known)
        lines += [(float(moment), line) for line in found]
    return lines


@pytest.fixture(autouse=True)
def short_chapters(monkeypatch):
    """Begin a chapter every 10 moments: the logs here are short, too."""
    monkeypatch.setattr("penstock.elastic.decisions.KEPT", 10)


def add(writer: History, at: float, filler: int = 100) -> None:
    sample = {"at": at, "totals": {"rate": 1.0}, "filler": "x" * filler}
    writer.add(sample, json.dumps(sample).encode())


def write(path: str, at: float, lines: list[Timed], limits: Bounds = history.DISK) -> None:
    writer = HistoryFile(path, limits)
    writer.describe(GRAPH)
    add(writer, at)
    for first in range(0, len(lines), 7):
        writer.decide(lines[first : first + 7])
    writer.close()


def times(found: History) -> list[float]:
    return [each["t"] for each in found.points()]


def test_what_is_written_is_read_and_replayed_and_a_second_run_goes_on(tmp_path):
    first, second = decided(20), decided(30, first=1000)
    write(str(tmp_path / "history"), 1, first)
    write(f"file://{tmp_path}/history", 2, second)
    found = read_history(str(tmp_path))
    assert found.about()["flow"] == "f"
    assert times(found) == [1, 2]
    assert json.loads(found.sample_at(1.4))["at"] == 1
    assert found.decisions() == [*first, *second]
    assert found.total + found.held == len(first) + len(second)
    result = replay(replayable(found.decisions()))
    assert result.same
    assert result.steps == 2 * (20 + 30)
    assert result.actions > 0


def test_the_newest_part_of_a_long_log_is_kept_and_replayed_from_its_first_chapter_on(tmp_path):
    lines, most = decided(400), 80_000
    write(str(tmp_path), 1, lines, Bounds(decision_bytes=most))
    found = read_history(str(tmp_path))
    kept = found.decisions()
    assert found.dropped > 0
    assert kept == lines[found.dropped :]
    assert most // 2 - 1000 < sum(len(to_json(line)) for _, line in kept) <= most
    # Less than a chapter, which has at most two lines a moment here, waits for its start.
    assert len(kept) - len(replayable(kept)) <= 2 * 10
    assert replay(replayable(kept)).same
    assert replay(replayable(kept)).steps > 40


def test_samples_are_bounded_by_number_and_by_bytes():
    few = History(limits=Bounds(samples=100))
    for at in range(1000):
        add(few, at)
    kept = times(few)
    assert len(kept) <= 100
    assert kept[0] == 0
    assert kept[-25:] == list(range(975, 1000))
    small = History(limits=Bounds(sample_bytes=5000))
    for at in range(1000):
        add(small, at)
    assert len(times(small)) > 240  # the timeline is small, and stays
    found = {small.sample_at(at) for at in range(1000)}
    assert sum(map(len, found)) <= 5000
    assert small.latest()["at"] == 999


def test_a_process_that_is_killed_loses_only_what_it_was_writing(tmp_path):
    code = f"""if True:
        import os, signal
        from penstock.dashboard.history import HistoryFile
        writer = HistoryFile({str(tmp_path)!r})
        writer.describe({GRAPH!r})
        for at in range(50):
            writer.add({{"at": at, "totals": {{"rate": 1.0}}}}, b"{{}}")
        writer._db.execute("BEGIN IMMEDIATE")
        writer._db.execute("DELETE FROM samples")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert times(read_history(str(tmp_path))) == list(range(50))
    write(str(tmp_path), 50, [])
    assert times(read_history(str(tmp_path))) == list(range(51))


def test_a_damaged_history_is_told_and_the_next_run_begins_anew(tmp_path):
    (tmp_path / "history.sqlite").write_bytes(b"nothing that SQLite wrote" * 100)
    with pytest.raises(PenstockError, match="cannot be read"):
        read_history(str(tmp_path))
    write(str(tmp_path), 1, [])
    assert times(read_history(str(tmp_path))) == [1]
    assert (tmp_path / "history.sqlite.damaged").exists()


def test_a_history_that_is_being_written_can_be_read(tmp_path):
    writer = HistoryFile(str(tmp_path))
    writer.describe(GRAPH)
    add(writer, 1)
    assert times(read_history(str(tmp_path))) == [1]
    add(writer, 2)
    assert times(read_history(str(tmp_path))) == [1, 2]


@pytest.fixture
def store(monkeypatch) -> Any:
    made: Any = fs._MockFileSystem()
    monkeypatch.setattr(history, "locate", lambda path: (made, path.split("://", 1)[1]))
    monkeypatch.setattr(history, "exists", lambda path: made.get_file_info(path.split("://", 1)[1]).is_file)
    return made


def test_an_object_store_gets_copies(store):
    for at in (1, 2):
        write("bucket://run/history", at, decided(2, first=100 * at))
    found = read_history("bucket://run")
    assert times(found) == [1, 2]
    assert replay(replayable(found.decisions())).steps == 2 * 2 * 2


def test_what_could_not_be_read_is_not_taken_for_absent(store):
    store.create_dir("run/history.sqlite")  # opening it fails
    with pytest.raises(StorageError, match=r"reading .* failed"):
        HistoryFile("bucket://run")


def test_a_history_of_another_version_is_refused(tmp_path):
    HistoryFile(str(tmp_path / "later")).describe({**GRAPH, "version": 99})
    with pytest.raises(PenstockError, match=r"another version of Penstock \(99\)"):
        read_history(str(tmp_path / "later"))
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "run.json").write_text("{}")
    with pytest.raises(PenstockError, match="written by an earlier version"):
        read_history(str(tmp_path / "earlier"))


def hot_shard() -> tuple[Decision, ...]:
    keys = (ShardKeys(0, (HotKey("ann@example.org", 0.9),)),)
    pilot, started = Recorded.begin("track/shards", ShardBalance())
    statistics = ShardStatistics((10.0, 0.1, 0.1, 0.1), (0, 1, 1, 0), 2, (), keys)
    return (started, *pilot.step(statistics)[2])


def test_each_decision_has_the_statistics_of_its_step_and_steps_that_changed_nothing_are_counted():
    seen = History()
    seen.decide((5.0, line) for line in hot_shard())
    seen.decide([(5.0, Decision("c", step, "hold", statistics={})) for step in range(3)])
    found = seen.marks_after(0)
    assert [each["what"] for each in found] == ["start", "table", "hot_shard"]
    assert [each["number"] for each in found] == [0, 1, 2]
    for number in (1, 2):
        assert seen.mark(number)["seen"]["loads"] == [10.0, 0.1, 0.1, 0.1]
    assert seen.marks_after(2) == found[2:]
    assert seen.mark(99) is None
    assert (seen.total, seen.held) == (3, 3)


def test_times_of_engines_become_times_of_day():
    def at(time):
        return wall_time(Decision("c", 1, "tasks", time=time), lambda: 2_000_000_000.0, lambda: 500.0)

    assert at(490.0) == 2_000_000_000.0 - as_real(10)
    assert at(1_999_999_990.0) == 1_999_999_990.0
    assert at(None) == 2_000_000_000.0
