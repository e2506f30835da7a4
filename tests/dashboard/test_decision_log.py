"""The log of decisions on disk: bounded, and what is left of it is replayed from start lines on, whatever crashed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.dashboard import decision_log
from penstock.dashboard.decision_log import CUT, DecisionLog, Kept, Timed, read_log
from penstock.elastic.decisions import START, replay, to_json
from penstock.elastic.journal import Journal
from penstock.elastic.shard_balance import ShardBalance, ShardStatistics
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics

HALF = 20_000


def journal_of(moments: int, first: int = 0) -> list[Timed]:
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
    monkeypatch.setattr("penstock.elastic.journal.KEPT", 10)


def write(directory: Path, lines: list[Timed], most: int = 2 * HALF) -> None:
    """Write as a run does: a few decisions at a time."""
    log = DecisionLog(str(directory), most)
    for at in range(0, len(lines), 7):
        log.write(lines[at : at + 7])
        assert size(directory) <= most


def read(directory: Path) -> Kept:
    return read_log([path.name for path in directory.iterdir()], lambda name: (directory / name).read_bytes())


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def skipped(kept: Kept) -> int:
    return len(kept.decisions) - len(kept.replayable)


def test_the_newest_part_is_kept_and_replayed_from_its_first_chapter_on(tmp_path):
    lines = journal_of(400)
    write(tmp_path, lines)
    kept = read(tmp_path)
    assert kept.dropped > 0
    assert kept.decisions == lines[kept.dropped :]
    assert size(tmp_path) >= HALF
    # Less than a chapter, which has at most two lines a moment here, waits for its start.
    assert skipped(kept) <= 2 * 10
    assert replay(kept.replayable).same
    assert replay(kept.replayable).steps > 40


def test_two_runs_are_replayed_as_far_as_they_are_kept(tmp_path):
    first, second = journal_of(150), journal_of(40, first=1000)
    # A full file has the second and some chapters of the first.
    full = int(1.6 * sum(len(to_json(line)) for _, line in second))
    write(tmp_path, first, 2 * full)
    write(tmp_path, second, 2 * full)
    kept = read(tmp_path)
    assert kept.dropped > 0
    assert kept.decisions == [*first, *second][kept.dropped :]
    result = replay(kept.replayable)
    assert result.same
    assert result.steps > 2 * 40  # all of the second, and some of the first
    assert kept.replayable[-len(second) :] == [line for _, line in second]


def test_a_log_that_fits_is_one_file_as_ever(tmp_path):
    lines = journal_of(20)
    write(tmp_path, lines)
    assert [path.name for path in tmp_path.iterdir()] == ["decisions.jsonl"]
    kept = read(tmp_path)
    assert (kept.dropped, skipped(kept)) == (0, 0)
    assert kept.decisions == lines


def test_a_crash_between_the_two_steps_of_a_change_of_files_loses_nothing(tmp_path, monkeypatch):
    def die(path: str) -> None:
        raise KeyboardInterrupt

    lines = journal_of(300)
    with monkeypatch.context() as crash:
        crash.setattr(decision_log.os, "remove", die)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, lines)
    # The third file is begun, the first one is not removed yet, and the decision that did not fit is not written.
    assert len(list(tmp_path.iterdir())) == 3
    kept = read(tmp_path)
    written = len(kept.decisions)
    assert (kept.decisions, kept.dropped, skipped(kept)) == (lines[:written], 0, 0)
    assert size(tmp_path) > HALF
    assert replay(kept.replayable).same
    DecisionLog(str(tmp_path), 2 * HALF)
    assert len(list(tmp_path.iterdir())) == 2
    rest = journal_of(20, first=1000)
    write(tmp_path, rest)
    kept = read(tmp_path)
    assert kept.decisions == [*lines[:written], *rest][kept.dropped :]
    assert replay(kept.replayable).same
    assert kept.replayable[-len(rest) :] == [line for _, line in rest]


def _line(each: Timed) -> str:
    return f'{{"at":{each[0]:.3f},"line":{to_json(each[1])}}}\n'


@pytest.mark.parametrize("taken", [1, 30, 200])
def test_a_line_that_a_crash_cut_short_is_not_replayed_and_the_next_run_is(tmp_path, taken):
    first, second = journal_of(8), journal_of(8, first=1000)
    write(tmp_path, first)
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(path.read_bytes()[:-taken])
    write(tmp_path, second)
    kept = read(tmp_path)
    result = replay(kept.replayable)
    assert result.same
    assert result.steps >= 2 * (8 + 8) - 3
    assert kept.replayable[-len(second) :] == [line for _, line in second]


def test_a_step_of_several_lines_stays_in_one_file_and_is_not_compared_where_it_was_cut_short(tmp_path):
    journal = Journal()
    journal.begin("shards", ShardBalance(), 0)
    loads = tuple(float(shard % 7) for shard in range(40))
    journal.step("shards", ShardStatistics(loads, table=(0,) * 40, tasks=4), 1)
    lines = [(1.0, line) for line in journal.decisions]
    assert len(lines) > 4
    DecisionLog(str(tmp_path), 100).write(lines)
    assert len(list(tmp_path.iterdir())) == 2  # the start, and the step, however long
    kept = read(tmp_path)
    assert kept.decisions == lines
    last = max(tmp_path.iterdir(), key=lambda path: len(path.name))
    last.write_bytes(last.read_bytes()[:-30])
    kept = read(tmp_path)
    assert kept.decisions == lines[:-1]
    assert [line.what for line in kept.replayable] == [START]


def test_a_log_of_an_earlier_version_is_replayed_up_to_its_cut_and_behind_the_next_file(tmp_path):
    lines, later = journal_of(60), journal_of(5, first=1000)
    with open(tmp_path / "decisions.jsonl", "w") as file:
        file.writelines(_line(each) for each in lines[:41])
        file.write(json.dumps(CUT) + "\n")
        file.writelines(_line(each) for each in lines[41:] if each[1].what != "hold")
    old = read(tmp_path)
    assert old.dropped == 0
    assert old.replayable == [line for _, line in lines[:40]]
    assert len(old.decisions) > 41
    DecisionLog(str(tmp_path), size(tmp_path)).write(later)
    kept = read(tmp_path)
    assert kept.decisions[-len(later) :] == later
    assert kept.replayable == [*old.replayable, *(line for _, line in later)]
    assert replay(kept.replayable).same
