"""The three queries of the paper, two operators each, and any number of replicas of them.

What they cost per tick of n vehicles is in the paper's order: the first reads the number of vehicles per road, which
the simulator has counted (constant), the second averages speeds (n), the third sorts by speed (n log n). The first
operator of the latter two takes a batch of rows to a few partial results, in NumPy: that is where the work is, and it
is done without the GIL. Their second one puts the partial results of a tick together when the tick has ended. What
comes out is the same however rows were cut into batches, because speeds are added up exactly (see
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
from penstock.lab.workloads.traffic.trace import END, SCHEMA, TICK_MS, Ints
from penstock.operators.windows import Window

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


@dataclass(frozen=True)
class Trace:
    """The streams that queries are asked of."""

    vehicles: Stream
    """One row per vehicle and tick."""
    ticks: Stream
    """One row per tick, when it has ended: how many vehicles the simulator has on each road."""


def trace_of(flow: Flow, reader: Any) -> Trace:
    rows = flow.source("trace", reader, time="time", schema=SCHEMA)
    return Trace(
        rows.filter(pc.field("id") != END, name="vehicles"),
        rows.filter(pc.field("roads").is_valid(), name="ended"),
    )


def agents_per_road(trace: Trace, name: str) -> Stream:
    """Read the number of vehicles on each road, tick by tick: constant in the number of vehicles."""
    # The row that ends a tick has the time of the next.
    counts = trace.ticks.select("roads", "agents", time=pc.field("time") - TICK_MS, name=f"{name}.roads")
    return counts.map(road_counts, schema=Roads, name=f"{name}.ticks")


def average_speed(trace: Trace, name: str) -> Stream:
    """Average the speed of all vehicles, tick by tick: linear in their number."""
    return (
        trace.vehicles.map_batches(speeds, schema=SPEEDS, name=f"{name}.speeds")
        .window(TICK_MS)
        .apply(average, name=f"{name}.ticks")
    )


def top_speed(trace: Trace, name: str, k: int = 10) -> Stream:
    """Sort the vehicles by speed and keep the k fastest, tick by tick: n log n in their number."""
    ranked = trace.vehicles.map_batches(Ranked(k), schema=RANKED, name=f"{name}.ranked")
    return ranked.window(TICK_MS).apply(TopOf(k), schema=Fastest, name=f"{name}.ticks")


QUERIES: dict[str, Callable[[Trace, str], Stream]] = {
    "agents": agents_per_road,
    "average": average_speed,
    "top": top_speed,
}


def add_query(trace: Trace, kind: str, number: int, sink: Any = None) -> str:
    """Add one replica of a query, with operators and a sink of its own; return the sink's name."""
    name = f"{kind}-{number}"
    QUERIES[kind](trace, name).sink(name, sink)
    return name


def build(reader: Any, replicas: int = 1, sink: Callable[[str], Any] = lambda name: None) -> Flow:
    """Build the flow with so many replicas of each query; 50 give the paper's 150 queries and 300 operators."""
    flow = Flow("traffic")
    trace = trace_of(flow, reader)
    for number in range(replicas):
        for kind in QUERIES:
            add_query(trace, kind, number, sink(f"{kind}-{number}"))
    return flow


def road_counts(row: Any) -> Roads:
    """Answer with what the simulator has counted."""
    return Roads(row.time, row.roads, row.agents)


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
        time, number, speed = (batch[name].to_numpy() for name in ("time", "id", "speed"))
        first = tick_starts(time)
        bounds = itertools.pairwise([*first.tolist(), len(time)])
        found = [self._best(low, number, speed[low:high]) for low, high in bounds]
        best = np.concatenate([np.zeros(0, dtype=np.int64), *found])
        index = np.repeat(first, [len(rows) for rows in found])
        return pa.record_batch({"time": time[best], "id": number[best], "speed": speed[best]}), index

    def _best(self, low: int, number: Ints, speed: Any) -> Ints:
        order = np.lexsort((number[low : low + len(speed)], -speed))
        return np.asarray(low + order[: self.k], dtype=np.int64)


@dataclass(frozen=True)
class TopOf:
    """Find the k fastest among the fastest of the parts of a tick."""

    k: int

    def __call__(self, window: Window, rows: list[Any]) -> Fastest:
        best = sorted((-row.speed, row.id) for row in rows)[: self.k]
        return Fastest(window.start, [number for _, number in best], [-speed for speed, _ in best])


def tick_starts(time: Ints) -> Ints:
    """Return where in a batch the ticks begin; their rows stand together."""
    return np.flatnonzero(np.diff(time, prepend=time[:1] - 1)) if len(time) else np.zeros(0, dtype=np.int64)
