"""What this process's interpreter does beside a flow: its lock, and its collections of garbage."""

from __future__ import annotations

import gc
import importlib.machinery
import logging
import math
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import ParamSpec, TypeVar

from penstock.clock import perf_counter
from penstock.order.threads import gil_enabled

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

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
    extension = find(extensions)
    return "a module" if extension is None else f"the import of {extension}"


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


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """Return a method that does not keep its object, for what this object keeps: both go when nobody else has it.

    What a flow came to goes with its engine then, and not when the collector next looks at all objects.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        kept = reference()
        assert kept is not None
        return kept(*args, **kwargs)

    return call


COLLECT_EVERY = 20_000
"""Objects that may be made before the cycle collector looks for cycles, while a flow runs; at least."""
COLLECT_ALL_EVERY = 100_000
"""The same where it looks at all objects, and not at the young ones alone."""
MOST_SHARE = 0.02
"""The part of the time that looking may take where there are next to no cycles."""
MOST_STEPS = 16.0
"""How many times as many objects may be made as before the look."""
MOST_OBJECTS = 2**25
"""The interpreter counts with 32 bits, and up to forty times as many."""
MANY_CYCLES = 0.1
"""Cycles are many from this part of the objects on that were made since the last look."""


def next_look(every: int, least: int, found: int, took: float, since: float) -> int:
    """Return how many objects may be made until the collector looks again.

    If it found next to nothing, so many that what it took would have been the share that it may take: what is there is
    in use, and where rows are kept it is more each time. Without a GIL the collector looks at all objects, and nobody
    runs meanwhile, so that each worker that there is waits as long.
    """
    if found > MANY_CYCLES * every:
        return least
    steps = took / (MOST_SHARE * since) if since > 0 else MOST_STEPS
    return min(math.ceil(every * min(max(1.0, steps), MOST_STEPS)), MOST_OBJECTS)


def pass_over() -> bool:
    """Have young objects count as old ones, which the collector looks at by far less often, without a look at them.

    False where it was told never to look at some objects: it would at these, too.
    """
    if gc.get_freeze_count():
        return False
    gc.freeze()
    gc.unfreeze()
    return True


class _Looks:
    """Follow what the collector does, and say when it is to look again.

    To look less often is not to look at fewer objects: what is kept is looked at once in any case, as long as it is
    young. So where looks take long for nothing the next young objects are passed over. Cycles among them stay until
    Python looks at all objects: they are few, for most of what the last look saw was kept.
    """

    def __init__(self) -> None:
        self.before = gc.get_threshold()
        self._began, self._ended = 0.0, perf_counter()
        self._over = self._passing = False
        # Without a GIL there are no young objects, and from 3.14 on a look is at some old ones, too.
        self._generations = gil_enabled() and sys.version_info < (3, 14)
        self._least = max(self.before[0], COLLECT_EVERY if self._generations else COLLECT_ALL_EVERY)
        self._every, self._left = self._least, 0
        """Objects from look to look, and how many times it is not to look until then."""

    def begin(self) -> None:
        if self.before[0] > 0:  # otherwise it never looks
            gc.set_threshold(self._least, *self.before[1:])
            gc.callbacks.append(self.seen)

    def end(self) -> None:
        if self.before[0] > 0:
            self._over = True
            gc.callbacks.remove(self.seen)
            if self._generations and self._every > self._least:
                pass_over()  # it would look at all that is young as soon as it may
            gc.set_threshold(*self.before)

    def seen(self, phase: str, info: Mapping[str, int]) -> None:
        now = perf_counter()
        if phase == "start":
            self._began, self._passing = now, self._left > 0 and info["generation"] < 2 and pass_over()
            self._left -= self._passing
            return
        if self._passing:
            return
        seen = self._least if self._generations else self._every  # the others were passed over, and had as many cycles
        found = info["collected"] * self._every // seen
        self._every = next_look(self._every, self._least, found, now - self._began, now - self._ended)
        self._ended = now
        if self._generations:
            self._left = self._every // self._least - 1
        else:
            gc.set_threshold(self._every, *self.before[1:])
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
