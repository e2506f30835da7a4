"""Spend time on a row: in Python, which holds the GIL, in NumPy, which releases it, or by waiting.

How much work a weight in microseconds is, is found by the clock once, when the operator is made, and is then a fixed
amount of work. A loop that looked at the clock instead would count the time in which it waits for the GIL or for a
core as work done, and adding threads would seem to help where it does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from penstock.annotated import Rate, checked

Kind = Literal["numpy", "python", "waiting", "blocking"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""`waiting` is an `async def`, of which many rows wait at once; `blocking` sleeps and keeps its worker with it."""

Work = Callable[[], object]
"""The work of one row; that of a waiting operator returns what to await."""


class Kernel:
    """Spend NumPy time on a row without holding the GIL.

    One call takes the sine of an array; how many elements, or how many calls, is found by the clock, so that a
    weight in microseconds means about the same on every machine.
    """

    LARGEST = 8_192
    """Elements of one call: more would spend the time on memory instead."""

    def __init__(self, microseconds: float) -> None:
        self.microseconds = microseconds
        self._values = np.random.default_rng(0).random(self.LARGEST)
        self._calls = 1
        whole = _clocked(self)
        self._calls = max(1, round(microseconds / whole))
        self._values = self._values[: max(1, round(self.LARGEST * min(1.0, microseconds / whole)))].copy()

    def __call__(self) -> None:
        for _ in range(self._calls):
            np.sin(self._values)


class Loop:
    """Spend Python time on a row: the worker that runs it holds the GIL."""

    def __init__(self, microseconds: float) -> None:
        self.microseconds = microseconds
        self._turns = 1_000
        self._turns = max(1, round(self._turns * microseconds / _clocked(self)))

    def __call__(self) -> None:
        for _ in range(self._turns):
            pass


class Sleep:
    """Sleep for a row, and keep the worker that runs it."""

    def __init__(self, microseconds: float) -> None:
        self.microseconds = microseconds

    def __call__(self) -> None:
        time.sleep(self.microseconds / 1e6)


class Wait:
    """Wait for a row in an event loop, as a request would."""

    def __init__(self, microseconds: float) -> None:
        self.microseconds = microseconds

    async def __call__(self) -> None:
        await asyncio.sleep(self.microseconds / 1e6)


def _nothing() -> None:
    """Do no work."""


_WORK: dict[Kind, type[Kernel | Loop | Sleep | Wait]] = {
    "numpy": Kernel,
    "python": Loop,
    "waiting": Wait,
    "blocking": Sleep,
}


@lru_cache(maxsize=64)
@checked
def make_work(kind: Kind, microseconds: Rate) -> Work:
    """Return the work of a kind and a weight; equal operators share it, so that it is measured and shipped once."""
    if microseconds == 0 and kind != "waiting":
        return _nothing
    return _WORK[kind](microseconds)


def _clocked(work: Work) -> float:
    """Return the microseconds of one call: the least of a few, for everything else only adds to it."""
    return min(_microseconds(work) for _ in range(7))


def _microseconds(work: Work) -> float:
    began = time.perf_counter()
    for _ in range(20):
        work()
    return (time.perf_counter() - began) / 20 * 1e6
