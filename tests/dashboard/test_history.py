"""The history of a run on disk: bounded, whole again after a crash, and replayable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyarrow import fs

from penstock.dashboard import history, run_directories
from penstock.dashboard.history import HistoryWriter, read_history
from penstock.elastic.decisions import Decision, Pilot, replay
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics
from penstock.errors import PenstockError, StorageError

GRAPH = {"flow": "f", "engine": "threads", "started": 1.0, "graph": {"nodes": [], "edges": []}}


def decided(steps: int) -> list[tuple[float, Decision]]:
    pilot, started = Pilot.begin("threads", ThreadLevel(high=8, initial=1), time=0.0)
    lines = [started]
    for step in range(steps):
        pilot, _, more = pilot.step(ThreadStatistics(1000.0 * (step % 5 + 1), 0.3, 0), time=float(step))
        lines += more
    return [(100.0 + number, line) for number, line in enumerate(lines)]


def sample(at: int) -> bytes:
    return json.dumps({"at": at, "filler": "x" * 100}).encode()


def test_what_is_written_is_read_and_replayed(tmp_path):
    writer = HistoryWriter(str(tmp_path / "history"))
    writer.write_graph(GRAPH)
    writer.write_sample(sample(1))
    lines = decided(20)
    writer.write_decisions(lines[:7])
    writer.write_decisions(lines[7:])
    writer.close()
    found = read_history(str(tmp_path))
    assert found.meta["flow"] == "f"
    assert [each["at"] for each in found.samples] == [1]
    assert found.decisions == lines
    assert found.replayable == [decision for _, decision in lines]
    result = replay(found.replayable)
    assert result.same
    assert result.steps == 20
    assert result.actions > 0


def test_a_local_path_may_be_a_uri(tmp_path):
    writer = HistoryWriter(f"file://{tmp_path}/history")
    writer.write_graph(GRAPH)
    writer.write_sample(sample(1))
    writer.close()
    assert read_history(str(tmp_path)).samples == read_history(f"file://{tmp_path}").samples != []


def test_what_could_not_be_read_is_not_taken_for_absent(tmp_path):
    writer = HistoryWriter(str(tmp_path / "history"))
    writer.write_graph(GRAPH)
    writer.close()
    (tmp_path / "history" / history.SAMPLES).unlink(missing_ok=True)
    (tmp_path / "history" / history.SAMPLES).mkdir()  # opening it fails
    with pytest.raises(StorageError, match=r"reading .* failed"):
        read_history(str(tmp_path / "history"))


def test_a_second_run_goes_on_in_the_same_files(tmp_path):
    for at in (1, 2):
        writer = HistoryWriter(str(tmp_path))
        writer.write_graph(GRAPH)
        writer.write_sample(sample(at))
        writer.write_decisions(decided(3))
        writer.close()
    found = read_history(str(tmp_path))
    assert [each["at"] for each in found.samples] == [1, 2]
    assert replay(decision for _, decision in found.decisions).same


def test_a_line_that_a_crash_cut_short_is_passed_over(tmp_path):
    writer = HistoryWriter(str(tmp_path))
    writer.write_graph(GRAPH)
    writer.write_sample(sample(1))
    with open(tmp_path / "samples.jsonl", "ab") as file:
        file.write(b'{"at": 2, "fil')
    HistoryWriter(str(tmp_path)).write_sample(sample(3))
    assert [each["at"] for each in read_history(str(tmp_path)).samples] == [1, 3]


def test_samples_are_bounded_by_number_and_by_bytes(tmp_path):
    writer = HistoryWriter(str(tmp_path / "a"), most_samples=100)
    writer.write_graph(GRAPH)
    for at in range(1000):
        writer.write_sample(sample(at))
    kept = [each["at"] for each in read_history(str(tmp_path / "a")).samples]
    assert len(kept) <= 101
    assert kept[0] == 0
    assert kept[-25:] == list(range(975, 1000))
    writer = HistoryWriter(str(tmp_path / "b"), most_sample_bytes=5000)
    for at in range(1000):
        writer.write_sample(sample(at))
        assert (tmp_path / "b" / "samples.jsonl").stat().st_size <= 5000 + len(sample(at)) + 1


def test_an_object_store_gets_copies(tmp_path, monkeypatch):
    store: Any = fs._MockFileSystem()
    for module in (history, run_directories):
        monkeypatch.setattr(module, "locate", lambda path: (store, path.split("://", 1)[1]))
    monkeypatch.setattr(run_directories, "exists", lambda path: store.get_file_info(path.split("://", 1)[1]).is_file)
    for at in (1, 2):
        writer = HistoryWriter("bucket://run/history")
        writer.write_graph(GRAPH)
        writer.write_sample(sample(at))
        writer.write_decisions(decided(2))
        writer.close()
    found = read_history("bucket://run")
    assert [each["at"] for each in found.samples] == [1, 2]
    assert replay(decision for _, decision in found.decisions).same


def test_an_object_store_keeps_no_more_of_a_long_log_than_a_disk(monkeypatch):
    store: Any = fs._MockFileSystem()
    for module in (history, run_directories):
        monkeypatch.setattr(module, "locate", lambda path: (store, path.split("://", 1)[1]))
    monkeypatch.setattr(run_directories, "exists", lambda path: store.get_file_info(path.split("://", 1)[1]).is_file)
    lines = decided(100)
    for first in range(0, len(lines), 20):
        writer = HistoryWriter("bucket://run", most_decision_bytes=5000)
        writer.write_graph(GRAPH)
        writer.write_decisions(lines[first : first + 20])
        writer.close()
    found = read_history("bucket://run")
    assert found.dropped > 0
    assert found.decisions == lines[found.dropped :]
    kept = [each for each in store.get_file_info(fs.FileSelector("run")) if each.base_name.startswith("decisions")]
    assert sum(each.size for each in kept) <= 5000


def test_a_history_of_another_version_is_refused(tmp_path):
    HistoryWriter(str(tmp_path)).write_graph({**GRAPH, "version": 99})
    with pytest.raises(PenstockError, match="another version"):
        read_history(str(tmp_path))
