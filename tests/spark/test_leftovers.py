"""Shuffle files and cached rows: an epoch leaves none behind, and a run holds no executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .cluster import leftovers_driver as driver

pytestmark = pytest.mark.spark
SOURCES = Path(ps.__file__).parents[1]


def run(work: Path, mode: str) -> list[dict[str, Any]]:
    environment = os.environ | {"SPARK_WORKER_DIR": str(work / "workers"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, driver.__file__, str(SOURCES), str(work), mode],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_on_a_cluster_shuffle_files_go_with_their_epoch_and_anchors_with_the_run(tmp_path):
    *epochs, ended = run(tmp_path, "fixed")
    assert len(epochs) == driver.EPOCHS + 1  # the last one ends the source
    # One anchor for each number of tasks: two of the keyed stage, one of the sink.
    assert {epoch["cached"] for epoch in epochs} == {2}, "on a fixed cluster tasks are anchored"
    # Those of the anchors' own shuffles, and of the epoch just done at the most.
    assert max(epoch["files"] for epoch in epochs) <= driver.MOST_FILES["fixed"]
    assert ended == {"mode": "fixed", "when": "ended", "files": 0, "cached": 0, "executors": 2}


def test_with_dynamic_allocation_nothing_holds_executors(tmp_path):
    *epochs, ended, idle = run(tmp_path, "dynamic")
    assert {epoch["cached"] for epoch in epochs} == {0}
    assert (ended["files"], ended["cached"]) == (0, 0)
    assert idle["executors"] == 0


def test_in_local_mode_shuffle_files_go_with_their_epoch(tmp_path):
    told = run(tmp_path, "local")
    for mode, least in {"local": driver.EPOCHS + 1, "frame": driver.EPOCHS}.items():
        *epochs, ended = [line for line in told if line["mode"] == mode]
        assert len(epochs) >= least
        assert max(epoch["files"] for epoch in epochs) <= driver.MOST_FILES[mode]
        assert (ended["files"], ended["cached"]) == (0, 0)
