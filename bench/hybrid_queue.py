"""Repeat Ordered's skew experiment: the hybrid against the partitioned and the shared queue, Gaussian keys in ranges.

All put batches back in order by the non-blocking buffer; the hybrid queue runs with the lock-based one, too.
Elasticutor's elastic executor runs beside them, with as many partitions as the hybrid queue and a replica a worker; its
table is balanced while it runs.

The partitioned queue has as many partitions as workers, the hybrid one many more; the wider the Gaussian, the more
even the partitions. Two kinds of work: NumPy, with two workers, and one that only waits, so that more workers than the
machine has cores can be busy. With two workers a Gaussian around the middle of the keys falls in two equal halves
however narrow it is, so NumPy is measured with one around the middle of a half, too.

At a low load, with even keys, it is the latency that counts (the paper's figure 10), from the start of a row's work
until its output leaves: it is to be close to what the work takes. Rows come by chance there, as they do where nobody
paces them: equally spaced ones would never meet, and no queue would have anything to do. Were
nothing lost between rows, two workers would have the cost as latency with the hybrid queue, and with the partitioned
one 1.6 % more at a quarter of what they can do, 10 % at half. `low_load_ratio` is the geometric mean of what was
measured, hybrid over partitioned.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from bench import local_side, measure
from penstock.connectors.interfaces import Feed
from penstock.lab import Locked
from penstock.order.queues import HybridQueue, PartitionedQueue, SharedQueue
from penstock.order.reorder import LockedReorderBuffer, ReorderBuffer
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings
from penstock.threads.stations import Partitioned

DESCRIPTION = "Ordered's skew experiment: hybrid, partitioned and shared queue, throughput and latency by sigma"


@dataclass(frozen=True)
class Side:
    """How the workers of the operator share its partitions, and what puts batches back in order."""

    partitioned: Partitioned
    queue: type
    locked: bool = False


SIDES = {
    "hybrid": Side("hybrid", HybridQueue),
    "partitioned": Side("partitioned", PartitionedQueue),
    "shared": Side("shared", SharedQueue),
    "hybrid_locked": Side("hybrid", HybridQueue, locked=True),
    "executor": Side("executor", HybridQueue),
}
PAIRS = {
    "ratio": ("hybrid", "partitioned"),
    "shared_ratio": ("hybrid", "shared"),
    "locked_ratio": ("hybrid", "hybrid_locked"),
    "executor_ratio": ("executor", "hybrid"),
}
KEY_SPACE = 1_000_000
EVEN = 100.0
"""A sigma of keys that are all but evenly spread."""
SKEWED = 1.5
"""A part of the rows for one worker's partition, as a multiple of its share, from which on keys count as skewed."""


def gaussian_keys(seed: int, rows: int, center: float, sigma: float) -> npt.NDArray[np.int64]:
    """Draw keys from a Gaussian cut at [-1, 1], scaled to the key space."""
    rng = np.random.default_rng(seed)
    kept = np.empty(0)
    while len(kept) < rows:
        drawn = rng.normal(center, sigma, 2 * rows)
        kept = np.concatenate([kept, drawn[np.abs(drawn) < 1]])
    return ((kept[:rows] + 1) / 2 * KEY_SPACE).astype(np.int64)


