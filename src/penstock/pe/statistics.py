"""What a processing element is doing: immutable snapshots, cheap enough to be always there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.pe.meters import Latency
from penstock.pe.stations import SinkStation, Station
from penstock.pe.workers import WorkerView


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
    queries: dict[str, Latency]
    """For each sink, the latency of what reaches it."""

    def stuck(self, seconds: float = 10.0) -> tuple[WorkerView, ...]:
        """Return the workers that have been in one operator for longer than that."""
        return tuple(worker for worker in self.workers if worker.busy_for > seconds)


def query_latencies(stations: Iterable[Station]) -> dict[str, Latency]:
    """Summarize the latency at each sink that got something."""
    sinks = [station for station in stations if isinstance(station, SinkStation)]
    return {each.name: found for each in sinks if (found := each.latencies.summary()) is not None}


def operator_stats(stations: Iterable[Station], now: float, entered: dict[int, float]) -> tuple[OperatorStats, ...]:
    """Describe all operators; `entered` says when each batch that is still inside came in."""
    found = []
    for station in stations:
        oldest, waiting = station.progress()
        gap = now - entered[oldest] if waiting and oldest in entered else 0.0
        last = station.nodes[-1]
        for node, meter in station.measured():
            # Fused operators share the first one's queue and the last one's reorder buffer.
            queued = tuple(port.size() for port in station.ports) if node is station.node else (0,)
            order = (waiting, gap) if node is last else (0, 0.0)
            found.append(
                OperatorStats(
                    node.name,
                    node.operator.kind,
                    meter.batches,
                    meter.rows_in,
                    meter.rows_out,
                    meter.wall,
                    meter.cpu,
                    queued,
                    *order,
                )
            )
    return tuple(found)
