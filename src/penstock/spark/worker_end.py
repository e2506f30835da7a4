"""Close what lives as long as a Python worker when Spark lets the worker go.

Neither `atexit` nor a signal tells: PySpark's daemon forks its workers, which end by `os._exit` once their socket is
closed, and gives them back the default action of SIGHUP before each task, the signal that it sends to its process
group when it goes itself. So a worker that has something to close leaves that group, sees its socket closed a moment
later, as when the JVM dies, and closes on its way out. One that is killed closes nothing.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NoReturn

_closing: list[Callable[[], None]] = []


def at_worker_end(close: Callable[[], None]) -> None:
    """Call something when this worker ends."""
    _prepare(os.getpid())
    _closing.append(close)


@cache
def _prepare(_process: int) -> None:
    """Find the ways out of this process."""
    _closing.clear()  # what a process has that this one was forked from is not its own
    leave = os._exit

    def close_and_leave(status: int) -> NoReturn:
        _close()
        leave(status)

    os._exit = close_and_leave
    atexit.register(_close)  # where there is no daemon
    with suppress(OSError, AttributeError):
        os.setpgid(0, 0)


def _close() -> None:
    while _closing:
        _closing.pop()()
