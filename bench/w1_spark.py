"""Run W1 on Spark: Penstock, PySpark's own stateful operators and a bare Python loop, epoch by epoch."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock as ps
from bench import data, measure, session
from bench.peers import apply_in_pandas_with_state, transform_with_state, transform_with_state_in_pandas
from bench.peers.python_loop import LoopSide
from bench.penstock_side import PenstockSide
from bench.sides import Side
from bench.stream import Feed, StreamSide
from bench.workload import FORMS

DESCRIPTION = "keyed running count and sum on Spark against PySpark's stateful operators and a bare loop"

VECTORIZED = "applyInPandasWithState_vectorized"
"""Not a function of a row, so it is no peer: reported beside the others."""
DECLARED = "penstock_declared"
SIDES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "transformWithState": transform_with_state.transform,
    "transformWithStateInPandas": transform_with_state_in_pandas.transform,
    "applyInPandasWithState": apply_in_pandas_with_state.transform,
    VECTORIZED: apply_in_pandas_with_state.transform_vectorized,
}
PEERS = [name for name in SIDES if name != VECTORIZED]

WARMUP_ROWS = 12_000_000
"""At most so many rows of every side are not counted, however fast it is."""

STATE = "org.apache.spark.sql.execution.streaming.state"
PEER_SETTINGS = {
    # One task a core: more only add their fixed cost on a machine of this size.
    "spark.sql.shuffle.partitions": "2",
    # transformWithState requires RocksDB; with a change log a commit uploads what changed, not a snapshot.
    "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass(frozen=True)
class Setting:
    """What every side of one run is given."""

    spark: SparkSession
    epochs: list[list[Path]]
    work: Path
    sink: str

    def feed(self, name: str) -> Feed:
        """Return a watched directory of the side's own, with the same epochs for every side."""
        return Feed(self.work / name, self.epochs)

    def output(self, name: str) -> Path:
        """Return the directory that the side writes its Parquet output to."""
        return self.work / name / "output"

    def checkpoint(self, name: str) -> Path:
        """Return the directory that the side keeps its checkpoint in."""
        return self.work / name / "checkpoint"


def by_function(form: str, events: ps.Stream) -> ps.Stream:
    """Return W1 as a function of a row, whose outputs have a form."""
    function, schema = FORMS[form]
    return events.key_by("key").scan(function, (0, 0.0), **({} if schema is None else {"schema": schema}))


def by_declaration(events: ps.Stream) -> ps.Stream:
    """Return W1 as declared aggregates."""
    aggregates = {"serial": ps.agg.last("serial"), "count": ps.agg.count(), "total": ps.agg.sum("value")}
    return events.key_by("key").aggregate(**aggregates)


def penstock_side(setting: Setting, name: str, outputs: Callable[[ps.Stream], ps.Stream], rows: int) -> Side:
    """Return a side of Penstock's: W1 over the feed's directory, written as Parquet, in order."""

    def flow(feed: Feed) -> ps.Flow:
        made = ps.Flow(name)
        events = made.source("events", ps.read.parquet(str(feed.watched), schema=data.SCHEMA, follow=True))
        outputs(events).sink("out", ps.write.parquet(str(setting.output(name))))
        return made

    return PenstockSide(
        setting.feed(name), flow, setting.checkpoint(name), ps.Spark(setting.spark, epoch_rows=rows, tasks=tasks(name))
    )


def tasks(name: str) -> int | None:
    """Return how many tasks a side of Penstock's runs in; None is found while it runs."""
    return 2 if name == DECLARED else None


def peer_side(setting: Setting, name: str) -> Side:
    """Return one of PySpark's stateful operators as a side: a streaming query from Parquet to the sink."""

    def query(feed: Feed) -> StreamingQuery:
        # A session of its own: these settings are the peers', read when the query starts.
        spark = setting.spark.newSession()
        for key, value in {**session.COMMON, **session.FAST_SESSION, **PEER_SETTINGS}.items():
            if key.startswith("spark.sql."):
                spark.conf.set(key, value)
        writer = SIDES[name](feed.read(spark, data.DDL)).writeStream.format(setting.sink)
        if setting.sink == "parquet":
            writer = writer.option("path", str(setting.output(name)))
        return writer.option("checkpointLocation", str(setting.checkpoint(name))).start()

    return StreamSide(setting.feed(name), query)


def of_form(side: str, form: str) -> str:
    """Name a side that has outputs of a form; records are what all others have."""
    return side if form == "records" else f"{side}_{form}"


def make_sides(
    setting: Setting, peers: list[str], loop: bool, rows_per_epoch: int, forms: list[str]
) -> dict[str, Side]:
    """Return the sides in the order in which they take turns."""
    own: dict[str, Callable[[ps.Stream], ps.Stream]] = {
        of_form("penstock", form): partial(by_function, form) for form in ["records", *forms]
    }
    own[DECLARED] = by_declaration
    sides = {name: penstock_side(setting, name, outputs, rows_per_epoch) for name, outputs in own.items()}
    if loop:
        sides["loop"] = LoopSide(setting.epochs)
        for form in ["records", *forms]:
            sides[of_form("loop_no_gc", form)] = LoopSide(setting.epochs, False, FORMS[form][0])
    return sides | {name: peer_side(setting, name) for name in peers}


def turn(name: str, side: Side) -> float:
    """Run one epoch of a side and return its rows a second."""
    ((rows, seconds),) = side.run_epochs(1)
    line = f"{name}: {rows:,} rows in {seconds:.2f} s, {rows / seconds:,.0f} rows/s"
    print(line, file=sys.stderr, flush=True)
    return rows / seconds


