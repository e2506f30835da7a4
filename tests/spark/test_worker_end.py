"""What a Python worker has is closed when Spark lets it go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = """
import os
from penstock.spark.entry import at_worker_end
at_worker_end(lambda: print("closed first", flush=True))
if os.fork() == 0:
    at_worker_end(lambda: print("the child's own", flush=True))
    os._exit(0)
os.wait()
at_worker_end(lambda: print("closed", flush=True))
os._exit(3)
"""


def test_a_process_that_leaves_without_clean_up_closes() -> None:
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["the child's own", "closed", "closed first"]
    assert done.returncode == 3


FLOW = """
import os
from pathlib import Path
import penstock as ps
from pyspark.sql import SparkSession

class Client:
    def __init__(self):
        self.log = Path(os.environ["CLIENT_LOG"])
        (self.log / f"open {os.getpid()}").touch()

    def close(self):
        (self.log / f"close {os.getpid()}").touch()

async def ask(row, client):
    return row.n

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
flow = ps.Flow("clients")
source = flow.source("in", ps.read.items([{"n": n} for n in range(20)]))
source.map(ask, setup=Client).sink("a")
source.map(lambda row, client: row.n, setup=Client, retries=1).sink("b")
run = ps.run(flow, on=ps.Spark(spark))
assert run.results["a"] == run.results["b"] == list(range(20))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_clients_are_closed_when_the_session_stops(tmp_path: Path) -> None:
    import os

    log = tmp_path / "log"
    log.mkdir()
    (tmp_path / "flow.py").write_text(FLOW)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "CLIENT_LOG": str(log)}
    subprocess.run([sys.executable, str(tmp_path / "flow.py")], check=True, env=environment, cwd=tmp_path)
    found = {path.name for path in log.iterdir()}
    opened = {name.split()[1] for name in found if name.startswith("open")}
    assert opened
    # The session does not wait for its workers' ends: those that are still alive get the time that they need.
    for process in opened:
        while not (log / f"close {process}").exists():
            os.kill(int(process), 0)
