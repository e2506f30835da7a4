"""Find the Python workers of this process's Spark, to end one of them in the middle of its work."""

from __future__ import annotations

import os
import signal
import subprocess


def python_workers() -> list[int]:
    """Return the processes that Spark's daemon of Python workers has forked; none where `ps` is missing."""
    try:
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    found = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in found}
    daemons = {int(pid) for pid, _, *command in found if command and "pyspark.daemon" in command[0]}
    return [pid for pid in daemons if parents[pid] in daemons and _is_ours(pid, parents)]


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def end_one() -> int | None:
    """End a Python worker at once; return its process id."""
    for pid in python_workers():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return pid
    return None
