"""Describe the stations of an element: what was counted of each operator, and what waits."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.statistics import Latency, OperatorStats, ReplicaStats
from penstock.threads.outputs import SinkStation
from penstock.threads.partitioned_station import PartitionedStation, ShardSquad
from penstock.threads.stateful_station import StatefulStation
from penstock.threads.stations import Station
from penstock.threads.waiting_stations import WaitingStation


def query_latencies(stations: Iterable[Station]) -> dict[str, Latency]:
    """Summarize the latency at each sink that got something."""
    sinks = [station for station in stations if isinstance(station, SinkStation)]
    return {each.name: found for each in sinks if (found := each.latencies.summary()) is not None}


def operator_stats(stations: Iterable[Station], now: float, entered: dict[int, float]) -> dict[str, OperatorStats]:
    """Describe all operators; `entered` says when each batch that is still inside came in."""
    found = {}
    for station in stations:
        each = [
            OperatorStats(
                totals.batches,
                totals.rows_in,
                totals.rows_out,
                totals.wall,
                totals.cpu,
                totals.below_full,
                below_taken=totals.below_taken,
                errors=totals.errors,
                retries=totals.retries,
                timeouts=totals.timeouts,
                forgotten=totals.forgotten,
                name=node.name,
                kind=node.operator.kind,
                full=(0.0,),
                queued=(0,),
                permits=station.permits,
                queue_of=(station.host or station).name,
            )
            for node, totals in station.measured()
        ]
        # Fused operators share the first one's queue and replicas, and the last one's reorder buffer.
        first, last = each[0], each[-1]
        first.queued = tuple(port.size() for port in station.ports)
        first.full = tuple(port.full_seconds() for port in station.ports)
        first.came = sum(port.rows_came(recent=False) for port in station.counts.ports)
        first.rows_queued = station.counts.rows_waiting
        first.replicas = replica_stats(station)
        oldest, last.reorder_depth = station.progress()
        last.oldest_gap = now - entered[oldest] if last.reorder_depth and oldest in entered else 0.0
        if isinstance(station, WaitingStation):
            first.in_flight, first.begun = station.in_flight_seconds(), station.begun()
        if isinstance(station, StatefulStation):
            first.keys = sum(map(len, station.state()))
        if isinstance(station, PartitionedStation):
            first.shards = dict(enumerate(station.partitions()))
            first.permits = len(first.shards)
            first.table = station.squad.table if station.squad.hired else None
        found.update({stats.name: stats for stats in each})
    return found


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
            partitions=tuple(partition for partition, owner in enumerate(table) if owner == each.index),
        )
        for each in squad.hired
    )
