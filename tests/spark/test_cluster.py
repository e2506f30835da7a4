"""On a cluster: executors with nothing but Python, Arrow and Spark; state that stays where it is; a lost executor.

One JVM has one Spark, so the cluster runs in a process of its own, once for all tests of this file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .cluster import driver, shop
from .running import read_back, sequential

pytestmark = pytest.mark.spark
SOURCES = Path(ps.__file__).parents[1]
HERE = Path(driver.__file__).parent


@dataclass
class Ran:
    """What the run on the cluster left behind."""

    work: Path
    lines: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    """What came out of the scan, with the epoch of each row."""

    def places(self, epoch: int) -> dict[int, int]:
        """Return the executor of each key in an epoch; a key that had two in one epoch fails the test."""
        found: dict[int, int] = {}
        for row in self.rows:
            if row["epoch"] == epoch:
                assert found.setdefault(row["k"], row["executor"]) == row["executor"]
        return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Python for the workers: with this environment's libraries, but not with what is under development."""
    path = tmp_path_factory.mktemp("python") / "python"
    libraries = sysconfig.get_path("purelib")
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def ran(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the driver to its end."""
    work = tmp_path_factory.mktemp("cluster")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(python), "SPARK_WORKER_DIR": str(work / "workers")}
    done = subprocess.run(
        [sys.executable, driver.__file__, str(SOURCES), str(work)],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    names = list(shop.OUT)
    rows = [dict(zip(names, row, strict=True)) for row in read_back(work / "scanned")]
    for row in rows:
        row["epoch"] = row["n"] // driver.EPOCH_ROWS + 1
    return Ran(work, [json.loads(line) for line in done.stdout.splitlines()], rows)


def test_the_workers_python_has_neither_penstock_nor_the_users_module(python):
    for module in ("penstock", "shop"):
        failed = subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True, text=True, check=False, cwd="/"
        )
        assert f"No module named '{module}'" in failed.stderr
    subprocess.run([python, "-c", "import pyspark, pyarrow"], check=True, cwd="/")


def test_penstock_and_the_users_module_reach_the_executors(ran):
    assert {Path(row["penstock"]).parts[-3].split("-")[0] for row in ran.rows} == {"penstock"}
    assert {Path(row["module"]).parts[-2].split("-")[0] for row in ran.rows} == {"modules"}
    assert all(".zip/" in row["penstock"] and ".zip/" in row["module"] for row in ran.rows)


def test_a_shard_stays_with_its_executor(ran):
    first = ran.places(1)
    assert len(first) == driver.KEYS
    assert len(set(first.values())) == 2
    for epoch in range(2, driver.MOVED_AT + 1):
        assert ran.places(epoch) == first, epoch


def test_a_shard_moves_with_the_table(ran):
    one, other = sorted(set(ran.places(1).values()))
    moved = {key: {one: other, other: one}[executor] for key, executor in ran.places(1).items()}
    for epoch in range(driver.MOVED_AT + 1, driver.KILLED_IN):
        assert ran.places(epoch) == moved, epoch


def test_an_epoch_is_one_job_and_the_anchors_are_made_once(ran):
    jobs = [line["jobs"] for line in ran.lines[: driver.KILLED_IN - 1]]
    assert [after - before for before, after in pairwise(jobs)] == [1] * (len(jobs) - 1)


def test_nothing_is_lost_with_an_executor(ran, monkeypatch):
    killed = int((ran.work / "killed").read_text())
    assert killed in set(ran.places(driver.KILLED_IN - 1).values())
    assert killed not in set(ran.places(driver.KILLED_IN + 1).values())
    monkeypatch.syspath_prepend(str(HERE))
    expected = sequential(driver.flow(ran.work))  # which kills nobody, because it has been done
    for sink, width in (("scanned", 4), ("counted", 99)):
        assert [row[:width] for row in read_back(ran.work / sink)] == [
            tuple(row)[:width] for row in expected.results[sink]
        ]
    assert ps.state.values(str(ran.work / "ck"), "running") == expected.state("running")


def test_the_executor_that_comes_in_its_place_gets_its_part(ran):
    survivors = set(ran.places(1).values()) - {int((ran.work / "killed").read_text())}
    last = set(ran.places(driver.RETURNED_AT).values())
    assert len(last) == 2
    assert survivors < last


def test_an_executor_is_given_back_and_another_asked_for_while_the_flow_runs(ran):
    # What was put out and kept until then is compared with the sequential engine above.
    found = {line["epoch"]: line["found"] for line in ran.lines}
    assert len(found[driver.RETURNED_AT]) == 2
    for epoch in range(driver.RETURNED_AT + 1, driver.ASKED_AT + 1):
        assert len(found[epoch]) == len(set(ran.places(epoch).values())) == 1
    assert len(found[driver.EPOCHS]) == len(set(ran.places(driver.EPOCHS).values())) == 2
    assert not set(found[driver.EPOCHS]) <= set(found[driver.RETURNED_AT])
