"""Look at the machine: what Penstock and Spark need of it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.cli.health.findings import Finding, State
from penstock.cli.health.versions import fits, installed, known_range
from penstock.cli.progress import size
from penstock.errors import PenstockError
from penstock.spark.session import check_java

GB = 1_000_000_000
LEAST_MEMORY, GOOD_MEMORY = 1 * GB, 3 * GB
"""Spark's driver takes 1 GB unless told otherwise, and each Python worker some hundred MB."""
LEAST_SPACE, GOOD_SPACE = 0.2 * GB, 2 * GB
"""Shuffles, and the state of runs without a checkpoint, are written there."""


def examine() -> list[Finding]:
    """Look at everything."""
    return [python(), java(), *packages(), workers(), memory(available_memory()), *temporary(), loopback()]


def python() -> Finding:
    """Name the interpreter: one that is too old never comes here."""
    return Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def java() -> Finding:
    """Look for the Java that Spark will use."""
    try:
        return Finding("Java", "ok", check_java())
    except (PenstockError, OSError) as error:
        first, *rest = str(error).splitlines()
        return Finding("Java", "broken", first, "\n".join(rest) or "install Java 17 or later")


def packages() -> list[Finding]:
    """Compare the packages that matter with the ranges that were tested."""
    found = [package("PySpark", "pyspark"), package("PyArrow", "pyarrow"), package("NumPy", "numpy")]
    return [*found, pandas(installed("pandas"), known_range("pandas"))]


def package(what: str, name: str) -> Finding:
    """Look at a package that Penstock needs."""
    version, range_ = installed(name), known_range(name)
    if version is None:
        return Finding(what, "broken", "not installed", f"pip install '{name}{range_}'")
    if not fits(version, range_):
        return Finding(what, "broken", f"{version}, tested is {range_}", f"pip install '{name}{range_}'")
    return Finding(what, "ok", version)


def pandas(version: str | None, range_: str) -> Finding:
    """Look at pandas, which Penstock never needs: PySpark's own pandas functions do, and are choosy."""
    if version is None:
        return Finding("pandas", "ok", "not installed; only PySpark's own pandas functions need it")
    if not fits(version, range_):
        return Finding(
            "pandas",
            "warning",
            f"{version}, tested is {range_}",
            f"Penstock does not use it; where you use PySpark's pandas functions: pip install 'pandas{range_}'",
        )
    return Finding("pandas", "ok", version)


def workers() -> Finding:
    """See whether Spark's workers would run the Python that drives them."""
    chosen = os.environ.get("PYSPARK_PYTHON")
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if chosen is None:
        return Finding("workers' Python", "ok", "the same")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([chosen, "-c", code], capture_output=True, text=True, check=False, timeout=30)
        theirs = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        theirs = ""
    if theirs == mine:
        return Finding("workers' Python", "ok", f"{theirs} (PYSPARK_PYTHON={chosen})")
    found = f"{theirs or 'none that runs'} at PYSPARK_PYTHON={chosen}, and the driver's is {mine}"
    return Finding("workers' Python", "broken", found, f"unset PYSPARK_PYTHON, or point it at a Python {mine}")


def available_memory() -> int | None:
    """Return the bytes that can be had: the system's, or less where a container has a limit; None if not known."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        found += [max(0, int(limit) - int(used))] if limit != "max" else []
    except (OSError, ValueError):
        pass  # another system, or no container
    return min(found, default=None)


def memory(free: int | None) -> Finding:
    """Judge how much memory is to be had."""
    if free is None:
        return Finding("memory", "ok", "this system does not tell")
    fix = (
        "Spark's driver takes 1 GB and each worker some hundred MB: end other programs, give the container more, "
        'or use fewer workers: --master "local[2]"'
    )
    return Finding("memory", _grade(free, LEAST_MEMORY, GOOD_MEMORY), f"{size(free)} available", fix)


def _grade(amount: float, least: float, good: float) -> State:
    return "broken" if amount < least else "warning" if amount < good else "ok"


def temporary() -> list[Finding]:
    """Look at the directories where Spark and Penstock write what is not kept."""
    places = {tempfile.gettempdir(): "temporary space"}
    for place in filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")):
        places.setdefault(place, "Spark's space")
    return [space(what, place) for place, what in places.items()]


def space(what: str, place: str) -> Finding:
    """Judge one directory: writable, and with room."""
    fix = "set TMPDIR, and SPARK_LOCAL_DIRS for Spark, to directories with room"
    try:
        with tempfile.NamedTemporaryFile(dir=place) as file:
            file.write(b"x")
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(what, "broken", f"{place}: {error.strerror}", fix)
    return Finding(what, _grade(free, LEAST_SPACE, GOOD_SPACE), f"{size(free)} free in {place}", fix)


def loopback() -> Finding:
    """See whether programs of this machine can talk to each other: Spark and Python do, all the time."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        return Finding("loopback", "broken", str(error), "let programs listen and connect on 127.0.0.1")
    return Finding("loopback", "ok", "127.0.0.1 answers")
