"""A standalone cluster on this machine: a master, and workers when they are asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEPLOY = "org.apache.spark.deploy"


def _serve(host: str, *arguments: str, work: Path, log: str) -> subprocess.Popen[bytes]:
    """Start a process of a standalone cluster."""
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    environment = os.environ | {
        "SPARK_LOCAL_IP": host,
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
    """A master on one address of this machine, and the workers that it has got."""

    host: str
    work: Path
    running: list[subprocess.Popen[bytes]]
    address: str = ""

    @property
    def ports(self) -> tuple[str, ...]:
        """Return the options for any free port, which the log tells."""
        return "--host", self.host, "--port", "0", "--webui-port", "0"

    def add_workers(self, count: int, memory: str) -> None:
        """Start workers of one core."""
        for number in range(count):
            limits = ("--cores", "1", "--memory", memory)
            command = (f"{DEPLOY}.worker.Worker", *self.ports, *limits, self.address)
            worker = _serve(self.host, *command, work=self.work, log=f"{number}.log")
            self.running.append(worker)
            _await_line(self.work / f"{number}.log", r"(Successfully registered with master)", worker)


@contextmanager
def standalone(work: Path, host: str) -> Iterator[Standalone]:
    """Run a master that has no worker yet."""
    made = Standalone(host, work, [])
    try:
        made.running.append(_serve(host, f"{DEPLOY}.master.Master", *made.ports, work=work, log="master.log"))
        pattern = rf"Starting Spark master at (spark://{re.escape(host)}:\d+)"
        made.address = _await_line(work / "master.log", pattern, made.running[0])
        yield made
    finally:
        for process in reversed(made.running):
            process.terminate()
            process.wait()
