"""Run W2 in one process: four cheap per-row operators, then a count; as Python functions and as expressions."""

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as ps
from bench import local_side, measure
from bench.peers.python_loop import make_event
from bench.workload import Event, amount, large, lower, small
from penstock.threads.engine import LocalOptions

DESCRIPTION = "four cheap per-row operators and a count in one process: threads engine, bare loop, Bytewax"

PAIRS = {
    "loop_ratio": ("penstock", "loop"),
    "loop_no_gc_ratio": ("penstock", "loop_no_gc"),
    "ratio": ("penstock", "bytewax"),
    "expression_ratio": ("penstock_expressions", "bytewax"),
}


class Counter:
    """Count the rows that reach a sink."""

    def __init__(self) -> None:
        self.count = 0

    def rows(self, rows: list[Any], _epoch: int) -> None:
        """Take a batch of rows."""
        self.count += len(rows)

    def counts(self, rows: list[Any], _epoch: int) -> None:
        """Take a batch of counts."""
        self.count += sum(row.count for row in rows)


def penstock_turn(folder: Path, expected: int, options: LocalOptions) -> float:
    """Run the four functions over the files and count; return the seconds."""
    counter = Counter()
    flow = ps.Flow("w2")
    events = flow.source("events", ps.read.parquet(str(folder), schema=Event))
    events.map(amount).filter(large).map(lower).filter(small).sink("count", ps.write.callback(counter.rows))
    _, seconds = local_side.run_flow(flow, options)
    check("penstock", counter.count, expected)
    return seconds


def batch_count(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """Count a batch: one row, in the place of the last."""
    return pa.record_batch({"count": [batch.num_rows]}), [batch.num_rows - 1]


def expressions_turn(folder: Path, expected: int, options: LocalOptions) -> float:
    """Run the same four operators as Arrow expressions and count; return the seconds."""
    counter = Counter()
    flow = ps.Flow("w2")
    events = flow.source("events", ps.read.parquet(str(folder), schema=Event))
    amounts = events.select(amount=pc.field("value") * 100).filter(pc.field("amount") >= 10)
    lowered = amounts.select(amount=pc.field("amount") - 10).filter(pc.field("amount") < 80)
    counts = lowered.map_batches(batch_count, schema={"count": int})
    counts.sink("count", ps.write.callback(counter.counts))
    _, seconds = local_side.run_flow(flow, options)
    check("penstock_expressions", counter.count, expected)
    return seconds


def loop_turn(paths: Sequence[Path], expected: int, collector: bool) -> float:
    """Call the four functions in a bare loop over the files; return the seconds."""
    if not collector:
        gc.disable()
    try:
        began = time.perf_counter()
        count = loop(paths)
        seconds = time.perf_counter() - began
    finally:
        gc.enable()
    check("loop", count, expected)
    return seconds


def loop(paths: Sequence[Path]) -> int:
    """Count by a bare loop."""
    count = 0
    for path in paths:
        columns = [column.to_numpy().tolist() for column in pq.read_table(path, use_threads=False).columns]
        for row in map(make_event, zip(*columns, strict=True)):
            value = amount(row)
            if large(value):
                value = lower(value)
                if small(value):
                    count += 1
    return count


def bytewax_turn(module: Any, paths: Sequence[Path], expected: int) -> float:
    """Run Bytewax once; return the seconds."""
    count, seconds = module.run(paths)
    check("bytewax", count, expected)
    return float(seconds)


def check(name: str, count: int, expected: int) -> None:
    """Fail if a side counted wrongly."""
    if count != expected:
        raise AssertionError(f"{name}: the count is {count}, not {expected}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--files", type=int, default=4, help="files that a turn reads")
    parser.add_argument("--file-rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=2, help="turns of every side that are not counted")
    local_side.add_engine_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns and compare them."""
    folder, paths = local_side.directory(args.seed, args.files, args.file_rows)
    rows = args.files * args.file_rows
    values = pq.read_table(paths, columns=["value"])["value"].to_numpy() * 100
    expected = int(((values >= 10) & (values - 10 < 80)).sum())
    options = local_side.engine_options(args)
    turns: dict[str, Callable[[], float]] = {
        "penstock": partial(penstock_turn, folder, expected, options),
        "penstock_expressions": partial(expressions_turn, folder, expected, options),
        "loop": partial(loop_turn, paths, expected, True),
        "loop_no_gc": partial(loop_turn, paths, expected, False),
    }
    module = local_side.peer("bytewax_w2")
    if module is not None:
        turns["bytewax"] = partial(bytewax_turn, module, paths, expected)
    sides = {name: local_side.clocked(name, rows, turn) for name, turn in turns.items()}
    speeds = measure.interleave(sides, args.rounds, args.warmup)
    return {
        "rows": rows,
        "counted": expected,
        **local_side.engine_figures(options),
        "rounds": args.rounds,
        "warmup": args.warmup,
        **local_side.compare(speeds, PAIRS, args.seed),
        "skipped": [] if module is not None else ["bytewax"],
    }
