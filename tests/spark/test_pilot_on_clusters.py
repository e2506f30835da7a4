"""The pilot on clusters: executors are given back and asked for against a latency target, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps

from .cluster import elastic_driver
from .running import read_back, sequential

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SOURCES = Path(ps.__file__).parents[1]


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


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """Run a master and two workers on the loopback interface; return the master's address."""
    deploy = "org.apache.spark.deploy"
    # Any free port, which the log tells.
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    master = _serve(f"{deploy}.master.Master", *ports, work=tmp_path, log="master.log")
    running = [master]
    try:
        address = _await_line(tmp_path / "master.log", r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", master)
        for number in range(2):
            limits = ("--cores", "1", "--memory", "700m")
            worker = _serve(f"{deploy}.worker.Worker", *ports, *limits, address, work=tmp_path, log=f"{number}.log")
            running.append(worker)
            _await_line(tmp_path / f"{number}.log", r"(Successfully registered with master)", worker)
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()


def _run(work: Path, master: str) -> tuple[list[dict[str, int]], dict[str, object]]:
    environment = os.environ | {"SPARK_WORKER_DIR": str(work / "workers"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, elastic_driver.__file__, str(SOURCES), str(work), master],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, last = [json.loads(line) for line in done.stdout.splitlines()]
    return lines, last


def _check(work: Path, master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, last = _run(work, master)
    assert [decision[:2] for decision in last["decisions"]] == [[2, 1], [1, 2]]  # type: ignore[attr-defined]
    assert [line["executors"] for line in lines][:1] == [2]
    assert 1 in [line["executors"] for line in lines]
    assert lines[-1]["executors"] == 2
    assert last["same"]
    assert not last["restarted"]
    monkeypatch.setattr(elastic_driver, "SLOW_SECONDS", 0.0)  # the reference need not wait
    found = read_back(work / "out")
    expected = [tuple(row) for row in sequential(elastic_driver.flow(work)).results["out"]]
    assert found == expected[: len(found)]
    assert len(found) == elastic_driver.EPOCH_ROWS * len(lines)


def test_on_a_local_cluster(tmp_path, monkeypatch):
    _check(tmp_path, "local-cluster[2,1,1024]", monkeypatch)


def test_on_a_standalone_master_with_two_workers(tmp_path, standalone, monkeypatch):
    _check(tmp_path, standalone, monkeypatch)
