"""Repeat Ordered's skew experiment: the hybrid against the partitioned queue, Gaussian keys in range partitions.

The partitioned queue has as many partitions as workers, the hybrid one many more; the wider the Gaussian, the more
even the partitions. With two workers a Gaussian around the middle of the keys falls in two equal halves however narrow
it is, so one around the middle of a half is measured beside it: with more workers, every Gaussian is skewed.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from bench import local_side, measure
from penstock.local.engine import Options
from penstock.operators.base import Key
from penstock.order.partitioning import RangePartitioning
from penstock.order.queues import HybridQueue, PartitionedQueue
from penstock.pe.chunk import Chunk
from penstock.pe.element import Settings
from penstock.pe.stations import PartitionedStation

DESCRIPTION = "Ordered's skew experiment: hybrid against partitioned queue, throughput and latency by sigma"

QUEUES: dict[str, Any] = {"hybrid": HybridQueue, "partitioned": PartitionedQueue}
KEY_SPACE = 1_000_000


def gaussian_keys(seed: int, rows: int, center: float, sigma: float) -> npt.NDArray[np.int64]:
    """Draw keys from a Gaussian cut at [-1, 1], scaled to the key space."""
    rng = np.random.default_rng(seed)
    kept = np.empty(0)
    while len(kept) < rows:
        drawn = rng.normal(center, sigma, 2 * rows)
        kept = np.concatenate([kept, drawn[np.abs(drawn) < 1]])
    return ((kept[:rows] + 1) / 2 * KEY_SPACE).astype(np.int64)


def range_shards(key: Key, chunk: Chunk, count: int) -> npt.NDArray[np.int64]:
    """Map keys to equal ranges of the key space, in place of the engine's hash."""
    bounds = RangePartitioning(tuple(KEY_SPACE * i // count for i in range(1, count)))
    return bounds.shards_of(chunk.get_columns().column(key.fields[0]).to_numpy())


class Experiment:
    """One distribution of keys, and the operator that works on them."""

    def __init__(self, keys: npt.NDArray[np.int64], work: Callable[[], None], args: argparse.Namespace) -> None:
        self._keys, self._work, self._args = keys, work, args
        self.latencies: dict[str, list[float]] = {name: [] for name in QUEUES}

    def turn(self, name: str) -> float:
        """Run the operator behind one kind of queue; check the outputs; keep the latency; return the seconds."""
        rows, work, clock = len(self._keys), self._work, time.perf_counter
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
        source = flow.source("rows", ps.read.generate(self._table, schema={"serial": int, "key": int}, rows=rows))
        source.key_by("key").scan(step, 0, name="step").sink("out", ps.write.callback(leave))
        partitions = self._args.workers if name == "partitioned" else self._args.partitions
        settings = Settings(workers=self._args.workers, partitions=partitions)
        station = partial(PartitionedStation, queue=QUEUES[name])
        with local_side.stations_with(PartitionedStation=station, key_shards=range_shards):
            _, seconds = local_side.run_flow(flow, Options(self._args.batch_rows, settings=settings))
        local_side.check_order(name, found, rows)
        # As the paper has it: without the first and the last fifth, which are starting and ending.
        middle = slice(rows // 5, rows * 4 // 5)
        self.latencies[name].append(float(np.mean(np.subtract(left[middle], started[middle]))) * 1e3)
        return seconds

    def _table(self, start: int, stop: int) -> pa.Table:
        return local_side.serials(start, stop).append_column("key", pa.array(self._keys[start:stop]))


def shares(keys: npt.NDArray[np.int64], workers: int) -> list[float]:
    """Return the part of the rows that each of so many equal ranges has."""
    counts = np.bincount(keys * workers // KEY_SPACE, minlength=workers)
    return [round(float(count) / len(keys), 3) for count in counts]


def measured(center: float, sigma: float, work: Callable[[], None], args: argparse.Namespace) -> dict[str, Any]:
    """Run both queues in turns on one distribution and compare them."""
    keys = gaussian_keys(args.seed, args.rows, center, sigma)
    experiment = Experiment(keys, work, args)
    turns = {
        name: local_side.clocked(f"center {center}, sigma {sigma}, {name}", args.rows, partial(experiment.turn, name))
        for name in QUEUES
    }
    speeds = measure.interleave(turns, args.rounds, args.warmup)
    late = {name: each[args.warmup :] for name, each in experiment.latencies.items()}
    return {
        "center": center,
        "sigma": sigma,
        "largest_share": max(shares(keys, args.workers)),
        **local_side.compare(speeds, {"ratio": ("hybrid", "partitioned")}, args.seed),
        **{f"{name}_latency_ms": measure.median(each, seed=args.seed).median for name, each in late.items()},
        "latency_ratio": measure.ratio(late["hybrid"], late["partitioned"], seed=args.seed).median,
    }


def waiting(microseconds: float) -> Callable[[], None]:
    """Return work that only waits: it lets a small machine stand for one with a core a worker."""
    return partial(time.sleep, microseconds / 1e6)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.1, 0.25, 0.5, 1.0, 2.0])
    parser.add_argument("--centers", type=float, nargs="+", default=[0.0, 0.5], help="0 is the paper's")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=100, help="of the hybrid queue; the other has the workers'")
    parser.add_argument("--work", choices=("numpy", "wait"), default="numpy", help="compute, or only wait")
    parser.add_argument("--microseconds", type=float, default=200, help="what a row costs")
    parser.add_argument("--rows", type=int, default=4_096, help="rows of a turn")
    parser.add_argument("--batch-rows", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=1, help="turns of every side that are not counted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Compare the queues for each distribution of keys."""
    work: Callable[[], None] = (
        local_side.Kernel(args.microseconds) if args.work == "numpy" else waiting(args.microseconds)
    )
    settings = {
        name: getattr(args, name)
        for name in ("workers", "partitions", "work", "microseconds", "rows", "batch_rows", "rounds", "warmup")
    }
    found: Sequence[dict[str, Any]] = [
        measured(center, sigma, work, args) for center in args.centers for sigma in args.sigmas
    ]
    return {**settings, "experiments": found}
