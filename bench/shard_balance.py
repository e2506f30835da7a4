"""Run W1 with a costly row under skewed and shifting keys: Penstock mends its table, or keeps the static hash table."""

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import penstock as ps
from bench import data, measure, session
from bench.penstock_side import PenstockSide
from bench.stream import Feed
from bench.workload import Event, Running, State, running
from penstock.rows.keys import SHARDS
from penstock.spark.stages import even_table

DESCRIPTION = "shards moved between tasks under shifting skew, against the static hash table, on Spark"

LIMIT = 1.25
"""A stage is balanced if its busiest task has at most this much of the mean."""


class Costly:
    """W1's function, with so many turns of a loop for each row: computing dominates."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def __call__(self, state: State, row: Event) -> tuple[State, Running]:
        """Take one event into its key's state."""
        spun = row.value
        for _ in range(self.turns):
            spun = spun * 0.5 + 1.0
        return running(state, row)


@dataclass
class Seen:
    """What the epochs of one side at one skew showed."""

    speeds: list[float] = field(default_factory=list)
    imbalance: list[float] = field(default_factory=list)


def make_epochs(work: Path, args: argparse.Namespace, skew: float) -> list[list[Path]]:
    """Write the input: the frequencies of the keys are permuted anew every `--period` epochs."""
    work.mkdir()
    rows = args.rows_per_epoch // 2
    epochs = []
    for epoch in range(args.warmup + args.epochs):
        phase = max(0, epoch - args.warmup) // args.period
        paths = []
        for number in (2 * epoch, 2 * epoch + 1):
            paths.append(work / f"{number:06d}.parquet")
            pq.write_table(data.events(1000 * args.seed + phase, number, rows, exponent=skew), paths[-1])
        epochs.append(paths)
    return epochs


def make_side(spark: SparkSession, args: argparse.Namespace, work: Path, epochs: list[list[Path]]) -> PenstockSide:
    """Return Penstock over a feed of its own, with a given number of tasks."""

    def flow(feed: Feed) -> ps.Flow:
        made = ps.Flow("shard_balance")
        events = made.source("events", ps.read.parquet(str(feed.watched), schema=data.SCHEMA, follow=True))
        counted = events.key_by("key").scan(Costly(args.turns), (0, 0.0), schema=Running, name="running")
        counted.sink("out", ps.write.parquet(str(work / "output")))
        return made

    on = ps.Spark(spark, epoch_rows=args.rows_per_epoch, tasks=args.tasks)
    return PenstockSide(Feed(work, epochs), flow, work / "checkpoint", on)


def epoch_of(side: PenstockSide, seen: Seen) -> None:
    """Run one epoch and note its speed and the busiest task over the mean, in processor seconds."""
    ((rows, seconds),) = side.run_epochs(1)
    tasks = [cpu for _, cpu in side.run.epochs[-1].stage_times[1]]
    seen.speeds.append(rows / seconds)
    seen.imbalance.append(max(tasks) / statistics.mean(tasks))


def recovery(imbalance: list[float], period: int) -> list[int]:
    """Return, for each permutation, how many epochs passed from its first until one was balanced again."""
    found = []
    for start in range(period, len(imbalance), period):
        after = imbalance[start : start + period]
        found.append(next((number for number, each in enumerate(after) if each <= LIMIT), len(after)))
    return found


def moves(side: PenstockSide) -> tuple[int, int]:
    """Return how many shards were moved, and the bytes of their state."""
    numbers = [dict(line.numbers) for line in side.run.decisions if line.what == "table"]
    return int(sum(each["shards"] for each in numbers)), int(sum(each["state_bytes"] for each in numbers))


