"""The journal of a run: old chapters go, and who looks now and then misses nothing."""

from __future__ import annotations

import pytest

from penstock.elastic.batch_size import BatchSize, BatchStatistics
from penstock.elastic.decisions import KEPT, Journal, replay, to_json


@pytest.mark.parametrize("timed", [False, True])
def test_it_does_not_grow_and_nobody_misses_a_decision(timed):
    journal, known, seen = Journal(), 0, []
    journal.begin("rows", BatchSize(), 0, 0.0 if timed else None)
    for moment in range(1, 5 * KEPT):
        journal.step("rows", BatchStatistics(100, 0.01, moment % 7 * 1000, 0), moment, moment / 2 if timed else None)
        if moment % 40 == 0:
            found, known = journal.decisions_since(known)
            seen += found
    steps = [line.step for line in seen if line.statistics is not None and line.what != "start"]
    assert sorted(set(steps)) == list(range(1, max(steps) + 1))
    assert max(steps) > 4 * KEPT
    assert len(journal.decisions) < 5 * KEPT
    assert all((line.time is None) is not timed for line in journal.decisions)
    assert replay(journal.decisions).same


def test_a_chapter_that_grows_long_ends_sooner(monkeypatch):
    monkeypatch.setattr("penstock.elastic.decisions.MOST_BYTES", 10_000)
    journal = Journal()
    journal.begin("rows", BatchSize(), 0)
    journal.begin("others", BatchSize(), 0)
    for moment in range(1, KEPT):
        for name in ("rows", "others"):
            journal.step(name, BatchStatistics(100, 0.01, moment % 7 * 1000, 0), moment)
    kept = journal.decisions
    assert [line.what for line in kept[:2]] == ["start", "start"]
    assert 5_000 < sum(len(to_json(line)) for line in kept) < 25_000
    assert kept[-1].step == KEPT - 1
    assert replay(kept).same
