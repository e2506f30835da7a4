"""Change the tasks of a running flow from 1 to 4 to 2, and beside it do with Spark's own operator what it needs."""

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock as ps
from bench import data, session
from bench.peers import transform_with_state
from bench.stream import Feed, StreamSide
from bench.w1_spark import PEER_SETTINGS
from bench.workload import Event, Running, State, running

DESCRIPTION = "tasks 1 -> 4 -> 2 while a flow runs: the longest pause in its output, and what Spark itself needs"

TASKS = (1, 4, 2)


@dataclass
class Watch:
    """Change the number of tasks at set epochs, and note when each epoch came out."""

    changes: dict[int, int]
    last: int
    done: threading.Event = field(default_factory=threading.Event)
    moments: list[tuple[int, float, int]] = field(default_factory=list)
    run: ps.Run | None = None

    def took(self, stats: Any) -> None:
        """Note an epoch, and set the tasks of the next."""
        if not stats.rows_in:
            return
        self.moments.append((stats.epoch, perf_counter(), stats.tasks))
        if stats.epoch in self.changes and self.run is not None:
            self.run.set_tasks(self.changes[stats.epoch])
        if stats.epoch == self.last:
            self.done.set()


def penstock_side(spark: SparkSession, args: argparse.Namespace, work: Path, epochs: list[list[Path]]) -> dict:
    """Run the flow with all its input there, through all numbers of tasks twice: once to warm up, once to measure."""
    feed = Feed(work, epochs)
    flow = ps.Flow("scale")
    events = flow.source("events", ps.read.parquet(str(feed.watched), schema=data.SCHEMA, follow=True))
    events.key_by("key").scan(running, (0, 0.0), schema=Running, name="running").sink(
        "out", ps.write.parquet(str(work / "output"))
    )
    warm = len(TASKS) * args.warmup
    changes = {(i + 1) * args.warmup: tasks for i, tasks in enumerate((*TASKS[1:], TASKS[0]))}
    changes |= {warm + (i + 1) * args.epochs: tasks for i, tasks in enumerate(TASKS[1:])}
    watch = Watch(changes, len(epochs))
    feed.release(len(epochs))
    watch.run = ps.start(
        flow,
        on=ps.Spark(spark, tasks=TASKS[0], epoch_rows=args.rows_per_epoch),
        checkpoint=str(work / "checkpoint"),
        on_epoch=watch.took,
    )
    while not watch.done.wait(1) and watch.run.running:
        pass
    watch.run.stop()
    watch.run.await_end()
    check(work, epochs)
    gaps = [(b[0], b[1] - a[1], b[2]) for a, b in pairwise(watch.moments) if b[0] > warm + 1]
    seconds = [gap for _, gap, _ in gaps]
    at_changes = [gap for epoch, gap, _ in gaps if epoch - 1 in changes]
    median = statistics.median(seconds)
    return {
        "pause_ratio": max(seconds) / median,
        "pause_at_changes_ratio": max(at_changes) / median,
        "median_epoch_s": median,
        "longest_pause_s": max(seconds),
        "pauses_at_changes_s": at_changes,
        "epoch_s_by_tasks": {
            str(tasks): statistics.median(gap for _, gap, used in gaps if used == tasks) for tasks in TASKS
        },
    }


def check(work: Path, epochs: list[list[Path]]) -> None:
    """Fail unless the output is, row by row, what one loop over the input gives."""
    states: dict[int, State] = {}
    files = sorted((work / "output").glob("epoch=*/part-*.parquet"))
    found = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    for path in (path for epoch in epochs for path in epoch):
        for row in map(Event._make, zip(*(c.to_pylist() for c in pq.read_table(path).columns), strict=True)):
            states[row.key], expected = running(states.get(row.key, (0, 0.0)), row)
            if next(rows, None) != expected:
                raise AssertionError(f"penstock: row {row.serial} of the output is not what a loop gives")
    if next(rows, None) is not None:
        raise AssertionError("penstock: there are more rows than went in")


def spark_side(spark: SparkSession, args: argparse.Namespace, work: Path, epochs: list[list[Path]]) -> dict:
    """Stop Spark's stateful query, repartition its state off line, start it again; until its next output is there."""
    own = spark.newSession()
    for key, value in {**session.COMMON, **session.FAST_SESSION, **PEER_SETTINGS}.items():
        if key.startswith("spark.sql."):
            own.conf.set(key, value)
    checkpoint = work / "checkpoint"

    def query(feed: Feed) -> StreamingQuery:
        # Not the Parquet sink: its log has no entry of the repartitioning's batch, and the query fails when it looks
        # for it (BATCH_METADATA_NOT_FOUND).
        writer = transform_with_state.transform(feed.read(own, data.DDL)).writeStream.format("noop")
        return writer.option("checkpointLocation", str(checkpoint)).start()

    own.conf.set("spark.sql.shuffle.partitions", str(TASKS[0]))
    side = StreamSide(Feed(work, epochs), query)
    side.start()
    try:
        side.run_epochs(args.warmup)
        seconds, pauses = [taken for _, taken in side.run_epochs(args.epochs)], []
        for tasks in TASKS[1:]:
            began = perf_counter()
            side.stop()
            own._streamingCheckpointManager.repartition(str(checkpoint), tasks)
            side.start()
            side.run_epochs(1)
            pauses.append(perf_counter() - began)
            seconds += [taken for _, taken in side.run_epochs(args.epochs)]
    finally:
        side.stop()
    median = statistics.median(seconds)
    return {"pause_ratio": max(pauses) / median, "median_epoch_s": median, "pauses_s": pauses}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows-per-epoch", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=8, help="measured epochs with each number of tasks")
    parser.add_argument("--warmup", type=int, default=8, help="epochs with each number of tasks that are not counted")
    parser.add_argument("--no-spark", dest="spark_side", action="store_false", help="leave out Spark's own operator")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run both sides."""
    epochs = data.epochs(args.seed, len(TASKS) * (args.warmup + args.epochs), args.rows_per_epoch, 2)
    root = Path(tempfile.mkdtemp(prefix="run-", dir=data.cache_directory()))
    spark = session.make("bench-scale", session.FAST)
    theirs: dict[str, Any] = {}
    try:
        ours = penstock_side(spark, args, root / "penstock", epochs)
        print(f"penstock: longest pause {ours['pause_ratio']:.2f} median epochs", file=sys.stderr, flush=True)
        if args.spark_side:
            try:
                theirs = spark_side(spark, args, root / "spark", epochs)
            except Exception as error:  # the API is marked as evolving: what it says is part of the result
                theirs = {"problem": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    finally:
        session.close(spark)
        shutil.rmtree(root, ignore_errors=True)
    return {
        "tasks": list(TASKS),
        "rows_per_epoch": args.rows_per_epoch,
        **ours,
        "exact": True,
        "spark": theirs,
    }
