"""What a recorder keeps of a run is bounded, and nobody who watches makes it more."""

from __future__ import annotations

import gc
import tracemalloc

import penstock as ps
from penstock.dashboard import views
from penstock.dashboard.history import read_history
from penstock.dashboard.recorder import Recorder

TICKS = 500
SLACK = 256 * 1024
"""Bytes by which memory may differ from one time to another, as old samples are thinned out; ticks make more."""


def recorder_of(run: ps.Run, history: str) -> Recorder:
    """Make a recorder of a run that has ended, and bring it a report: before the first one no history is begun."""
    recorder = Recorder(run, "threads", history=history)
    run._took_epoch(run.epochs[-1])
    return recorder


def test_an_hour_takes_no_more_memory_than_some_minutes(tmp_path, monkeypatch):
    monkeypatch.setattr(views, "RECENT_SECONDS", 0.0)  # here an hour passes within seconds
    # The last periods are in every sample: all of them at once, and not more the slower the machine is.
    monkeypatch.setattr(views, "PERIOD_SECONDS", 0.0)
    monkeypatch.setattr(views, "KEPT_PERIODS", 2)
    flow = ps.Flow("long")
    flow.source("in", range(100)).map(lambda n: n + 1, name="one more").sink("out")
    run = ps.run(flow, on=ps.Threads(workers=1))
    recorder = recorder_of(run, str(tmp_path))
    seen: list[int] = []
    leave = recorder.listen(lambda sample: seen.append(len(sample)))
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(4):
            for _ in range(TICKS):
                recorder.tick()
            assert len(seen) == TICKS
            assert sum(seen) > 2 * SLACK
            seen.clear()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes[1:]) - sizes[0] < SLACK
    leave()
    recorder.tick()
    assert seen == []


def test_every_sample_is_encoded_once_for_all(tmp_path):
    flow = ps.Flow("seen by many")
    flow.source("in", range(100)).sink("out")
    run = ps.run(flow, on=ps.Threads(workers=1))
    recorder = recorder_of(run, str(tmp_path))
    told: list[bytes] = []
    for _ in range(3):
        recorder.listen(told.append)
    recorder.tick()
    assert told[0] is told[1] is told[2]
    assert recorder.seen.sample_at(0.0) == told[0] == read_history(str(tmp_path)).sample_at(0.0)
