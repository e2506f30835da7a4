"""Run W1 in one process: the threads engine, a bare Python loop, and Bytewax with one worker.

`workers_ratio` is what a second worker brings: little where the interpreter has a GIL, much where it has none.
`declared_polars_ratio` compares declared aggregates with Polars doing the same at once, Parquet to Parquet.
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from bench import data, local_side, measure
from bench.peers.python_loop import LoopSide
from bench.workload import Event, Running, running
from penstock.threads.engine import LocalOptions

DESCRIPTION = "keyed running count and sum in one process: threads engine, bare loop, Bytewax"

DECLARED_FILE_ROWS = 500_000
PAIRS = {
    "loop_ratio": ("penstock", "loop"),
    "loop_no_gc_ratio": ("penstock", "loop_no_gc"),
    "ratio": ("penstock", "bytewax"),
    "workers_ratio": ("penstock_two_workers", "penstock"),
    "declared_polars_ratio": ("penstock_declared", "polars"),
}


def penstock_turn(folder: Path, rows: int, options: LocalOptions) -> float:
    """Run the user's function over the files, outputs into memory; check them; return the seconds."""
    flow = ps.Flow("w1")
    events = flow.source("events", ps.read.parquet(str(folder), schema=Event))
    events.key_by("key").scan(running, (0, 0.0)).sink("out", ps.write.memory())
    engine, seconds = local_side.run_flow(flow, options)
    check(engine.results["out"], rows)
    return seconds


def declared_turn(folder: Path, rows: int, options: LocalOptions) -> float:
    """Run declared aggregates over the files, outputs to Parquet; check them; return the seconds."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=data.cache_directory()) as work:
        flow = ps.Flow("declared")
        events = flow.source("events", ps.read.parquet(str(folder), schema=data.SCHEMA))
        aggregates = {"serial": ps.agg.last("serial"), "count": ps.agg.count(), "total": ps.agg.sum("value")}
        events.key_by("key").aggregate(**aggregates).sink("out", ps.write.parquet(f"{work}/out"))
        _, seconds = local_side.run_flow(flow, options)
        check_columns(sorted(Path(work).glob("out/epoch=*/*.parquet")), folder, rows)
    return seconds


def check_columns(outputs: Sequence[Path], folder: Path, rows: int) -> None:
    """Fail unless files have, in order, what a loop over the events gives, to the last bit."""
    events = pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(folder.glob("*.parquet"))])
    found = pa.concat_tables([pq.ParquetFile(path).read() for path in outputs])
    if not found["serial"].equals(events["serial"]) or not found["key"].equals(events["key"]):
        raise AssertionError("the outputs are not in the order of the inputs")
    keys, values = events["key"].to_numpy(), events["value"].to_numpy()
    order = np.argsort(keys, kind="stable")
    counts, totals = np.empty(rows, np.int64), np.empty(rows)
    for mine in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        counts[mine], totals[mine] = np.arange(1, len(mine) + 1), np.add.accumulate(values[mine])
    if (found["count"].to_numpy() != counts).any() or (found["total"].to_numpy() != totals).any():
        raise AssertionError("the outputs are not those of a loop")


def loop_turn(paths: Sequence[Path], collector: bool) -> float:
    """Run the bare loop over the files; return the seconds."""
    ((_, seconds),) = LoopSide([paths], collector).run_epochs(1)
    return seconds


def check(outputs: Sequence[Running], rows: int) -> None:
    """Fail unless there is one output for each event, in the order of the events, with the right count."""
    counts: dict[int, int] = {}
    for number, row in enumerate(outputs):
        if row.serial != number:
            raise AssertionError(f"output {number} is of event {row.serial}: not in the order of the inputs")
        counts[row.key] = counts.get(row.key, 0) + 1
        if row.count != counts[row.key]:
            raise AssertionError(f"event {number}: the count of key {row.key} is {row.count}, not {counts[row.key]}")
    if len(outputs) != rows:
        raise AssertionError(f"{len(outputs)} outputs for {rows} events")


class BytewaxSide:
    """Bytewax's turn: checked for completeness, and its inversions counted, for it does not keep the order."""

    def __init__(self, module: Any, paths: Sequence[Path], rows: int) -> None:
        self._module, self._paths, self._rows = module, paths, rows
        self.inversions = 0

    def turn(self) -> float:
        """Run once; return the seconds."""
        outputs, seconds = self._module.run(self._paths)
        check(sorted(outputs, key=lambda row: row.serial), self._rows)
        serials = [row.serial for row in outputs]
        self.inversions = sum(a > b for a, b in itertools.pairwise(serials))
        return float(seconds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--files", type=int, default=2, help="files that a turn reads")
    parser.add_argument("--file-rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=2, help="turns of every side that are not counted")
    parser.add_argument("--declared-files", type=int, default=8, help="files of 500,000 rows for declared aggregates")
    parser.add_argument("--declared-rounds", type=int, default=7, help="measured turns of those")
    parser.add_argument("--no-functions", dest="functions", action="store_false", help="declared aggregates only")
    local_side.add_engine_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns and compare them."""
    folder, paths = local_side.directory(args.seed, args.files, args.file_rows)
    rows = args.files * args.file_rows
    options = local_side.engine_options(args)
    turns: dict[str, Callable[[], float]] = {
        "penstock": partial(penstock_turn, folder, rows, options),
        "loop": partial(loop_turn, paths, True),
        "loop_no_gc": partial(loop_turn, paths, False),
    }
    if options.settings.workers == 1:
        two = replace(options, settings=replace(options.settings, workers=2))
        turns["penstock_two_workers"] = partial(penstock_turn, folder, rows, two)
    module = local_side.peer("bytewax_w1")
    bytewax = None if module is None else BytewaxSide(module, paths, rows)
    if bytewax is not None:
        turns["bytewax"] = bytewax.turn
    sides = {name: local_side.clocked(name, rows, turn) for name, turn in turns.items()}
    speeds = measure.interleave(sides, args.rounds, args.warmup) if args.functions else {}
    polars = local_side.peer("polars_w1")
    if args.declared_files:
        many, paths = local_side.directory(args.seed, args.declared_files, DECLARED_FILE_ROWS)
        rows_declared = args.declared_files * DECLARED_FILE_ROWS
        declared: dict[str, Callable[[], float]] = {
            "penstock_declared": partial(declared_turn, many, rows_declared, options)
        }
        if polars is not None:
            declared["polars"] = partial(polars.run, paths)
        sides = {name: local_side.clocked(name, rows_declared, turn) for name, turn in declared.items()}
        speeds |= measure.interleave(sides, args.declared_rounds, 1)
    return {
        "rows": rows,
        **local_side.engine_figures(options),
        "rounds": args.rounds,
        "warmup": args.warmup,
        **local_side.compare(speeds, PAIRS, args.seed),
        "in_order": True,
        "bytewax_inversions": None if bytewax is None else bytewax.inversions,
        "declared_rows": args.declared_files * DECLARED_FILE_ROWS,
        "polars_threads": None if polars is None else polars.threads(),
        "skipped": [name for name, there in (("bytewax", bytewax), ("polars", polars)) if there is None],
    }
