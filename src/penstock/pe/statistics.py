"""What a processing element is doing: immutable snapshots, cheap enough to be always there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.pe.meters import Latency
from penstock.pe.partitioned_station import PartitionedStation, ShardSquad
from penstock.pe.sink_station import SinkStation
from penstock.pe.stations import StatefulStation, Station
from penstock.pe.worker import WorkerView


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """What one replica of an operator has done, and what waits for it."""

    label: str
    batches: int
    """Batches, or parts of batches, that it worked on."""
    rows: int
    seconds: float
    """Seconds that workers spent in it."""
    queued: int
    full: float
    """Seconds that its queue was full."""
    partitions: tuple[int, ...] = ()
    """The partitions that belong to it, where they do."""


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
    full: tuple[float, ...] = ()
    """Seconds that the queue of each input port was full, so that whoever writes to it was blocked."""
    blocked: Mapping[str, float] = field(default_factory=dict)
    """Seconds that workers in it stood still, by cause: `full`, a queue below was, and somebody else was draining it
    (for a source: as many batches were in the flow as there may be);
    `lock`, another producer was at a queue below; `wait`, its own code waited, for data or the interpreter's lock."""
    replicas: tuple[ReplicaStats, ...] = ()
    """Its replicas; none where its workers share it as its kind allows."""
    errors: int = 0
    """Rows that failed and were passed over."""
    keys: int | None = None
    """Keys that have state; None where the operator has none."""
    partitions: tuple[tuple[int, float], ...] = ()
    """Rows and seconds of each partition, where workers share a keyed operator."""
    permits: int | None = None
    """How many workers it admits; None for any number."""

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
    capacity: int = 0
    """Batches that an input port holds."""
    most_in_flight: int = 0
    """Batches that may be in the element at once."""
    oldest: float = 0.0
    """Seconds since the oldest batch in flight came in."""
    waited: float = 0.0
    """Seconds that whoever brings batches in waited for its sources."""
    computed: float = 0.0
    """Processor seconds of the whole process."""

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
    for station in list(stations):
        oldest, waiting = station.progress()
        gap = now - entered[oldest] if waiting and oldest in entered else 0.0
        last = station.nodes[-1]
        for node, meter in station.measured():
            # Fused operators share the first one's queue and replicas, and the last one's reorder buffer.
            first = node is station.node
            queued = tuple(port.size() for port in station.ports) if first else (0,)
            full = tuple(port.full_seconds() for port in station.ports) if first else (0.0,)
            order = (waiting, gap) if node is last else (0, 0.0)
            partitions = station.partitions() if isinstance(station, PartitionedStation) else ()
            found.append(
                OperatorStats(
                    node.name,
                    node.operator.kind,
                    meter.batches,
                    int(meter.rows_in),
                    int(meter.rows_out),
                    meter.wall,
                    meter.cpu,
                    queued,
                    *order,
                    full,
                    {
                        "full": meter.below_full,
                        "lock": meter.below_taken,
                        "wait": max(0.0, meter.wall - meter.cpu),
                    },
                    replica_stats(station) if first else (),
                    errors=meter.errors,
                    keys=sum(map(len, station.state())) if isinstance(station, StatefulStation) else None,
                    partitions=partitions,
                    permits=len(partitions) if partitions else station.permits,
                )
            )
    return tuple(found)


def rows_through(stations: Iterable[Station]) -> dict[str, tuple[int, int]]:
    """Return the rows into and out of each operator: what costs least to know."""
    return {
        node.name: (int(meter.rows_in), int(meter.rows_out))
        for station in list(stations)
        for node, meter in station.measured()
    }


def replica_stats(station: Station) -> tuple[ReplicaStats, ...]:
    """Describe the replicas of an operator."""
    squad = station.squad
    if squad is None:
        return ()
    table = squad.table if isinstance(squad, ShardSquad) else ()
    return tuple(
        ReplicaStats(
            each.label,
            each.batches,
            each.rows,
            each.seconds,
            each.port.size(),
            each.port.full_seconds(),
            tuple(partition for partition, owner in enumerate(table) if owner == each.index),
        )
        for each in squad.hired
    )
