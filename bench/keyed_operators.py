"""Run each kind of keyed operator in one process: the threads engine against a bare loop with its state in a dict.

`polars` compares declared ones with Polars doing the same once, Parquet to Parquet: `worst` is the lowest ratio.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench import keyed_columns, local_side, measure
from bench import keyed_loops as loops
from penstock.threads.engine import LocalOptions
from penstock.threads.settings import Settings

DESCRIPTION = "every kind of keyed operator in one process, against a bare loop that keeps the same state"

Build = Callable[[Any], ps.Stream]
Loop = Callable[[loops.Columns], list[Any]]


class Adding(ps.Process):
    """Add up in a class with state for each key."""

    def on_row(self, row: loops.Row, context: Any) -> None:
        """Add, and give the sum so far."""
        context.state, output = loops.one(context.state or 0, row)
        context.emit(output)


SUM = {"s": ps.agg.sum("v")}
SIX = {
    "a": ps.agg.first("v"),
    "b": ps.agg.last("v"),
    "c": ps.agg.min("v"),
    "d": ps.agg.max("v"),
    "s": ps.agg.sum("v"),
    "n": ps.agg.count(),
}
OPERATORS: dict[str, tuple[Build, Loop]] = {
    "scan": (lambda keyed: keyed.scan(loops.one, 0, schema=loops.Row), loops.scan),
    "flat_scan_one": (
        lambda keyed: keyed.flat_scan(loops.many, 0, schema=loops.Row),
        partial(loops.flat_scan, loops.many),
    ),
    "flat_scan_none": (
        lambda keyed: keyed.flat_scan(loops.none, 0, schema=loops.Row),
        partial(loops.flat_scan, loops.none),
    ),
    "reduce": (lambda keyed: keyed.reduce(loops.combine), loops.reduce),
    "process": (lambda keyed: keyed.process(Adding(), schema=loops.Row), loops.scan),
    "running_aggregate": (lambda keyed: keyed.aggregate(**SUM), loops.running),
    "tumbling_one": (lambda keyed: keyed.window(loops.SIZE).aggregate(**SUM), loops.tumbling),
    "tumbling_six": (lambda keyed: keyed.window(loops.SIZE).aggregate(**SIX), loops.tumbling_six),
    "sliding": (lambda keyed: keyed.window(ps.sliding(loops.SIZE, loops.EVERY)).aggregate(**SUM), loops.sliding),
    "session": (lambda keyed: keyed.window(ps.session(loops.GAP)).aggregate(**SUM), loops.session),
    "count_window": (lambda keyed: keyed.window(ps.count_window(loops.COUNT)).aggregate(**SUM), loops.count),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=1, help="turns of every side that are not counted")
    parser.add_argument("--batch-rows", type=int, default=4096)
    parser.add_argument(
        "--parquet-rows", type=int, default=1_000_000, help="rows of each source beside Polars; 0: none"
    )
    parser.add_argument("--parquet-rounds", type=int, default=3, help="measured turns of those")
    parser.add_argument("--no-loops", dest="loops", action="store_false", help="declared operators beside Polars only")
    parser.add_argument("--only", nargs="*", choices=list(OPERATORS), help="these operators, by default all")


def table(seed: int, rows: int, keys: int) -> pa.Table:
    """Make the rows: times that rise by one, keys and values in no order."""
    random = np.random.default_rng(seed)
    return pa.table({"at": np.arange(rows), "k": random.integers(0, keys, rows), "v": random.integers(0, 97, rows)})


def engine_side(build: Build, rows: pa.Table, expected: list[Any], options: LocalOptions) -> float:
    """Run the operator; check its outputs against the loop's; return the CPU seconds."""
    flow = ps.Flow("keyed")
    reader = ps.read.generate(lambda start, stop: rows.slice(start, stop - start), schema=loops.Row, rows=len(rows))
    build(flow.source("rows", reader, time="at").key_by("k")).sink("out", ps.write.memory())
    began = time.process_time()
    engine, _ = local_side.run_flow(flow, options)
    seconds = time.process_time() - began
    if list(map(tuple, engine.results["out"])) != list(map(tuple, expected)):
        raise AssertionError("the engine and the loop do not agree")
    return seconds


def loop_side(loop: Loop, rows: pa.Table) -> float:
    """Run the bare loop; return the CPU seconds."""
    began = time.process_time()
    loop(columns_of(rows))
    return time.process_time() - began


def columns_of(rows: pa.Table) -> Any:
    """Return the columns as Python numbers: reading them is a part of both sides."""
    return tuple(column.to_numpy().tolist() for column in rows.columns)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the operators one after the other, engine and loop in turns."""
    rows = table(args.seed, args.rows, args.keys)
    options = LocalOptions(args.batch_rows, settings=Settings(model="manual"))
    figures: dict[str, Any] = {}
    for name in (args.only or OPERATORS) if args.loops else ():
        build, loop = OPERATORS[name]
        expected = loop(columns_of(rows))
        sides = {
            "penstock": partial(engine_side, build, rows, expected, options),
            "loop": partial(loop_side, loop, rows),
        }
        turns = {side: local_side.clocked(f"{name}, {side}", args.rows, turn) for side, turn in sides.items()}
        speeds = measure.interleave(turns, args.rounds, args.warmup)
        figures[name] = {
            **{f"{side}_rows_per_s": measure.median(speeds[side], seed=args.seed).median for side in sides},
            "ratio": measure.ratio(speeds["penstock"], speeds["loop"], seed=args.seed).as_dict(),
            "outputs": len(expected),
        }
    columns = None
    if args.parquet_rows and local_side.peer("polars_w1") is not None:
        columns = keyed_columns.compare(args.seed, args.parquet_rows, args.keys, args.parquet_rounds)
    return {
        "parquet_rows": args.parquet_rows,
        "polars": columns,
        "rows": args.rows,
        "keys": args.keys,
        "batch_rows": args.batch_rows,
        "rounds": args.rounds,
        "warmup": args.warmup,
        "seconds": "CPU seconds of the process",
        "operators": figures,
    }