def warm_up(name: str, side: Side, seconds: float, most: int) -> int:
    """Run epochs of a side for so long, at least two; return how many it was.

    The same time for every side, for it is the JVM's compiler that all of them wait for, and it counts seconds.
    """
    spent, epochs = 0.0, 0
    while epochs < min(2, most) or (spent < seconds and epochs < most):
        spent += sum(taken for _, taken in side.run_epochs(1))
        epochs += 1
    print(f"{name}: warm after {epochs} epochs, {spent:.0f} s", file=sys.stderr, flush=True)
    return epochs


def check(setting: Setting, used: dict[str, int]) -> None:
    """Fail if a side's Parquet output is not one row an event with every count of every key once.

    PySpark's operators may see a key's events in any order, so the sum of the counts is what must agree.
    """
    for name, epochs in used.items():
        events = pq.read_table([path for epoch in setting.epochs[:epochs] for path in epoch], columns=["key"])
        per_key = pc.value_counts(events["key"]).field("counts").to_numpy()
        expected = (len(events), int((per_key * (per_key + 1) // 2).sum()))
        counts = pq.read_table(list(setting.output(name).rglob("*.parquet")), columns=["count"])["count"]
        found = (len(counts), pc.sum(counts).as_py())
        if found != expected:
            raise AssertionError(f"{name}: rows and sum of counts are {found}, not {expected}")
    for name in (name for name in used if name.startswith("penstock")):
        files = sorted(setting.output(name).glob("epoch=*/part-*.parquet"))
        serials = pa.concat_arrays([c for f in files for c in pq.ParquetFile(f).read()["serial"].chunks]).to_numpy()
        if (serials != np.arange(len(serials))).any():
            raise AssertionError(f"{name}: the outputs are not in the order of the inputs")


def summarize(speeds: dict[str, list[float]], seed: int) -> dict[str, Any]:
    """Return the result from the rows a second of every side, epoch by epoch."""
    estimates = {name: measure.median(each, seed=seed) for name, each in speeds.items() if each}
    peers = {name: estimates[name] for name in estimates if name in PEERS}
    best = max(peers, key=lambda name: peers[name].median, default=None)
    every = {**peers, **{name: estimates[name] for name in estimates if name == VECTORIZED}}
    best_of_all = max(every, key=lambda name: every[name].median, default=None)
    pairs = {
        "ratio": ("penstock", best),
        "loop_ratio": ("penstock", "loop"),
        "declared_ratio": (DECLARED, best_of_all),
    }
    pairs |= {f"loop_no_gc_{form}": (of_form("penstock", form), of_form("loop_no_gc", form)) for form in FORMS}
    ratios = {
        key: measure.ratio(speeds[side], speeds[against], seed=seed)
        for key, (side, against) in pairs.items()
        if side in estimates and against in estimates
    }
    medians = {name: each.median for name, each in (estimates | ratios).items()}
    by_form = {form: medians[f"loop_no_gc_{form}"] for form in FORMS if f"loop_no_gc_{form}" in medians}
    return {
        "penstock_rows_s": medians.get("penstock"),
        "peers": {name: each.median for name, each in peers.items()},
        "best_peer": best,
        "ratio": medians.get("ratio"),
        "vectorized_rows_s": medians.get(VECTORIZED),
        "loop_rows_s": medians.get("loop"),
        "loop_ratio": medians.get("loop_ratio"),
        "loop_no_gc_rows_s": medians.get("loop_no_gc"),
        "loop_no_gc_ratio": min(by_form.values(), default=None),
        "loop_no_gc_by_form": by_form,
        "declared_rows_s": medians.get(DECLARED),
        "declared_against": best_of_all,
        "declared_ratio": medians.get("declared_ratio"),
        "intervals": {name: each.as_dict() for name, each in (estimates | ratios).items()},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows-per-epoch", type=int, default=200_000)
    parser.add_argument("--files-per-epoch", type=int, default=2, help="one a core lets the scan use both")
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs of every side")
    parser.add_argument("--warmup", type=float, default=20, help="seconds of every side that are not counted")
    parser.add_argument("--peers", nargs="*", choices=list(SIDES), default=list(SIDES), metavar="PEER")
    others = [form for form in FORMS if form != "records"]
    parser.add_argument("--forms", nargs="*", choices=others, default=others, help="forms of outputs beside records")
    parser.add_argument("--no-loop", dest="loop", action="store_false", help="leave out the bare loops")
    parser.add_argument("--sink", choices=("parquet", "noop"), default="parquet", help="where outputs go")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns and compare them."""
    most = max(2, WARMUP_ROWS // args.rows_per_epoch)
    print("preparing data", file=sys.stderr, flush=True)
    epochs = data.epochs(args.seed, most + args.epochs, args.rows_per_epoch, args.files_per_epoch)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=data.cache_directory()))
    spark = session.make("bench-w1", session.FAST)
    sides: dict[str, Side] = {}
    try:
        setting = Setting(spark, epochs, work, args.sink)
        sides = make_sides(setting, args.peers, args.loop, args.rows_per_epoch, args.forms)
        for side in sides.values():
            side.start()
        turns = {name: partial(turn, name, side) for name, side in sides.items()}
        used = {name: warm_up(name, side, args.warmup, most) + args.epochs for name, side in sides.items()}
        speeds = measure.interleave(turns, args.epochs)
        for side in sides.values():
            side.stop()
        if args.sink == "parquet":
            check(setting, {name: epochs for name, epochs in used.items() if not name.startswith("loop")})
    finally:
        for side in sides.values():
            side.stop()
        session.close(spark)
        shutil.rmtree(work, ignore_errors=True)
    settings = {"rows_per_epoch": args.rows_per_epoch, "files_per_epoch": args.files_per_epoch}
    return {**settings, "epochs": args.epochs, "warmup": args.warmup, "sink": args.sink} | summarize(speeds, args.seed)
