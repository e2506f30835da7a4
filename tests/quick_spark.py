"""Spark for tests: its JVM lives for minutes, and has no time to optimize."""

from __future__ import annotations

from typing import Any

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.level=ERROR {QUICK}",
}


def suite_session() -> Any:
    """Make or join the one session of the suite: two cores, and the settings that Penstock itself uses."""
    from penstock.spark.session import make_session

    return make_session("penstock tests", master="local[2,4]", settings=SETTINGS)
