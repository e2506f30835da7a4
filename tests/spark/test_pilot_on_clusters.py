"""The pilot on clusters: executors are given back and asked for against a latency target, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .cluster import elastic_driver
from .running import read_back, sequential

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SOURCES = Path(ps.__file__).parents[1]
DEPLOY = "org.apache.spark.deploy"
PORTS = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
"""Any free port, which the log tells."""


def _serve(*arguments: str, work: Path, log: str) -> subprocess.Popen[bytes]:
    """Start a process of a standalone cluster."""
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(work / "workers"),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }
    with open(work / log, "wb") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=work)


def _await_line(path: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """Wait until a log has a line that matches; return its first group."""
    while True:
        match = re.search(pattern, path.read_text(errors="replace"))
        if match is not None:
            return match[1]
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(path.read_text(errors="replace")[-2000:])


@dataclass
class Standalone:
    """A master on the loopback interface, and the workers that it has got."""

    address: str
    work: Path
    running: list[subprocess.Popen[bytes]]

    def add_workers(self) -> None:
        """Start two workers of one core."""
        for number in range(2):
            limits = ("--cores", "1", "--memory", "700m")
            log = f"{number}.log"
            worker = _serve(f"{DEPLOY}.worker.Worker", *PORTS, *limits, self.address, work=self.work, log=log)
            self.running.append(worker)
            _await_line(self.work / log, r"(Successfully registered with master)", worker)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """Run a master that has no worker yet."""
    master = _serve(f"{DEPLOY}.master.Master", *PORTS, work=tmp_path, log="master.log")
    made = Standalone("", tmp_path, [master])
    try:
        pattern = r"Starting Spark master at (spark://127\.0\.0\.1:\d+)"
        made.address = _await_line(tmp_path / "master.log", pattern, master)
        yield made
    finally:
        for process in reversed(made.running):
            process.terminate()
            process.wait()


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


def test_on_a_standalone_master_whose_two_workers_come_behind_the_start(tmp_path, standalone, monkeypatch):
    first = _check(tmp_path, standalone.address, monkeypatch, standalone.add_workers)
    assert first == {"begun_with": 0}
