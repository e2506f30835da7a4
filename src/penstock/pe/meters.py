"""Measure operators and workers while they work: each thread counts for itself, and a snapshot adds up."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import get_ident


@dataclass(slots=True)
class Meter:
    """What one thread did for one operator."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    wall: float = 0.0
    cpu: float = 0.0


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
        return sum_
