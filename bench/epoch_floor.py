"""Measure what an epoch costs before it does any work: Penstock against a bare `foreachBatch`."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

import penstock as ps
from bench import data, measure, session
from bench.penstock_side import PenstockSide
from bench.remote import RemoteSide
from bench.sides import Epoch, Side
from bench.stream import Feed, StreamSide

DESCRIPTION = "the fixed cost of an epoch: Penstock, a bare foreachBatch, and one with Spark's defaults"

TASKS = 2


def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do nothing with the batches."""
    yield from batches


def epoch(rows: DataFrame, _: int) -> None:
    """Run one epoch: a shuffle by task number, a Python stage, and its rows to the driver."""
    shuffled = rows.repartitionById(TASKS, (sf.col("key") % TASKS).cast("int"))
    shuffled.mapInArrow(pass_on, data.DDL).collect()


class BareSide:
    """A bare `foreachBatch` query in a Spark application of its own."""

    def __init__(self, work: str, epochs: list[list[str]], settings: dict[str, str]) -> None:
        self._work = Path(work)
        self._settings = settings
        self._feed = Feed(self._work, [[Path(path) for path in each] for each in epochs])
        self._side = StreamSide(self._feed, self._query, spacing=True)

    def _query(self, feed: Feed) -> StreamingQuery:
        rows = feed.read(self._spark, data.DDL)
        writer = rows.writeStream.foreachBatch(epoch)
        return writer.option("checkpointLocation", str(self._work / "checkpoint")).start()

    def start(self) -> None:
        """Start Spark and the query."""
        self._spark = session.make("bench-floor", self._settings)
        self._side.start()

    def run_epochs(self, n: int) -> list[Epoch]:
        """Run `n` epochs back to back, and one before them whose end is the first one's start."""
        return self._side.run_epochs(n + 1)

    def stop(self) -> None:
        """Stop the query and Spark."""
        self._side.stop()
        if hasattr(self, "_spark"):
            session.close(self._spark)


def count(state: int, row: Any) -> tuple[int, int]:
    """Keep the smallest state there is: how many rows the key has had."""
    return state + 1, state + 1


def ignore(rows: list[Any], epoch: int) -> None:
    """Take the rows of an epoch, as the bare side's collect does."""


class FlowSide:
    """A small keyed flow in a Spark application of its own, over a streaming DataFrame or over the directory itself."""

    def __init__(self, work: str, epochs: list[list[str]], frame: bool, rows: int) -> None:
        self._work, self._frame = Path(work), frame
        feed = Feed(self._work, [[Path(path) for path in each] for each in epochs])
        self._side = PenstockSide(feed, self._flow, self._work / "checkpoint", ps.Spark(epoch_rows=rows), spacing=True)

    def _flow(self, feed: Feed) -> ps.Flow:
        flow = ps.Flow("floor")
        directory = ps.read.parquet(str(feed.watched), schema=data.SCHEMA, follow=True)
        source = feed.read(self._spark, data.DDL) if self._frame else directory
        flow.source("events", source).key_by("key").scan(count, 0).sink("out", ignore)
        return flow

    def start(self) -> None:
        """Start Spark and the flow."""
        self._spark = session.make("bench-floor", session.FAST)
        self._side.start(self._spark)

    def run_epochs(self, n: int) -> list[Epoch]:
        """Run `n` epochs back to back, and one before them whose end is the first one's start."""
        return self._side.run_epochs(n + 1)

    def stop(self) -> None:
        """Stop the flow and Spark."""
        self._side.stop()
        if hasattr(self, "_spark"):
            session.close(self._spark)


def penstock_side(work: Path, epochs: list[list[Path]], frame: bool, rows: int) -> Side:
    """Return a flow in a process of its own."""
    paths = [[str(path) for path in each] for each in epochs]
    return RemoteSide("bench.epoch_floor:FlowSide", work=str(work), epochs=paths, frame=frame, rows=rows)


def bare_side(work: Path, epochs: list[list[Path]], settings: dict[str, str]) -> Side:
    """Return a bare side in a process of its own: the socket setting belongs to the application."""
    paths = [[str(path) for path in each] for each in epochs]
    return RemoteSide("bench.epoch_floor:BareSide", work=str(work), epochs=paths, settings=settings)


def turn(name: str, side: Side, n: int) -> float:
    """Run `n` epochs of a side and return their median in milliseconds."""
    milliseconds = measure.median([1000 * seconds for _, seconds in side.run_epochs(n)]).median
    print(f"{name}: {milliseconds:.0f} ms an epoch", file=sys.stderr, flush=True)
    return milliseconds


def summarize(times: dict[str, list[float]], seed: int) -> dict[str, Any]:
    """Return the result from every side's milliseconds, turn by turn."""
    estimates = {f"{name}_ms": measure.median(each, seed=seed) for name, each in times.items()}
    estimates["ratio"] = measure.ratio(times["penstock"], times["bare"], seed=seed)
    estimates["default_ratio"] = measure.ratio(times["penstock"], times["default"], seed=seed)
    estimates["directory_ratio"] = measure.ratio(times["directory"], times["bare"], seed=seed)
    estimates["bare_to_default"] = measure.ratio(times["bare"], times["default"], seed=seed)
    # `penstock` reads the same streaming DataFrame as the bare side; `directory` reads the files by itself.
    keys = (
        "penstock_ms",
        "directory_ms",
        "bare_ms",
        "default_ms",
        "ratio",
        "default_ratio",
        "directory_ratio",
        "bare_to_default",
    )
    return {
        **{key: estimates[key].median if key in estimates else None for key in keys},
        "intervals": {key: each.as_dict() for key, each in estimates.items()},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows-per-epoch", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20, help="turns of every side that are counted")
    parser.add_argument("--warmup", type=int, default=10, help="turns of every side that are not counted")
    parser.add_argument("--epochs-per-turn", type=int, default=5, help="epochs that a side runs back to back")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns and compare them."""
    count = (args.warmup + args.rounds) * (args.epochs_per_turn + 1)
    epochs = data.epochs(args.seed, count, args.rows_per_epoch, files_per_epoch=1)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=data.cache_directory()))
    sides: dict[str, Side] = {}
    try:
        sides["penstock"] = penstock_side(work / "penstock", epochs, True, args.rows_per_epoch)
        sides["directory"] = penstock_side(work / "directory", epochs, False, args.rows_per_epoch)
        sides["bare"] = bare_side(work / "bare", epochs, session.FAST)
        sides["default"] = bare_side(work / "default", epochs, {})
        for side in sides.values():
            side.start()
        turns = {name: partial(turn, name, side, args.epochs_per_turn) for name, side in sides.items()}
        times = measure.interleave(turns, args.rounds, args.warmup)
    finally:
        for side in sides.values():
            side.stop()
        shutil.rmtree(work, ignore_errors=True)
    settings = {"rows_per_epoch": args.rows_per_epoch, "epochs_per_turn": args.epochs_per_turn}
    return {**settings, "rounds": args.rounds, "warmup": args.warmup} | summarize(times, args.seed)
