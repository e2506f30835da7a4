"""Make a Spark session with the settings that Penstock's epochs want, or take the user's as it is."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any

from penstock import clock
from penstock.errors import PenstockError

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
APPLICATION = {
    # Sockets of the file system between the JVM and Python: 50 ms an epoch.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # A shard stays with its executor only if the shuffle does not pull its task elsewhere.
    "spark.shuffle.reduceLocality.enabled": "false",
}
QUERY = {
    # Each adaptive stage would be a job of its own; the plan of an epoch has nothing to adapt.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Names of columns are ours, whatever the user's session says.
    "spark.sql.caseSensitive": "true",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""For Spark on this machine alone: no name of it has to be known, and nobody outside can connect."""
JAVA_HELP = (
    "Penstock needs Java 17 or later for Spark, and found {found}.\n"
    "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless\n"
    "  Fedora:          sudo dnf install java-17-openjdk-headless\n"
    "  macOS:           brew install openjdk@17\n"
    "  conda:           conda install -c conda-forge openjdk=17\n"
    "If it is installed, set JAVA_HOME to its directory. Flows also run without Java: on=ps.Threads()."
)


def check_java() -> str:
    """Return the version of Java that Spark will use; say how to get it where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        raise PenstockError(JAVA_HELP.format(found=f"no {java}" if java else "none"))
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if match is None or int(match[1]) < 17:
        raise PenstockError(JAVA_HELP.format(found=output.splitlines()[0] if output else f"a broken {java}"))
    return match[1]


def make_session(name: str, *, master: str | None = None, settings: dict[str, str] | None = None) -> Any:
    """Make (or join) the session of this process."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    # Without this an environment that is not activated gets workers of another Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*,4]"
    if network(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local-cluster"):
        os.environ.setdefault("SPARK_WORKER_DIR", tempfile.mkdtemp(prefix="penstock-workers-"))
    builder = SparkSession.builder.appName(name).master(master)
    options = {
        **APPLICATION,
        **QUERY,
        **network(master),
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-Dlog4j2.level=ERROR",
        # Workers on other machines do not have the environment of this process.
        **({} if clock.STRETCH == 1 else {f"spark.executorEnv.{clock.VARIABLE}": str(clock.STRETCH)}),
        **(settings or {}),
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    with _quiet_start():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    atexit.register(_stop, session)
    return session


def network(master: str) -> dict[str, str]:
    """Return where the driver listens: executors on other machines must reach it, so there Spark's settings say."""
    return LOOPBACK if master.startswith("local") else {}


def _stop(session: Any) -> None:
    """Stop Spark, if it has not ended by itself."""
    with suppress(Exception):
        session.stop()


class _quiet_start:
    """Keep the JVM's start-up chatter off the user's terminal; what matters arrives as exceptions."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._saved = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 2)
        os.close(self._saved)


def engine_session(session: Any) -> Any:
    """Return a session on the same Spark with Penstock's own query settings; the user's stay untouched."""
    own = session.newSession()
    for key, value in QUERY.items():
        own.conf.set(key, value)
    return own
