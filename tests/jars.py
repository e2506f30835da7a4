"""What tests need of Java: Kafka, Spark's connector for it, HDFS. From Maven Central, kept outside the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

BROKER = "4.2.1"
CONNECTOR = "4.2.0"
"""The newest on Maven Central; it runs on PySpark 4.3, for which there is none yet."""
TOKENS = "4.0.0"
"""The connector's part for Kerberos tokens. Not all of its releases are on every mirror, and nothing here uses it."""
SCALA = "2.13"

_BROKER = [f"org.apache.kafka:kafka_{SCALA}:{BROKER}"]
_SPARK = [
    f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{CONNECTOR}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}:{TOKENS}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
]
SECONDS = 600


class Unreachable(Exception):
    """The jars are not here and cannot be had."""


def broker_jars() -> Path:
    """Return the directory of Kafka's jars, with all that they need."""
    return _cached(f"kafka-{BROKER}", _BROKER, whole=True)


def connector_jars() -> list[Path]:
    """Return the jars of Spark's connector; what else it needs comes with Spark."""
    # Spark's own files name repositories that are not everywhere, so that these are fetched one by one.
    return sorted(_cached(f"spark-kafka-{CONNECTOR}-{TOKENS}", _SPARK, whole=False).glob("*.jar"))


def hdfs_jar(version: str) -> Path:
    """Return the jar with a whole HDFS in one process, of a release of Hadoop."""
    artifact = f"org.apache.hadoop:hadoop-client-minicluster:{version}"
    (found,) = _cached(f"hdfs-{version}", [artifact], whole=False).glob("*.jar")
    return found


def _cached(name: str, artifacts: list[str], *, whole: bool) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-tests"
    wanted = cache / name
    if not wanted.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            fetched = Path(temporary) / "jars"
            if whole:
                _fetch_with_all(artifacts, fetched)
            else:
                _fetch_alone(artifacts, fetched)
            try:
                fetched.rename(wanted)
            except OSError:
                if not wanted.exists():  # otherwise another process was faster
                    raise
    return wanted


def _fetch_with_all(artifacts: list[str], target: Path) -> None:
    """Copy artifacts and everything that they depend on."""
    entries = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in artifacts
    )
    project = target.parent / "pom.xml"
    project.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>penstock</groupId><artifactId>tests</artifactId><version>1</version>"
        f"<dependencies>{entries}</dependencies></project>"
    )
    _maven("-f", str(project), "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}")


def _fetch_alone(artifacts: list[str], target: Path) -> None:
    """Copy artifacts without what they depend on."""
    for artifact in artifacts:
        _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={target}")


def _maven(*arguments: str) -> None:
    if shutil.which("mvn") is None:
        raise Unreachable("there is no Maven (mvn) on this machine")
    try:
        done = subprocess.run(
            ["mvn", "-B", "-q", *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"Maven did not answer in {SECONDS} s") from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise Unreachable(f"Maven cannot fetch it: {lines[0][:300] if lines else done.returncode}")
