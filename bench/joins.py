"""Join two streams on Spark: Penstock beside Structured Streaming's stream-stream join, on the same files.

Orders and their payments: most orders are paid some time later, a few never. *Interval* pairs those that are paid in
time; *unbounded* keeps all rows that wait for others, Penstock by a time to live that nothing here reaches. Each side
reads one file of either stream per epoch and writes Parquet; what is measured is the time of its epochs, the first ones
left out.
"""

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from bench import data, measure, session

DESCRIPTION = "interval and unbounded joins of two streams on Spark against Structured Streaming's"

FIRST = 86_400_000_000
"""When the first order is placed, in microseconds since 1970: up to then Structured Streaming drops every row."""
STEP = 1_000
"""Microseconds from one order to the next."""
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("value", pa.float64())])
DDL = "at timestamp, id long, value double"
STATE = "org.apache.spark.sql.execution.streaming.state"
SETTINGS = {
    **session.FAST,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
KINDS = ("interval", "unbounded")


def make_files(root: Path, rows: int, epochs: int, seed: int) -> tuple[int, int]:
    """Write a file of orders and one of payments per epoch; return how many pairs each kind of join has."""
    rng = np.random.default_rng(seed)
    count = rows * epochs
    ordered = FIRST + np.arange(count, dtype=np.int64) * STEP
    # A payment comes up to an epoch and a half after its order; after an epoch it is too late for the interval.
    paid = ordered + rng.integers(0, rows * STEP * 3 // 2, count)
    unpaid = rng.random(count) < 0.1
    ids = np.where(unpaid, count + np.arange(count), np.arange(count))  # somebody else's payment
    by_time = np.argsort(paid, kind="stable")
    streams = {"orders": (ordered, np.arange(count)), "payments": (paid[by_time], ids[by_time])}
    for name, (at, key) in streams.items():
        (root / name).mkdir(parents=True)
        for number in range(epochs):
            part = slice(number * rows, (number + 1) * rows)
            columns = [pa.array(at[part]).cast(SCHEMA.field("at").type), pa.array(key[part]), rng.random(rows)]
            pq.write_table(pa.table(columns, schema=SCHEMA), root / name / f"{number:06d}.parquet")
    return int((~unpaid & (paid - ordered <= rows * STEP)).sum()), int((~unpaid).sum())


def within(rows: int) -> int:
    """Return how late a payment may be, in milliseconds."""
    return rows * STEP // 1_000


def penstock(spark: SparkSession, source: Path, work: Path, kind: str, rows: int, skip: int) -> tuple[float, int]:
    """Run Penstock's join; return rows per second, and how many pairs came out."""
    flow = ps.Flow("joins")
    orders, payments = (
        flow.source(name, ps.read.parquet(str(source / name), schema=SCHEMA), time="at")
        for name in ("orders", "payments")
    )
    reach: dict[str, Any] = {"ttl": "1000 days"} if kind == "unbounded" else {"within": (0, f"{within(rows)} ms")}
    orders.join(payments, on="id", **reach).sink("out", ps.write.parquet(str(work / "out")))
    took: list[tuple[int, float]] = []
    ps.run(
        flow,
        on=ps.Spark(spark, epoch_rows=rows),
        checkpoint=str(work / "checkpoint"),
        on_epoch=lambda stats: took.append((stats.rows_in, stats.seconds)),
    )
    steady = [each for each in took if each[0]][skip:]
    return sum(n for n, _ in steady) / sum(seconds for _, seconds in steady), pairs(work / "out")


def structured(spark: SparkSession, source: Path, work: Path, kind: str, rows: int, skip: int) -> tuple[float, int]:
    """Run Structured Streaming's join; return the same."""
    spark = spark.newSession()
    for key, value in {**session.COMMON, **SETTINGS}.items():
        if key.startswith("spark.sql."):
            spark.conf.set(key, value)
    left, right = (
        spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source / name))
        for name in ("orders", "payments")
    )
    right = right.select(F.col("at").alias("paid_at"), F.col("id").alias("paid_id"), F.col("value").alias("paid_value"))
    condition = "id = paid_id"
    if kind == "interval":
        left, right = left.withWatermark("at", "0 seconds"), right.withWatermark("paid_at", "0 seconds")
        condition += f" AND paid_at >= at AND paid_at <= at + INTERVAL {within(rows)} MILLISECONDS"
    query = (
        left.join(right, F.expr(condition))
        .writeStream.format("parquet")
        .option("path", str(work / "out"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = [(p.numInputRows, p.durationMs["triggerExecution"] / 1000) for p in query.recentProgress if p.numInputRows]
    return sum(n for n, _ in took[skip:]) / sum(seconds for _, seconds in took[skip:]), pairs(work / "out")


def pairs(directory: Path) -> int:
    """Count the rows of Parquet files."""
    return sum(pq.read_metadata(path).num_rows for path in directory.rglob("*.parquet"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=50_000, help="of each stream per epoch")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--skip", type=int, default=4, help="first epochs that are not counted")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side that are counted")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turns and compare them."""
    work = Path(tempfile.mkdtemp(prefix="joins-", dir=made(data.cache_directory())))
    spark = session.make("bench-joins", SETTINGS)
    try:
        expected = dict(zip(KINDS, make_files(work / "in", args.rows, args.epochs, args.seed), strict=True))
        found = {kind: compare(spark, work, kind, expected[kind], args) for kind in args.kinds}
    finally:
        session.close(spark)
        shutil.rmtree(work, ignore_errors=True)
    settings = {"rows": args.rows, "epochs": args.epochs, "rounds": args.rounds}
    return {**settings, "ratio": min(each["ratio"] for each in found.values()), **found}


def compare(spark: SparkSession, work: Path, kind: str, expected: int, args: argparse.Namespace) -> dict[str, Any]:
    """Run one kind of join on both sides, in turns."""
    sides = {"penstock": penstock, "structured_streaming": structured}
    runs = iter(range(1_000))

    def turn(name: str) -> float:
        directory = work / f"{kind}-{name}-{next(runs)}"
        speed, made_pairs = sides[name](spark, work / "in", directory, kind, args.rows, args.skip)
        print(f"{kind}, {name}: {speed:,.0f} rows/s, {made_pairs:,} pairs", file=sys.stderr, flush=True)
        if made_pairs != expected:
            raise AssertionError(f"{kind}, {name}: {made_pairs} pairs, not {expected}")
        shutil.rmtree(directory)
        return speed

    speeds = measure.interleave({name: partial(turn, name) for name in sides}, args.rounds, warmup=1)
    estimates = {name: measure.median(each, seed=args.seed) for name, each in speeds.items()}
    ratio = measure.ratio(speeds["penstock"], speeds["structured_streaming"], seed=args.seed)
    return {
        **{f"{name}_rows_s": each.median for name, each in estimates.items()},
        "ratio": ratio.median,
        "interval": ratio.as_dict(),
    }


def made(directory: Path) -> Path:
    """Make a directory, if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory
