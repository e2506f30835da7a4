"""Run the TPCx-BB queries on Spark: Penstock beside plain Structured Streaming, epoch by epoch.

Q1, Q2, Q4 and Q15 are written for the peer with Spark's own operators, Q3 with transformWithState. Both sides read the
same files, an epoch at a time, and write Parquet. Sales are taken at eight times the scale of the clicks, which gives
both tables about as many rows. Time goes on through all epochs, so windows open and close in each of them.
"""

import argparse
import datetime as dt
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock as ps
from bench import data, measure, session
from bench.peers import tpcx_bb_q3, tpcx_bb_sql
from bench.penstock_side import PenstockSide
from bench.sides import Side
from bench.stream import Feed, StreamSide
from bench.w1_spark import PEER_SETTINGS, turn
from penstock.lab.workloads.tpcx_bb import data as storing
from penstock.lab.workloads.tpcx_bb import generator, q1, q2, q3, q4, q15, tables

DESCRIPTION = "TPCx-BB Q1, Q2, Q3, Q4 and Q15 on Spark against plain Structured Streaming"

SALES_SCALE = 8
FILES_PER_EPOCH = 2
"""One a core, so that the scan uses both."""
STORES, CATEGORIES, VIEWABLE = [10, 20, 33, 40, 50], [1, 2, 3], [2, 3]
EQUAL_ENOUGH = 0.98
"""Spark orders clicks of one second as it likes, so that a list may differ now and then."""

Peer = Callable[[DataFrame, dict[str, DataFrame], dict[str, Any]], DataFrame]


@dataclass(frozen=True)
class Query:
    """One query: its table, its two programs, and what both are told."""

    table: str
    flow: Callable[..., ps.Flow]
    peer: Peer
    state: str
    """Whether the peer needs state in Python, or has operators of its own for it."""
    options: dict[str, Any]
    """What the peer needs to be told; the flow has the same by default."""
    bar: float
    """Penstock's rows a second are to be at least so many times the peer's."""


CLICKS, SALES = "web_clickstreams", "store_sales"
NAMED = tables.NAMED_ITEM
QUERIES = {
    "q1": Query(
        SALES,
        q1.flow,
        tpcx_bb_sql.q1,
        "native",
        {"stores": STORES, "categories": CATEGORIES, "hours": 1, "limit": 100},
        0.8,
    ),
    "q2": Query(CLICKS, q2.flow, tpcx_bb_sql.q2, "native", {"item": NAMED, "timeout": 3600, "limit": 30}, 0.8),
    "q3": Query(
        CLICKS,
        q3.flow,
        tpcx_bb_q3.q3,
        "python",
        {"item": NAMED, "categories": VIEWABLE, "views": 5, "lookback": 10 * tables.DAY, "limit": 30},
        5.0,
    ),
    "q4": Query(CLICKS, q4.flow, tpcx_bb_sql.q4, "native", {"timeout": 3600}, 0.8),
    "q15": Query(SALES, q15.flow, tpcx_bb_sql.q15, "native", {"store": 10}, 0.8),
}
TYPES = {"int64": "long", "int32": "int", "double": "double"}


@dataclass(frozen=True)
class Setting:
    """What both sides of one query are given."""

    spark: SparkSession
    name: str
    epochs: list[list[Path]]
    small: Path
    """Where the small tables are."""
    work: Path
    days: int

    @property
    def query(self) -> Query:
        """Return what is asked."""
        return QUERIES[self.name]

    def output(self, side: str) -> Path:
        """Return where a side writes."""
        return self.work / side / "output"

    def checkpoint(self, side: str) -> str:
        """Return where a side keeps its checkpoint."""
        return str(self.work / side / "checkpoint")

    def last_day(self) -> int:
        """Return the key of the last day: Q15 looks at all of them, so that no epoch is filtered out."""
        return tables.FIRST_DATE_SK + self.days - 1


def penstock_side(setting: Setting) -> Side:
    """Return Penstock's side: the workload's own flow over the watched directory."""
    feed = Feed(setting.work / "penstock", setting.epochs)
    directory = setting.work / "penstock" / "data"
    shutil.copytree(setting.small, directory)
    (directory / setting.query.table).symlink_to(feed.watched, target_is_directory=True)
    options: dict[str, Any] = {}
    if setting.name == "q15":
        options = {"start": "2001-01-01", "end": _date(setting.last_day())}

    def flow(_: Feed) -> ps.Flow:
        return setting.query.flow(data=str(directory), out=str(setting.output("penstock")), follow=True, **options)

    # An epoch is what is released together, a little more or less than planned.
    rows = 2 * max(sum(pq.read_metadata(path).num_rows for path in epoch) for epoch in setting.epochs)
    return PenstockSide(feed, flow, Path(setting.checkpoint("penstock")), ps.Spark(setting.spark, epoch_rows=rows))


def peer_side(setting: Setting) -> Side:
    """Return the peer's side: a streaming query from Parquet to Parquet."""
    feed = Feed(setting.work / "peer", setting.epochs)
    schema = tables.WEB_CLICKSTREAMS if setting.query.table == CLICKS else tables.STORE_SALES
    ddl = ", ".join(f"{field.name} {TYPES[str(field.type)]}" for field in schema)
    options = setting.query.options
    if setting.name == "q15":
        options = options | {"first": tables.FIRST_DATE_SK, "last": setting.last_day()}

    def query(_: Feed) -> StreamingQuery:
        spark = setting.spark.newSession()
        settings = {**session.COMMON, **session.FAST_SESSION, **peer_settings(setting.query)}
        for key, value in settings.items():
            if key.startswith("spark.sql."):
                spark.conf.set(key, value)
        small = {path.name: spark.read.parquet(str(path)) for path in setting.small.iterdir()}
        made = setting.query.peer(feed.read(spark, ddl), small, options)
        writer = made.writeStream.format("parquet").option("path", str(setting.output("peer")))
        return writer.option("checkpointLocation", setting.checkpoint("peer")).start()

    return StreamSide(feed, query)


