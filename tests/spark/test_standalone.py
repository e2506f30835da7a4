"""`penstock run --master spark://...`: what executors on other machines need of the driver."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import penstock as ps

from .cluster.standalone import standalone

pytestmark = pytest.mark.spark
SOURCES = Path(ps.__file__).parents[1]
FLOW = """
import os
from pathlib import Path

import penstock as ps


def driver_of(n: int) -> str:
    # The executor that this worker belongs to was started with the address to connect to.
    pid = os.getpid()
    while True:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")
        if b"--driver-url" in words:
            return words[words.index(b"--driver-url") + 1].decode()
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


flow = ps.Flow("callback")
flow.source("in", [1, 2, 3]).map(driver_of).map(lambda url: {"url": url}, schema={"url": str}, name="as row").sink(
    "out", ps.write.parquet("OUT")
)
"""


def own_address() -> str | None:
    """Return an address of this machine that others could use; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if found.startswith("127.") else found


def test_executors_are_told_an_address_of_the_driver_that_other_machines_can_reach(tmp_path):
    host = own_address()
    if host is None:
        pytest.skip("this machine has no address but loopback")
    file = tmp_path / "callback.py"
    file.write_text(FLOW.replace("OUT", str(tmp_path / "out")))
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    environment |= {"PYTHONPATH": str(SOURCES), "PYSPARK_PYTHON": sys.executable}
    with standalone(tmp_path, host) as cluster:
        cluster.add_workers(1, "1200m")  # an executor asks for 1 GB
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "run", str(file), "--master", cluster.address, "--no-page"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    urls = [
        row["url"] for part in tmp_path.glob("out/epoch=*/*.parquet") for row in pq.ParquetFile(part).read().to_pylist()
    ]
    assert len(urls) == 3
    named = urls[0].rpartition("@")[2].rpartition(":")[0]
    assert named not in ("localhost", "127.0.0.1")
    assert not socket.gethostbyname(named).startswith("127.")


@pytest.mark.parametrize("master", [None, "local[2,4]", "local", "local-cluster[1,1,1024]"])
def test_local_mode_stays_on_loopback(master, spark):
    from penstock.spark.session import LOOPBACK, network

    assert network(master or "local[*,4]") == LOOPBACK
    conf = spark.sparkContext.getConf()
    assert {conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress")} == {"127.0.0.1"}
