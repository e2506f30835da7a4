"""Measure operators and workers while they work: each thread counts for itself, and a snapshot adds up."""

from __future__ import annotations

from array import array
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

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._seconds = array("d", bytes(8 * kept))
        """A ring: NumPy reads it as it is."""
        self._added = 0
        self._summed: tuple[int, Latency | None] = (0, None)
        """How many batches there were at the last summary, and what it was."""

    def add(self, seconds: float) -> None:
        """Take the latency of a batch."""
        added = self._added
        self._seconds[added % self._kept] = seconds
        self._added = added + 1

    def summary(self) -> Latency | None:
        """Summarize the last batches."""
        added, (known, summary) = self._added, self._summed
        if added != known:
            values = np.sort(np.frombuffer(self._seconds, np.float64, min(added, self._kept)))
            count = len(values)
            middle = values[count // 5 : count - count // 5]
            summary = Latency(
                count, _quantile(values, 0.5), _quantile(values, 0.99), float(np.add.reduce(middle)) / len(middle)
            )
            self._summed = added, summary
        return summary


def _quantile(values: np.ndarray[tuple[int], np.dtype[np.float64]], part: float) -> float:
    """Return a quantile of sorted values, between two of them if need be; NumPy's own takes longer than the sort."""
    at = part * (len(values) - 1)
    low = int(at)
    first, second = values[low : low + 2].tolist() if low + 1 < len(values) else [float(values[low])] * 2
    return float(first + (second - first) * (at - low))