def range_bounds(count: int) -> tuple[int, ...]:
    """Return the bounds of so many equal ranges of the key space."""
    return tuple(KEY_SPACE * i // count for i in range(1, count))


def check_ranges(name: str, station: Any, keys: npt.NDArray[np.int64]) -> None:
    """Fail unless each partition got as many rows as there are keys in its range."""
    found = [shard.rows for shard in station._shards.values()]
    shards = np.searchsorted(range_bounds(len(found)), keys, "right")
    if found != np.bincount(shards, minlength=len(found)).tolist():
        raise AssertionError(f"{name}: the rows did not go to the partitions of their ranges")


@dataclass(frozen=True)
class Kind:
    """What the operator does with a row, and with how many workers."""

    name: str
    work: Callable[[], None]
    workers: int
    microseconds: float
    centers: tuple[float, ...]


class Arrivals:
    """A clock by which rows that are due at a rate arrive by chance, with as many in a second (a Poisson process)."""

    def __init__(self, rows: int, rate: float, seed: int) -> None:
        self._moments = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, rows))
        self._rate = rate
        self._began: float | None = None

    def __call__(self) -> float:
        """Return when as many rows as have arrived would be due."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
            return 0.0
        arrived = int(np.searchsorted(self._moments, now - self._began, "right"))
        return (arrived + 0.5) / self._rate


class ByChance(LocalEngine):
    """The engine, with a source whose rows arrive by chance."""

    arrivals: Arrivals

    def _feeds(self) -> dict[str, Feed]:
        return {node.name: node.operator.reader.feed(node.name, self.arrivals) for node in self._plan.sources}


class Experiment:
    """One distribution of keys, and the operator that works on them; rows come by chance at a rate, or without one."""

    def __init__(
        self, keys: npt.NDArray[np.int64], kind: Kind, args: argparse.Namespace, rate: float | None = None
    ) -> None:
        self._keys, self._kind, self._args, self._rate = keys, kind, args, rate
        self.latencies: dict[str, list[float]] = {}

    def turn(self, name: str) -> float:
        """Run the operator behind one kind of queue; check the outputs; keep the latency; return the seconds."""
        rows, work, clock = len(self._keys), self._kind.work, time.perf_counter
        started, left, found = [0.0] * rows, [0.0] * rows, []

        def step(count: int, row: Any) -> tuple[int, tuple[int, int]]:
            started[row.serial] = clock()
            work()
            return count + 1, (row.serial, count + 1)

        def leave(rows: list[Any], _epoch: int) -> None:
            now = clock()
            for serial, _ in rows:
                found.append(serial)
                left[serial] = now

        flow = ps.Flow("skew")
        schema = {"serial": int, "key": int}
        reader = ps.read.generate(self._table, schema=schema, rows=rows, rows_per_second=self._rate)
        source = flow.source("rows", reader)
        workers, side = self._kind.workers, SIDES[name]
        partitions = workers if name == "partitioned" else self._args.partitions
        keyed = source.key_by("key", ranges=range_bounds(partitions) or None)
        keyed.scan(step, 0, name="step").sink("out", ps.write.callback(leave))
        settings = Settings(workers=workers, partitions=partitions, partitioned=side.partitioned)
        if side.locked:
            settings = replace(settings, reorder=Locked())
        options = LocalOptions(self._args.batch_rows, settings=settings)
        if name == "executor":
            options = replace(options, steer=frozenset({"shards"}), period=self._args.balance_seconds)
        kind: type[LocalEngine] = LocalEngine
        if self._rate is not None:
            kind = type("Paced", (ByChance,), {"arrivals": Arrivals(rows, self._rate, self._args.seed)})
        engine, seconds = local_side.run_flow(flow, options, kind)
        built: Any = engine.element.stations["step"]
        local_side.check_part(name, built._queue, side.queue)
        buffer = engine.element.stations["out"].around.published
        local_side.check_part(name, buffer, LockedReorderBuffer if side.locked else ReorderBuffer)
        if len(built.squad.hired) != (workers if name == "executor" else 0):
            raise AssertionError(f"{name}: the operator has {len(built.squad.hired)} replicas")
        check_ranges(name, built, self._keys)
        local_side.check_order(name, found, rows)
        # As the paper has it: without the first and the last fifth, which are starting and ending.
        middle = slice(rows // 5, rows * 4 // 5)
        self.latencies.setdefault(name, []).append(float(np.mean(np.subtract(left[middle], started[middle]))) * 1e3)
        return seconds

    def _table(self, start: int, stop: int) -> pa.Table:
        return local_side.serials(start, stop).append_column("key", pa.array(self._keys[start:stop]))


def largest_share(keys: npt.NDArray[np.int64], workers: int) -> float:
    """Return the part of the rows that the fullest of so many equal ranges has."""
    return round(float(np.bincount(keys * workers // KEY_SPACE).max()) / len(keys), 3)


def measured(kind: Kind, center: float, sigma: float, args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns on one distribution and compare them."""
    keys = gaussian_keys(args.seed, args.rows, center, sigma)
    experiment = Experiment(keys, kind, args)
    turns = {
        name: local_side.clocked(
            f"{kind.name}, center {center}, sigma {sigma}, {name}", args.rows, partial(experiment.turn, name)
        )
        for name in args.sides
    }
    speeds = measure.interleave(turns, args.rounds, args.warmup)
    late = {name: each[args.warmup :] for name, each in experiment.latencies.items()}
    return {
        "work": kind.name,
        "workers": kind.workers,
        "microseconds": kind.microseconds,
        "center": center,
        "sigma": sigma,
        "largest_share": largest_share(keys, kind.workers),
        **local_side.compare(speeds, PAIRS, args.seed),
        **{f"{name}_latency_ms": measure.median(each, seed=args.seed).median for name, each in late.items()},
        "latency_ratio": measure.ratio(late["hybrid"], late["partitioned"], seed=args.seed).median
        if {"hybrid", "partitioned"} <= late.keys()
        else None,
    }


