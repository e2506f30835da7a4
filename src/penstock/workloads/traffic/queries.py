"""The three queries of the paper, two operators each, and any number of replicas of them.

The first operator takes a batch of rows to a few partial results, in NumPy: that is where the work is, and it is done
without the GIL. The second one puts the partial results of a tick together when the tick has ended. What comes out is
the same however rows were cut into batches, because counts and maxima are exact and speeds are added up exactly (see
`trace.SPEED_STEPS`); a partial result stands at the first row that it was made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flow import Flow, Stream
from penstock.operators.windows import Window
from penstock.workloads.traffic.trace import END, LANES, SCHEMA, TICK_MS, Ints

ROAD_COUNTS = {"time": int, "roads": list[int], "agents": list[int]}
SPEEDS = {"time": int, "agents": int, "total": float}
RANKED = {"time": int, "id": int, "speed": float}

Partial = tuple[pa.RecordBatch, Ints]


class Roads(NamedTuple):
    """How many vehicles there are on each road at a tick; roads without any are left out."""

    time: int
    roads: list[int]
    agents: list[int]


class Average(NamedTuple):
    """The average speed at a tick."""

    time: int
    agents: int
    speed: float


class Fastest(NamedTuple):
    """The fastest vehicles of a tick, the fastest first; of two as fast the one with the smaller number."""

    time: int
    ids: list[int]
    speeds: list[float]


def vehicles(flow: Flow, reader: Any) -> Stream:
    """Bring the rows of a trace in, without those that only end a tick."""
    rows = flow.source("trace", reader, time="time", schema=SCHEMA)
    return rows.filter(pc.field("id") != END, name="vehicles")


def agents_per_road(stream: Stream, name: str) -> Stream:
    """Count the vehicles on each road, tick by tick."""
    counts = stream.map_batches(road_counts, schema=ROAD_COUNTS, name=f"{name}.roads")
    return counts.window(TICK_MS).apply(all_roads, name=f"{name}.ticks")


def average_speed(stream: Stream, name: str) -> Stream:
    """Average the speed of all vehicles, tick by tick."""
    return (
        stream.map_batches(speeds, schema=SPEEDS, name=f"{name}.speeds")
        .window(TICK_MS)
        .apply(average, name=f"{name}.ticks")
    )


def top_speed(stream: Stream, name: str, k: int = 10) -> Stream:
    """Find the k fastest vehicles, tick by tick."""
    ranked = stream.map_batches(Ranked(k), schema=RANKED, name=f"{name}.ranked")
    return ranked.window(TICK_MS).apply(TopOf(k), schema=Fastest, name=f"{name}.ticks")


QUERIES: dict[str, Callable[[Stream, str], Stream]] = {
    "agents": agents_per_road,
    "average": average_speed,
    "top": top_speed,
}


def add_query(stream: Stream, kind: str, number: int, sink: Any = None) -> str:
    """Add one replica of a query, with operators and a sink of its own; return the sink's name."""
    name = f"{kind}-{number}"
    QUERIES[kind](stream, name).sink(name, sink)
    return name


def build(reader: Any, replicas: int = 1, sink: Callable[[str], Any] = lambda name: None) -> Flow:
    """Build the flow with so many replicas of each query; 50 give the paper's 150 queries and 300 operators."""
    flow = Flow("traffic")
    stream = vehicles(flow, reader)
    for number in range(replicas):
        for kind in QUERIES:
            add_query(stream, kind, number, sink(f"{kind}-{number}"))
    return flow


def road_counts(batch: pa.RecordBatch) -> Partial:
    """Count the vehicles of each tick and road; a row has all roads of a tick, for one a road would be many rows."""
    time, road = batch["time"].to_numpy(), batch["lane"].to_numpy() // LANES
    most = int(road.max(initial=0)) + 1
    groups, agents = np.unique(time * most + road, return_counts=True)
    begins = tick_starts(groups // most)
    offsets = np.append(begins, len(groups)).astype(np.int32)
    roads, counts = (pa.ListArray.from_arrays(offsets, values) for values in (groups % most, agents))
    return pa.record_batch({"time": groups[begins] // most, "roads": roads, "agents": counts}), tick_starts(time)


def all_roads(window: Window, rows: list[Any]) -> Roads:
    """Add up the partial counts of a tick."""
    total: dict[int, int] = {}
    for row in rows:
        for road, agents in zip(row.roads, row.agents, strict=True):
            total[road] = total.get(road, 0) + agents
    roads = sorted(total)
    return Roads(window.start, roads, [total[road] for road in roads])


def speeds(batch: pa.RecordBatch) -> Partial:
    """Count the vehicles of each tick, and add up their speeds."""
    time = batch["time"].to_numpy()
    first = tick_starts(time)
    total = np.add.reduceat(batch["speed"].to_numpy(), first) if len(first) else np.zeros(0)
    agents = np.diff(first, append=len(time))
    return pa.record_batch({"time": time[first], "agents": agents, "total": total}), first


def average(window: Window, rows: list[Any]) -> Average:
    """Put the partial sums of a tick together."""
    agents = sum(row.agents for row in rows)
    return Average(window.start, agents, sum(row.total for row in rows) / agents)


@dataclass(frozen=True)
class Ranked:
    """Find the k fastest of each tick in a batch."""

    k: int

    def __call__(self, batch: pa.RecordBatch) -> Partial:
        """Take a batch."""
        time, number, speed = (batch[name].to_numpy() for name in ("time", "id", "speed"))
        first = tick_starts(time)
        bounds = itertools.pairwise([*first.tolist(), len(time)])
        found = [self._best(low, number, speed[low:high]) for low, high in bounds]
        best = np.concatenate([np.zeros(0, dtype=np.int64), *found])
        index = np.repeat(first, [len(rows) for rows in found])
        return pa.record_batch({"time": time[best], "id": number[best], "speed": speed[best]}), index

    def _best(self, low: int, number: Ints, speed: Any) -> Ints:
        if len(speed) > self.k:
            least = np.partition(speed, -self.k)[-self.k]
            rows = np.flatnonzero(speed >= least)  # more than k, if several are as fast as the last one
        else:
            rows = np.arange(len(speed))
        order = np.lexsort((number[low + rows], -speed[rows]))
        return np.asarray(low + rows[order][: self.k], dtype=np.int64)


@dataclass(frozen=True)
class TopOf:
    """Find the k fastest among the fastest of the parts of a tick."""

    k: int

    def __call__(self, window: Window, rows: list[Any]) -> Fastest:
        """Take the partial results of one tick."""
        best = sorted((-row.speed, row.id) for row in rows)[: self.k]
        return Fastest(window.start, [number for _, number in best], [-speed for speed, _ in best])


def tick_starts(time: Ints) -> Ints:
    """Return where in a batch the ticks begin; their rows stand together."""
    return np.flatnonzero(np.diff(time, prepend=time[:1] - 1)) if len(time) else np.zeros(0, dtype=np.int64)
