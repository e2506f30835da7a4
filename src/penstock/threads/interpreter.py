"""What this process's interpreter does beside a flow: its lock, and its collections of garbage."""

from __future__ import annotations

import gc
import importlib.machinery
import logging
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from penstock.clock import perf_counter
from penstock.order.threads import gil_enabled

log = logging.getLogger(__name__)

PROBE = """
import importlib, sys
sys.path[:] = sys.argv[1].split("|")
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except Exception:
        continue
    if sys._is_gil_enabled():
        print(name)
        break
"""
PROBE_SECONDS = 60.0


@cache
def warn_of_gil() -> None:
    """Warn, once in a process, if the GIL was turned on in an interpreter that was built to run without."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") and gil_enabled():
        log.warning(
            "penstock: threads run one at a time, because %s turned the GIL on in this free-threaded Python",
            reason(bool(getattr(sys.flags, "gil", 0)), loaded_extensions(), first_with_gil),
        )


def reason(forced: bool, extensions: Sequence[str], find: Callable[[Sequence[str]], str | None]) -> str:
    """Name what turned the GIL on: a setting, or the first of the modules that was imported and asked for it."""
    if forced:
        return "PYTHON_GIL=1 or -X gil=1"
    found = find(extensions)
    return "a module" if found is None else f"the import of {found}"


def loaded_extensions() -> list[str]:
    """Return the modules that are no Python code, in the order in which they were imported."""
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    return [
        name for name, module in list(sys.modules.items()) if str(getattr(module, "__file__", "")).endswith(suffixes)
    ]


def first_with_gil(names: Sequence[str]) -> str | None:
    """Import modules in an interpreter of their own, one after the other; return the first that turns the GIL on."""
    try:
        made = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROBE, "|".join(sys.path), *names],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return made.stdout.strip() or None


COLLECT_EVERY = 100_000
"""Objects that may be made before the cycle collector looks for cycles, while a flow runs; at least."""
MOST_SHARE = 0.02
"""The part of the time that looking may take where there are next to no cycles."""
MANY_CYCLES = 0.1
"""Cycles are many from this part of the objects on that were made since the last look."""


def next_look(every: int, least: int, found: int, took: float, since: float) -> int:
    """Return how many objects may be made until the collector looks again.

    Twice as many as the last time if it found next to nothing and took long: what is there is in use, and where rows
    are kept it is more each time. Without a GIL the collector looks at all objects, and nobody runs meanwhile.
    """
    if found > MANY_CYCLES * every:
        return least
    return min(2 * every, 2**30) if took > MOST_SHARE * since else every


class _Looks:
    """Follow what the collector does, and say when it is to look again."""

    def __init__(self) -> None:
        self.before = gc.get_threshold()
        self._least, self._began, self._ended = max(self.before[0], COLLECT_EVERY), 0.0, perf_counter()
        self._over = False

    def begin(self) -> None:
        if self.before[0] > 0:  # otherwise it never looks
            gc.set_threshold(self._least, *self.before[1:])
            gc.callbacks.append(self.seen)

    def end(self) -> None:
        if self.before[0] > 0:
            self._over = True
            gc.callbacks.remove(self.seen)
            gc.set_threshold(*self.before)

    def seen(self, phase: str, info: Mapping[str, int]) -> None:
        now = perf_counter()
        if phase == "start":
            self._began = now
            return
        every = gc.get_threshold()[0]
        wanted = next_look(every, self._least, info["collected"], now - self._began, now - self._ended)
        gc.set_threshold(wanted, *self.before[1:])
        self._ended = now
        if self._over:  # meanwhile: without a GIL another thread may have ended the last flow
            gc.set_threshold(*self.before)


_collecting = threading.Lock()
_flows = 0
_looks: _Looks | None = None


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the cycle collector look for cycles less often while flows run, and as before when the last one has ended.

    Rows are many and soon gone, and by default it looks at them every 700 of them.
    """
    global _flows, _looks
    with _collecting:
        _flows += 1
        if _looks is None:
            _looks = _Looks()
            _looks.begin()
    try:
        yield
    finally:
        with _collecting:
            _flows -= 1
            if _flows == 0 and _looks is not None:
                _looks.end()
                _looks = None