def low_load(microseconds: float, load: float, args: argparse.Namespace) -> dict[str, Any]:
    """Measure the latency of rows that come by chance, at a part of what the workers can do."""
    kind = Kind("wait", partial(time.sleep, microseconds / 1e6), args.workers, microseconds, (0.0,))
    rate = load * kind.workers * 1e6 / microseconds
    rows = max(50, int(rate * args.load_seconds))
    experiment = Experiment(gaussian_keys(args.seed, rows, 0.0, EVEN), kind, args, rate)
    turns = {
        name: local_side.clocked(
            f"{microseconds:g} us at a load of {load}, {name}", rows, partial(experiment.turn, name)
        )
        for name in PAIRS["ratio"]
    }
    measure.interleave(turns, args.rounds, args.warmup)
    late = {name: experiment.latencies[name][args.warmup :] for name in PAIRS["ratio"]}
    found = {name: measure.median(each, seed=args.seed) for name, each in late.items()}
    return {
        "microseconds": microseconds,
        "load": load,
        "rows_s": rate,
        "latency_over_cost": found["hybrid"].median / (microseconds / 1e3),
        "latency_ratio": measure.ratio(late["hybrid"], late["partitioned"], seed=args.seed).median,
        **{f"{name}_latency_ms": each.median for name, each in found.items()},
        "intervals": {name: each.as_dict() for name, each in found.items()},
    }


def kinds(args: argparse.Namespace) -> list[Kind]:
    """Return the kinds of work that were asked for."""
    found = []
    if "numpy" in args.work:
        kernel = local_side.Kernel(args.microseconds)
        found.append(Kind("numpy", kernel, args.workers, args.microseconds, tuple(args.centers)))
    if "wait" in args.work:
        wait = partial(time.sleep, args.wait_microseconds / 1e6)
        found.append(Kind("wait", wait, args.wait_workers, args.wait_microseconds, (0.0,)))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.1, 0.25, 0.5, 1.0, 2.0])
    parser.add_argument("--work", choices=("numpy", "wait"), nargs="+", default=["numpy", "wait"])
    parser.add_argument("--centers", type=float, nargs="+", default=[0.0, 0.5], help="for NumPy; 0 is the paper's")
    parser.add_argument("--workers", type=int, default=2, help="for NumPy")
    parser.add_argument("--microseconds", type=float, default=200, help="what a row costs, for NumPy")
    parser.add_argument("--wait-workers", type=int, default=8)
    parser.add_argument("--wait-microseconds", type=float, default=1_000)
    parser.add_argument("--partitions", type=int, default=100, help="of the hybrid queue; the other has the workers'")
    parser.add_argument("--balance-seconds", type=float, default=0.05, help="of the executor, from move to move")
    parser.add_argument("--rows", type=int, default=2_048, help="rows of a turn")
    parser.add_argument("--batch-rows", type=int, help="(default: found by the engine)")
    parser.add_argument(
        "--loads", type=float, nargs="+", default=[0.25, 0.5], help="low loads, as parts of what the workers can do"
    )
    parser.add_argument("--load-microseconds", type=float, nargs="+", default=[1_000, 10_000], help="at the low load")
    parser.add_argument("--load-seconds", type=float, default=2, help="length of a turn at the low load")
    parser.add_argument("--rounds", type=int, default=5, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=1, help="turns of every side that are not counted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Compare the queues for each kind of work and distribution of keys, and at a low load."""
    settings = {name: getattr(args, name) for name in ("partitions", "rows", "batch_rows", "loads", "rounds", "warmup")}
    found = [
        measured(kind, center, sigma, args) for kind in kinds(args) for center in kind.centers for sigma in args.sigmas
    ]
    slow = [low_load(microseconds, load, args) for microseconds in args.load_microseconds for load in args.loads]
    skewed = [each["latency_ratio"] for each in found if each["largest_share"] * each["workers"] >= SKEWED]
    compared = [ratio for ratio in skewed if ratio is not None]
    return {
        **settings,
        "latency_over_cost": max((each["latency_over_cost"] for each in slow), default=None),
        "low_load_ratio": statistics.geometric_mean(each["latency_ratio"] for each in slow) if slow else None,
        "hybrid_over_partitioned": max(compared, default=None),
        "low_load": slow,
        "experiments": found,
    }
