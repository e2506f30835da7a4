"""Find and end processes by their ids, through /proc."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def _fields(pid: int) -> list[str]:
    """Return what the system knows of a process, from its state on; nothing where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def parents() -> dict[int, int]:
    """Return the parent of each process that has not ended."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: int(fields[1]) for pid in pids if (fields := _fields(pid))}


def born(pid: int) -> str:
    """Return when a process began, because its number is used again; nothing where it has ended."""
    return (_fields(pid) or [""] * 20)[19]


def below(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    known = parents()
    found = [pid]
    for each in found:
        found += [child for child, parent in known.items() if parent == each]
    return found[1:]


def command(pid: int) -> str:
    """Return the command line of a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def gateways(driver: int) -> list[int]:
    """Return the JVM of a driver."""
    return [pid for pid in below(driver) if "org.apache.spark.deploy.SparkSubmit" in command(pid)]


def executors(driver: int) -> list[int]:
    """Return the JVMs of a driver's executors, on `local-cluster`."""
    return [pid for pid in below(driver) if "CoarseGrainedExecutorBackend" in command(pid)]


def workers(driver: int) -> list[int]:
    """Return the Python workers of a driver's tasks: a daemon forks them."""
    known = parents()
    daemons = {pid for pid in below(driver) if "pyspark.daemon" in command(pid)}
    return [pid for pid in daemons if known.get(pid) in daemons]


def kill(pid: int) -> bool:
    """End a process at once; tell whether there was one."""
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def state(pid: int) -> str:
    """Return the letter of a process's state: T where it is stopped; nothing where it has ended."""
    return (_fields(pid) or [""])[0]


def wake(pid: int) -> None:
    """Let a process that is stopped go on."""
    os.kill(pid, signal.SIGCONT)


def await_end(family: dict[int, str], seconds: float) -> list[int]:
    """Wait until processes, each with its birth, have ended; return those that have not."""
    until = time.monotonic() + seconds
    while (left := [pid for pid, birth in family.items() if born(pid) == birth]) and time.monotonic() < until:
        time.sleep(0.02)  # they are not our children, so nothing tells when they end
    return left


def resident(pid: int) -> int:
    """Return the bytes that a process holds in memory; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
