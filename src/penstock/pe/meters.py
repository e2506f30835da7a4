"""Measure operators and workers while they work: each thread counts for itself, and a snapshot adds up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import get_ident

import numpy as np

_KEPT = 4096
"""Batches whose latency is remembered."""


@dataclass(slots=True)
class Meter:
    """What one thread did for one operator."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    below_full: float = 0.0
    """Seconds that the thread stood still because a queue below was full and somebody else was draining it."""
    below_taken: float = 0.0
    """Seconds that it stood still because another producer was at a queue below."""
    errors: int = 0
    """Rows that failed and were passed over."""


@dataclass
class Meters:
    """What all threads did for one operator. No thread writes what another one writes, so nothing is locked."""

    by_thread: dict[int, Meter] = field(default_factory=dict)

    def mine(self) -> Meter:
        """Return the meter of the calling thread."""
        ident = get_ident()
        found = self.by_thread.get(ident)
        if found is None:
            found = self.by_thread[ident] = Meter()
        return found

    def total(self) -> Meter:
        """Add up the meters of all threads."""
        sum_ = Meter()
        for meter in list(self.by_thread.values()):
            sum_.batches += meter.batches
            sum_.rows_in += meter.rows_in
            sum_.rows_out += meter.rows_out
            sum_.wall += meter.wall
            sum_.cpu += meter.cpu
            sum_.below_full += meter.below_full
            sum_.below_taken += meter.below_taken
            sum_.errors += meter.errors
        return sum_


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the moment that rows are read to the moment that what they led to is out."""

    batches: int
    p50: float
    p99: float
    trimmed_mean: float
    """The mean between the 20th and the 80th percentile, as Ordered reports it."""


class Latencies:
    """Remember how long the last batches took. One thread at a time adds; anyone may read."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KEPT)

    def add(self, seconds: float) -> None:
        """Take the latency of a batch."""
        self._seconds.append(seconds)

    def summary(self) -> Latency | None:
        """Summarize the last batches."""
        values = np.sort(np.array(self._seconds.copy(), np.float64))
        if not len(values):
            return None
        middle = values[len(values) // 5 : len(values) - len(values) // 5]
        p50, p99 = np.quantile(values, [0.5, 0.99]).tolist()
        return Latency(len(values), p50, p99, float(middle.mean()))
