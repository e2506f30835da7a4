"""The pilot on clusters: executors are given back and asked for against a latency target, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .cluster import elastic_driver
from .cluster.standalone import Standalone, standalone
from .running import read_back, sequential

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SOURCES = Path(ps.__file__).parents[1]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Standalone]:
    """Run a master that has no worker yet."""
    with standalone(tmp_path, "127.0.0.1") as made:
        yield made


def _run(work: Path, master: str, begun: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """Run the driver, do something once its run has begun, and return what it prints."""
    environment = os.environ | {"SPARK_WORKER_DIR": str(work / "workers"), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, elastic_driver.__file__, str(SOURCES), str(work), master]
    with (
        open(work / "driver.log", "wb") as log,
        subprocess.Popen(command, env=environment, cwd=work, stdout=subprocess.PIPE, stderr=log) as driver,
    ):
        assert driver.stdout is not None
        watch = threading.Timer(1200, driver.kill)
        watch.start()
        try:
            for number, line in enumerate(driver.stdout):
                if number == 0:
                    begun()
                yield json.loads(line)
            driver.wait()
        except BaseException:
            driver.kill()
            raise
        finally:
            watch.cancel()
    assert driver.returncode == 0, (work / "driver.log").read_text(errors="replace")[-3000:]


def _check(
    work: Path, master: str, monkeypatch: pytest.MonkeyPatch, begun: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    first, *lines, last = _run(work, master, begun)
    assert [decision[:2] for decision in last["decisions"]] == [[2, 1], [1, 2]]
    assert [line["executors"] for line in lines][:1] == [2]
    assert 1 in [line["executors"] for line in lines]
    assert lines[-1]["executors"] == 2
    assert last["most"][-1] == 2
    assert last["same"]
    assert not last["restarted"]
    monkeypatch.setattr(elastic_driver, "SLOW_SECONDS", 0.0)  # the reference need not wait
    found = read_back(work / "out")
    expected = [tuple(row) for row in sequential(elastic_driver.flow(work)).results["out"]]
    assert found == expected[: len(found)]
    assert len(found) == elastic_driver.EPOCH_ROWS * len(lines)
    return first


def test_on_a_local_cluster(tmp_path, monkeypatch):
    _check(tmp_path, "local-cluster[2,1,1024]", monkeypatch)


def test_on_a_standalone_master_whose_two_workers_come_behind_the_start(tmp_path, master, monkeypatch):
    first = _check(tmp_path, master.address, monkeypatch, lambda: master.add_workers(2, "700m"))
    assert first == {"begun_with": 0}
