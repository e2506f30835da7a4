"""What this process's interpreter does beside a flow: its lock, and its collections of garbage."""

from __future__ import annotations

import gc
import importlib.machinery
import logging
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

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
"""Objects that may be made before the cycle collector looks at the young ones, while a flow runs."""
_collecting = threading.Lock()
_running: list[tuple[int, int, int]] = []
"""For each flow that runs in this process, the collector's settings from before all of them."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the cycle collector look at young objects less often while flows run.

    Rows are many and soon gone, and by default it looks at them every 700 of them.
    """
    with _collecting:
        _running.append(_running[0] if _running else gc.get_threshold())
        gc.set_threshold(max(_running[0][0], COLLECT_EVERY), *_running[0][1:])
    try:
        yield
    finally:
        with _collecting:
            before = _running.pop()
            if not _running:
                gc.set_threshold(*before)