def peer_settings(query: Query) -> dict[str, str]:
    """Return the peer's settings: Spark's default store for its own operators, RocksDB where it is required.

    What an epoch closes is then written in the next one, not in an epoch without data that no measured time contains.
    """
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    return {**PEER_SETTINGS, **settings} if query.state == "python" else settings


def _date(key: int) -> str:
    return str(dt.date(1900, 1, 1) + dt.timedelta(days=key))


def make_epochs(table: str, args: argparse.Namespace) -> list[list[Path]]:
    """Return the files of a table in epochs, generating them if they are not cached."""
    epochs = args.warmup + args.epochs
    scale = args.scale * (SALES_SCALE if table == SALES else 1)
    size = tables.sizes(scale)
    files = epochs * FILES_PER_EPOCH
    name = f"tpcx-bb-{table}-{args.seed}-{args.scale}-{args.days}-{files}"
    directory = data.cache_directory() / name
    if not directory.exists():
        make = generator.store_sales if table == SALES else generator.web_clickstreams
        rows = (size.sales if table == SALES else size.clicks) / files
        storing.write(directory, make(scale, args.seed, args.days, int(rows)))
    found = sorted(directory.glob("*.parquet"))
    if len(found) < files:
        raise SystemExit(f"--scale {args.scale} has too few rows for {files} files; give a larger one")
    return [found[at : at + FILES_PER_EPOCH] for at in range(0, files, FILES_PER_EPOCH)]


def check(setting: Setting) -> float | None:
    """Return which part of the reports is the same on both sides, of those that both have made by now."""
    if setting.name == "q15":
        return None  # its one report comes when the year is over
    keys = ["purchased_item", "window_start"] if setting.name == "q3" else ["window_start"]
    reports = []
    for side in ("penstock", "peer"):
        rows = [
            row for path in setting.output(side).rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()
        ]
        reports.append({tuple(row.pop(key) for key in keys): {**row, "window_end": None} for row in rows})
    ours, theirs = reports
    common = ours.keys() & theirs.keys()
    same = sum(ours[key] == theirs[key] for key in common) / max(1, len(common))
    if same < EQUAL_ENOUGH:
        raise AssertionError(f"{setting.name}: of {len(common)} reports of both sides only {same:.1%} are the same")
    return same


def compare(setting: Setting, args: argparse.Namespace) -> dict[str, Any]:
    """Run both sides of one query in turns."""
    sides = {"penstock": penstock_side(setting)}
    if args.peers:
        sides["peer"] = peer_side(setting)
    try:
        for side in sides.values():
            side.start()
        turns = {name: partial(turn, f"{setting.name} {name}", side) for name, side in sides.items()}
        speeds = measure.interleave(turns, args.epochs, warmup=args.warmup)
    finally:
        for side in sides.values():
            side.stop()
    estimates = {name: measure.median(each, seed=args.seed) for name, each in speeds.items()}
    found: dict[str, Any] = {
        "rows_per_epoch": sum(pq.read_metadata(path).num_rows for path in setting.epochs[-1]),
        "state_of_peer": setting.query.state,
        **{f"{name}_rows_s": each.median for name, each in estimates.items()},
        "intervals": {name: each.as_dict() for name, each in estimates.items()},
    }
    if args.peers:
        ratio = measure.ratio(speeds["penstock"], speeds["peer"], seed=args.seed)
        found |= {"ratio": ratio.median, "bar": setting.query.bar, "equal_reports": check(setting)}
        found["intervals"]["ratio"] = ratio.as_dict()
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--scale", type=float, default=1.0, help="of the clicks; 1 is 6.77 million (default: 1)")
    parser.add_argument("--days", type=int, default=180, help="how many days the rows are spread over (default: 180)")
    parser.add_argument("--epochs", type=int, default=4, help="measured epochs of each side")
    parser.add_argument("--warmup", type=int, default=3, help="epochs of each side that are not counted")
    parser.add_argument("--queries", default=",".join(QUERIES), help="such as q1,q3 (default: all)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="Penstock alone")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the queries one behind the other, both sides of each in turns."""
    names = args.queries.split(",")
    unknown = [name for name in names if name not in QUERIES]
    if unknown:
        raise SystemExit(f"there is no query {unknown[0]}; there are {', '.join(QUERIES)}")
    data.cache_directory().mkdir(parents=True, exist_ok=True)
    print("preparing data", file=sys.stderr, flush=True)
    epochs = {table: make_epochs(table, args) for table in {QUERIES[name].table for name in names}}
    work = Path(tempfile.mkdtemp(prefix="run-", dir=data.cache_directory()))
    spark = session.make("bench-tpcx-bb", session.FAST)
    try:
        small = work / "small"
        storing.write(small / "item", [tables.item(SALES_SCALE * args.scale, args.seed)])
        storing.write(small / "web_page", [tables.web_page(args.scale, args.seed)])
        results = {}
        for name in names:
            setting = Setting(spark, name, epochs[QUERIES[name].table], small, work / name, args.days)
            results[name] = compare(setting, args)
    finally:
        session.close(spark)
        shutil.rmtree(work, ignore_errors=True)
    return {"scale": args.scale, "days": args.days, "epochs": args.epochs, "queries": results}
