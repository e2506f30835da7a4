"""Each run has a history of its own; the last ones are kept, and the newest is found."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from penstock.dashboard.history import find_history, new_directory
from penstock.errors import PenstockError

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def written(directory: Path | str, started: float) -> str:
    """Leave a history in a directory."""
    Path(directory).mkdir(parents=True)
    (Path(directory) / "history.sqlite").touch()
    os.utime(Path(directory) / "history.sqlite", (started, started))
    return str(directory)


def runs(flow: Path, count: int) -> list[str]:
    """Leave histories of runs, a second after one another."""
    times = [NOON + dt.timedelta(seconds=number) for number in range(count)]
    return [written(new_directory(str(flow / "history"), at, kept=5), at.timestamp()) for at in times]


def test_each_run_has_its_own_and_the_oldest_go(tmp_path):
    (tmp_path / "history" / "mine").mkdir(parents=True)
    made = runs(tmp_path, 8)
    assert len(set(made)) == 8
    left = {each.name for each in (tmp_path / "history").iterdir()}
    assert left == {Path(each).name for each in made[-5:]} | {"mine"}


def test_the_newest_of_a_flow_is_found_and_any_by_its_own_directory(tmp_path):
    made = runs(tmp_path, 3)
    assert find_history(str(tmp_path)) == made[-1]
    assert find_history(f"{tmp_path}/history/") == made[-1]
    assert find_history(made[0]) == made[0]


def test_a_checkpoint_and_runs_without_one_may_share_a_directory(tmp_path):
    made = runs(tmp_path, 2)
    history = tmp_path / "history" / "history.sqlite"
    history.touch()
    os.utime(history, (NOON.timestamp() - 1,) * 2)
    assert find_history(str(tmp_path)) == made[-1]
    os.utime(history, (NOON.timestamp() + 60,) * 2)
    assert find_history(str(tmp_path)) == str(tmp_path / "history")


def test_a_directory_without_a_history_is_refused(tmp_path):
    with pytest.raises(PenstockError, match=r"has no history of a run; give .* \.penstock/<flow name>"):
        find_history(str(tmp_path))
    with pytest.raises(PenstockError, match="has no history of a run"):
        find_history(str(tmp_path / "nowhere"))