def read_output(work: Path) -> pa.Table:
    """Read a side's output in its order."""
    files = sorted((work / "output").glob("epoch=*/part-*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def check(works: dict[str, Path], rows: int) -> None:
    """Fail unless both sides gave every row once, in order, with the same values."""
    tables = {name: read_output(work) for name, work in works.items()}
    if (tables["static"]["serial"].to_numpy() != np.arange(rows)).any():
        raise AssertionError("the outputs are not in the order of the inputs")
    if not tables["elastic"].equals(tables["static"]):
        raise AssertionError("the outputs of the two sides differ")


def run_skew(spark: SparkSession, args: argparse.Namespace, root: Path, skew: float) -> dict[str, Any]:
    """Run both sides in turns at one skew."""
    epochs = make_epochs(root / f"input-{skew}", args, skew)
    works = {name: root / f"{name}-{skew}" for name in ("elastic", "static")}
    sides = {name: make_side(spark, args, work, epochs) for name, work in works.items()}
    seen = {name: Seen() for name in sides}
    try:
        for side in sides.values():
            side.start()
        sides["static"].run.set_table("running", even_table(SHARDS, args.tasks))
        for number in range(args.warmup + args.epochs):
            if number == args.warmup:
                seen = {name: Seen() for name in sides}
            for name, side in sides.items():
                epoch_of(side, seen[name])
        count, moved = moves(sides["elastic"])
    finally:
        for side in sides.values():
            side.stop()
    check(works, args.rows_per_epoch * (args.warmup + args.epochs))
    # The first epoch of a permutation runs with the table of the one before: it is what is recovered from.
    settled = [each for i, each in enumerate(seen["elastic"].imbalance) if i % args.period]
    found = {
        "ratio": measure.ratio(seen["elastic"].speeds, seen["static"].speeds, seed=args.seed),
        "recovery": recovery(seen["elastic"].imbalance, args.period),
        "imbalance_static": statistics.median(seen["static"].imbalance),
        "imbalance_at_permutation": statistics.median(seen["elastic"].imbalance[:: args.period]),
        "imbalance_after": statistics.median(settled),
        "imbalance_worst_after": max(settled),
        "moves": count,
        "moved_state_bytes": moved,
        "elastic_rows_s": statistics.median(seen["elastic"].speeds),
        "static_rows_s": statistics.median(seen["static"].speeds),
        "pairs": (seen["elastic"].speeds, seen["static"].speeds),
    }
    print(f"skew {skew}: {found['ratio'].median:.2f} of static, {count} moves", file=sys.stderr, flush=True)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows-per-epoch", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=20, help="measured epochs of both sides at each skew")
    parser.add_argument("--period", type=int, default=5, help="epochs from permutation to permutation")
    parser.add_argument("--warmup", type=int, default=10, help="epochs that are not counted")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--turns", type=int, default=300, help="turns of the loop that a row costs")
    parser.add_argument("--skews", type=float, nargs="*", default=[0.5, 0.8, 1.0])


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all skews and summarize."""
    data.cache_directory().mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="run-", dir=data.cache_directory()))
    spark = session.make("bench-shard-balance", session.FAST)
    try:
        results = {skew: run_skew(spark, args, root, skew) for skew in args.skews}
    finally:
        session.close(spark)
        shutil.rmtree(root, ignore_errors=True)
    pairs = [each.pop("pairs") for each in results.values()]
    overall = measure.ratio(
        [speed for elastic, _ in pairs for speed in elastic],
        [speed for _, static in pairs for speed in static],
        seed=args.seed,
    )
    recovered = [epochs for each in results.values() for epochs in each["recovery"]]
    return {
        "tasks": args.tasks,
        "rows_per_epoch": args.rows_per_epoch,
        "turns": args.turns,
        "ratio": overall.median,
        "recovery_epochs": max(recovered, default=None),
        "moved_state_bytes": sum(each["moved_state_bytes"] for each in results.values()),
        "moves": sum(each["moves"] for each in results.values()),
        "skews": {
            str(skew): {**each, "ratio": each["ratio"].as_dict(), "balanced": each["imbalance_after"] <= LIMIT}
            for skew, each in results.items()
        },
        "intervals": {"ratio": overall.as_dict()},
    }
