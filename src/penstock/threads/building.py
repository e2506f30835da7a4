"""Build the stations of a plan and the links between them, for a new flow or for one that runs already.

A plan may change while a flow runs, because queries come and go: from a given batch on, batches take other ways.
Operators that are in both plans go on as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.errors import FlowError
from penstock.flow.building import is_placed
from penstock.kernels.chains import find_chains
from penstock.kernels.join_states import JoinStates
from penstock.kernels.running import new_states
from penstock.kernels.state_columns import ColumnStates
from penstock.operators.base import Sink, Union
from penstock.operators.lookup import Lookup
from penstock.operators.stateless import rows_gather, rows_wait
from penstock.order.queues import HybridQueue
from penstock.plan.graph import Edge, KeyedNode, Node
from penstock.plan.plan import Plan
from penstock.threads.outputs import SinkStation
from penstock.threads.partitioned_station import QUEUES, PartitionedStation
from penstock.threads.replicas import Dealers
from penstock.threads.sources import SourceStation
from penstock.threads.stateful_station import PausingStation, StatefulStation
from penstock.threads.stateless_stations import FusedStation, LookupStation, StatelessStation
from penstock.threads.stations import (
    Link,
    Station,
    Surroundings,
    UnionStation,
)
from penstock.threads.waiting_stations import GatheringStation, SpanningStation, WaitingStation


def extend(
    stations: dict[str, Station],
    around: Surroundings,
    *,
    alone: bool,
    fuse: bool,
    sinks: bool,
    apart: Iterable[str] = (),
    settled: int = 0,
) -> list[Station]:
    """Make the stations that a plan needs and that are not there; link all as it says, from batch `first` on.

    `alone` says that an operator never has more than one worker, `fuse` that consecutive operators without memory may
    share a station, but for those that are to stay `apart`, `sinks` that sinks may be run with what they read,
    `settled` that all batches before that number are out, so that the ways that only they took can be forgotten.
    Returns the new stations.
    """
    plan = around.plan
    known = by_operator(stations)
    # What was placed by hand is where it was placed.
    beside = {*known, *apart, *(name for name, node in plan.nodes.items() if is_placed(node))}
    chains = {nodes[0].name: nodes for nodes in find_chains(plan, beside=beside)} if fuse else {}
    inside = {node.name for nodes in chains.values() for node in nodes[1:]}
    made: list[Station] = [
        _dealing(FusedStation(chains[name], around)) if name in chains else make_station(node, around, alone)
        for name, node in plan.nodes.items()
        if name not in known and name not in inside
    ]
    stations.update({station.name: station for station in made})
    known = by_operator(stations)
    wanted: dict[str, list[Link]] = {name: [] for name in stations}
    for edge in plan.graph.edges:
        source, target = known[edge.source.node], known[edge.target]
        if isinstance(target, SinkStation) and target in made:
            target.host = source if sinks and _may_write(source, alone) and not is_placed(target.node) else None
        if source is not target:
            wanted[source.name].append(_link(plan, edge, source, target, around.first))
    for name, station in stations.items():
        # A new list, not the old one changed: workers may be reading it.
        links = [link for link in station.links if link.until > settled]
        station.links = _changed(links, wanted[name], around.first)
        below = [link.target for link in station.links if link.until == math.inf]
        station.counts.connect(port.counts for port in below if port.station.host is None)
    around.measured.keep(name for name, station in stations.items() if station.host is None)
    return made


def by_operator(stations: Mapping[str, Station]) -> dict[str, Station]:
    """Return the station of each operator."""
    return {node.name: station for station in stations.values() for node in station.nodes}


def make_station(node: Node, around: Surroundings, alone: bool) -> Station:
    """Make the station that fits an operator."""
    operator = node.operator
    if isinstance(operator, Sink):
        return SinkStation(node, around)
    if isinstance(operator, Union):
        return UnionStation(node, around)
    if isinstance(node, KeyedNode):
        if node.operator.kind == "partitioned" and around.partitions > 1:
            # By columns one worker is faster than several with the parts.
            whole = alone or isinstance(new_states(node), ColumnStates | JoinStates)
            return PartitionedStation(node, around, QUEUES.get(around.partitioned, HybridQueue), whole=whole)
        return PausingStation(node, around) if node.operator.logic.waits else StatefulStation(node, around)
    if rows_wait(operator):
        return WaitingStation(node, around) if alone else SpanningStation(node, around)
    if rows_gather(operator) and not alone:
        return GatheringStation(node, around)
    if not node.inputs:
        return SourceStation(node, around)
    return _dealing((LookupStation if isinstance(operator, Lookup) else StatelessStation)(node, around))


def _may_write(station: Station, alone: bool) -> bool:
    """Tell whether the worker of an operator may run the sinks that read it, too.

    Not where the operator would be held up meanwhile although others could write, nor where it brings rows in, which
    is no work for workers, or waits for them.
    """
    if isinstance(station, SourceStation | WaitingStation):
        return False
    return alone or isinstance(station, StatelessStation | PartitionedStation)


def _dealing(station: StatelessStation) -> StatelessStation:
    """Let a station have replicas."""
    station.squad = Dealers(station)
    return station


def _link(plan: Plan, edge: Edge, above: Station, below: Station, first: int) -> Link:
    source = edge.source
    return Link(
        above.output_of(source.node, source.index),
        below.ports[edge.port],
        edge.index if source.node in plan.layout.fanouts else None,
        plan.nodes[source.node].types[source.index] if plan.is_cut(edge) else None,
        edge.target in plan.timed,
        first,
    )


def _changed(links: list[Link], wanted: list[Link], first: int) -> list[Link]:
    """Return the links with those closed that are not wanted any more, and new ones opened."""
    changed = []
    for link in links:
        same = next((w for w in wanted if (w.output, w.target) == (link.output, link.target)), None)
        if same is not None and same.keeps_times == link.keeps_times:
            wanted.remove(same)
            changed.append(link)
        elif same is not None:
            wanted.remove(same)
            # What changes is only whether times go along; the components of positions stay.
            changed += [replace(link, until=first), replace(link, keeps_times=same.keeps_times, since=first)]
        else:
            changed.append(replace(link, until=min(link.until, first)))
    return changed + wanted


def check_change(stations: Mapping[str, Station], new: Plan) -> None:
    """Refuse a plan whose new operators need more of running ones than these have.

    Running ones are as they were when they were made, whatever plans came after that.
    """
    running = by_operator(stations)
    for name, node in new.nodes.items():
        if name in running:
            if node not in running[name].nodes:
                raise FlowError(
                    f"operator {name!r} runs already, and is another one now; give the new one its own name"
                )
            continue
        for port in node.inputs:
            above = running.get(port.node)
            if above is not None and above.shape != new.layout.shapes[port.node]:
                raise FlowError(
                    f"operator {name!r} brings streams together that part above {port.node!r}, which runs already and "
                    f"does not keep track of their order; build the new query from the stream before they part"
                )
