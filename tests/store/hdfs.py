"""HDFS for tests: Hadoop's own name node and data node in one process on loopback, from Maven Central."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.jars import hdfs_jar

PATIENCE = 180.0
"""Seconds that the cluster may take to start: a machine that does a lot else is slow."""

_CLUSTER = """
import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

public class Cluster {
    public static void main(String[] directory) throws Exception {
        var cluster = new MiniDFSCluster.Builder(new Configuration(), new File(directory[0])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("serving " + cluster.getFileSystem().getUri());
    }
}
"""


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Run HDFS; give its address."""
    program, log = directory / "Cluster.java", directory / "log.txt"
    program.write_text(_CLUSTER)
    # A JVM that lives for minutes has no time to optimize.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    command = [_java(), *quick, "-cp", f"{_cluster_jar()}:{_spark_jars()}/*", str(program), str(directory / "data")]
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=directory)
    try:
        until = time.monotonic() + PATIENCE
        while not (found := [line for line in log.read_text().splitlines() if line.startswith("serving ")]):
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"HDFS has not started: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield found[0].removeprefix("serving ").strip()
    finally:
        process.kill()
        process.wait()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _cluster_jar() -> Path:
    """Return the jar with the cluster, of the release that Spark's client has."""
    (client,) = _spark_jars().glob("hadoop-client-api-*.jar")
    return hdfs_jar(client.stem.removeprefix("hadoop-client-api-"))
