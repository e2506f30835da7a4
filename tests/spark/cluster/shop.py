"""A module of the user's own, which only the driver can import: workers get it with the flow."""

from __future__ import annotations

import os
import signal
from typing import Any

import penstock

OUT = {"n": int, "k": int, "count": int, "total": float, "executor": int, "module": str, "penstock": str}


def parent(pid: int) -> int:
    """Return the parent of a process."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


class Running:
    """Count and add up a key's values, and tell where that was done; one row kills the executor, once."""

    def __init__(self, kill_at: int = -1, marker: str = "") -> None:
        self.kill_at, self.marker = kill_at, marker

    def __call__(self, state: tuple[int, float], row: Any) -> tuple[tuple[int, float], tuple[Any, ...]]:
        # A worker's parent is the daemon that it was forked from, and the daemon's is the executor.
        executor = parent(os.getppid())
        if row.n == self.kill_at and not os.path.exists(self.marker):
            with open(self.marker, "w") as file:
                file.write(str(executor))
            os.kill(executor, signal.SIGKILL)
        count, total = state[0] + 1, state[1] / 2 + row.v
        return (count, total), (row.n, row.k, count, total, executor, __file__, penstock.__file__)
