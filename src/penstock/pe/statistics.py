"""What a processing element is doing: immutable snapshots, cheap enough to be always there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from penstock.pe.stations import Station
from penstock.pe.workers import WorkerView

_KEPT = 4096
"""Batches whose latency is remembered."""


@dataclass(frozen=True, slots=True)
class OperatorStats:
    """What one operator has done, and what waits for it."""

    name: str
    kind: str
    batches: int
    rows_in: int
    rows_out: int
    wall: float
    """Seconds that workers spent in it."""
    cpu: float
    """Seconds of processor time among them: the difference is waiting, and waiting for the interpreter's lock."""
    queued: tuple[int, ...]
    """Batches that wait at each input port."""
    reorder_depth: int
    """Batches that are done and wait for an earlier one."""
    oldest_gap: float
    """Seconds since the batch that they wait for came in; 0 where none waits."""

    @property
    def selectivity(self) -> float | None:
        """Rows out for a row in."""
        return self.rows_out / self.rows_in if self.rows_in else None


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the moment that rows are read to the moment that what they led to is out."""

    batches: int
    p50: float
    p99: float
    trimmed_mean: float
    """The mean between the 20th and the 80th percentile, as Ordered reports it."""


@dataclass(frozen=True, slots=True)
class ElementStats:
    """What an element is doing."""

    at: float
    rows_in: int
    batches_in: int
    batches_out: int
    operators: tuple[OperatorStats, ...]
    workers: tuple[WorkerView, ...]
    latency: Latency | None
    """Of the last batches; None before the first one is out."""

    def stuck(self, seconds: float = 10.0) -> tuple[WorkerView, ...]:
        """Return the workers that have been in one operator for longer than that."""
        return tuple(worker for worker in self.workers if worker.busy_for > seconds)


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


def operator_stats(stations: Iterable[Station], now: float, entered: dict[int, float]) -> tuple[OperatorStats, ...]:
    """Describe all operators; `entered` says when each batch that is still inside came in."""
    found = []
    for station in stations:
        meter = station.meters.total()
        oldest, waiting = station.progress()
        gap = now - entered[oldest] if waiting and oldest in entered else 0.0
        found.append(
            OperatorStats(
                station.name,
                station.node.operator.kind,
                meter.batches,
                meter.rows_in,
                meter.rows_out,
                meter.wall,
                meter.cpu,
                tuple(port.size() for port in station.ports),
                waiting,
                gap,
            )
        )
    return tuple(found)
