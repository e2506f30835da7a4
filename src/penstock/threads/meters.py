"""How long batches take from the source to the sink, and how long something has been so."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from typing import cast

import numpy as np

from penstock.order.primitives import Lock
from penstock.statistics import Latency

_KEPT = 4096
"""Batches whose latency is remembered."""


class Spells:
    """Add up how long something has been so. Any thread begins and ends a spell, and one that is under way counts."""

    def __init__(self, clock: Callable[[], float], lock: Lock | None = None) -> None:
        self._clock, self._lock = clock, lock or cast(Lock, threading.Lock())
        self._ended = 0.0
        self._since: float | None = None

    def begin(self) -> None:
        """Note that it is so from now on."""
        self._change(self._clock())

    def end(self) -> None:
        """Note that it is so no more, if it was."""
        if self._since is not None:
            self._change(None)

    def _change(self, since: float | None) -> None:
        self._lock.acquire()
        before, self._since = self._since, since
        if before is not None:
            self._ended += self._clock() - before
        self._lock.release()

    def seconds(self) -> float:
        """Return how long it has been so until now, in all."""
        self._lock.acquire()
        ended, since = self._ended, self._since
        self._lock.release()
        return ended if since is None else ended + self._clock() - since


class Latencies:
    """Remember how long the last batches took. One thread at a time adds; anyone may read."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._seconds = array("d", bytes(8 * kept))
        """A ring: NumPy reads it as it is."""
        self._added = 0
        self._run = _Evenly(kept)
        self._summed: tuple[int, Latency | None] = (0, None)
        """How many batches there were at the last summary, and what it was."""

    def add(self, seconds: float) -> None:
        """Take the latency of a batch."""
        added = self._added
        self._seconds[added % self._kept] = seconds
        self._run.add(seconds)
        self._added = added + 1

    def summary(self) -> Latency | None:
        """Summarize the last batches."""
        added, (known, summary) = self._added, self._summed
        if added != known:
            values = np.sort(np.frombuffer(self._seconds, np.float64, min(added, self._kept)))
            summary = Latency(len(values), _quantile(values, 0.5), _quantile(values, 0.99), self._run.middle_mean())
            self._summed = added, summary
        return summary


class _Evenly:
    """Values taken evenly over a whole run, never more than a fixed number: when full it lets every second one go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: list[float] = []
        self._every, self._skipped = 1, 0

    def add(self, value: float) -> None:
        """Take the next value, or pass it over."""
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        if len(self._values) == self._most:
            # A new list: a thread that is reading the old one reads it to its end.
            self._values, self._every = self._values[1::2], 2 * self._every
        self._values.append(value)

    def middle_mean(self) -> float:
        """Return the mean of the values from 20 to 80 % of the run."""
        values = self._values
        cut = len(values) // 5
        middle = values[cut : len(values) - cut]
        return sum(middle) / len(middle)


def _quantile(values: np.ndarray[tuple[int], np.dtype[np.float64]], part: float) -> float:
    """Return a quantile of sorted values, between two of them if need be; NumPy's own takes longer than the sort."""
    at = part * (len(values) - 1)
    low = int(at)
    first, second = values[low : low + 2].tolist() if low + 1 < len(values) else [float(values[low])] * 2
    return float(first + (second - first) * (at - low))
