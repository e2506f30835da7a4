"""Make the Spark sessions of the benchmarks."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

FAST_APPLICATION = {"spark.python.unix.domain.socket.enabled": "true"}
"""Read once from the application's SparkConf: one JVM cannot hold both values."""

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
FAST_SESSION = {"spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER}
"""Read from the session when a query starts: sessions of one JVM may differ."""

FAST = {**FAST_APPLICATION, **FAST_SESSION}

COMMON = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    # How often a query that has nothing to do looks again (10 ms by default). The sides that wait for their
    # turn must not take the processor; a query with data never waits, so no measured time contains it.
    "spark.sql.streaming.pollingDelay": "200",
    # Nor may they list their directories by Spark jobs, which they do from 32 directories on.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}


def make(name: str, settings: Mapping[str, str], cores: int = 2) -> SparkSession:
    """Start Spark in local mode with these settings on top of the common ones."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers find the peers' classes by import, whatever directory the benchmark was started from.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    builder = SparkSession.builder.master(f"local[{cores},4]").appName(name)
    for key, value in {**COMMON, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def close(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM to end, which otherwise outlives the session until Python exits."""
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        gateway.proc.stdin.close()  # the JVM ends with its input
        gateway.proc.wait()
