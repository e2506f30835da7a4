"""Run workloads beside what this machine could do at most, all in one run: one table of what is reached, and a picture.

A limit is what a workload cannot do without: reading its files, one core's bare loop over the user's function without
the cycle collector (twice that for two cores), Polars doing the same once, or copying the rows through memory.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq

from bench import data, keyed_columns, local_side, measure
from bench.w1_threads import declared_turn, loop_turn, penstock_turn
from penstock.threads.engine import LocalOptions

DESCRIPTION = "every workload beside its limit on this machine, in one run: what fraction of it is reached"

LIMITS: dict[str, list[tuple[str, float]]] = {
    "w1_threads_function": [("loop", 1.0), ("read", 1.0)],
    "w1_threads_declared": [("polars", 1.0), ("read", 1.0), ("memory", 1.0)],
    "w1_spark_function": [("loop", 2.0), ("read", 1.0)],
    "w1_spark_declared": [("polars", 1.0), ("read", 1.0), ("memory", 1.0)],
    **{f"{name}_declared": [(f"{name}_polars", 1.0)] for name in keyed_columns.OPERATORS},
}
"""Of each workload, what limits it, and how often: two cores may do twice what a loop on one does."""


def read_turn(paths: Sequence[Path]) -> float:
    """Read the files as columns; return the seconds."""
    began = time.perf_counter()
    for path in paths:
        pq.read_table(path)
    return time.perf_counter() - began


def memory_turn(rows: int, width: int = 3) -> float:
    """Copy as many rows of 8 bytes a field once; return the seconds."""
    columns = [np.ones(rows) for _ in range(width)]
    copies = [np.empty(rows) for _ in range(width)]
    began = time.perf_counter()
    for column, copy in zip(columns, copies, strict=True):
        np.copyto(copy, column)
    return time.perf_counter() - began


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="measured turns of every side")
    parser.add_argument("--keys", type=int, default=1_000, help="keys of windows and joins")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="leave out the Spark engine")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="rows per second of the processor, for a machine that others use; threads add up, and Spark is left out",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw the fractions (penstock[bench])")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns, and make the table."""
    folder, paths = local_side.directory(args.seed, 2, args.rows // 2)
    rows = args.rows // 2 * 2
    options = LocalOptions()
    turns: dict[str, Callable[[], float]] = {
        "read": partial(read_turn, paths),
        "memory": partial(memory_turn, rows),
        "loop": partial(loop_turn, paths, False),
        "w1_threads_function": partial(penstock_turn, folder, rows, options),
        "w1_threads_declared": partial(declared_turn, folder, rows, options),
    }
    polars = local_side.peer("polars_w1")
    work = Path(tempfile.mkdtemp(prefix="run-", dir=data.cache_directory()))
    try:
        if polars is not None:
            turns["polars"] = partial(polars.run, paths)
            keyed_columns.make_files(work, args.seed, rows, args.keys)
            for name in keyed_columns.OPERATORS:
                turns[f"{name}_declared"] = partial(_second, keyed_columns.penstock_turn, name, work, options)
                turns[f"{name}_polars"] = partial(_second, keyed_columns.polars_turn, name, work)
        sides = {name: local_side.clocked(name, rows, turn) for name, turn in turns.items()}
        # All turns measure by this name; the engine has its clocks from elsewhere.
        with mock.patch.object(time, "perf_counter", time.process_time if args.cpu else time.perf_counter):
            speeds = measure.interleave(sides, args.rounds, 1)
        if args.spark and not args.cpu:
            speeds |= spark_speeds(args, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    found = table(speeds, args.seed)
    if args.picture is not None:
        draw(found, args.picture)
    medians = {name: measure.median(each, seed=args.seed).median for name, each in speeds.items()}
    seconds = "CPU seconds of the process" if args.cpu else "wall"
    return {"rows": rows, "rounds": args.rounds, "seconds": seconds, "rows_s": medians, "table": found}


def _second(turn: Callable[..., tuple[Any, float]], *arguments: Any) -> float:
    return turn(*arguments)[1]


def spark_speeds(args: argparse.Namespace, work: Path) -> dict[str, list[float]]:
    """Run W1 on Spark, a function and declared, epoch by epoch in turns; the first two of each are not counted."""
    from bench import session, w1_spark  # here: the others need no Spark

    spark = session.make("bench-limits", session.FAST)
    setting = w1_spark.Setting(spark, data.epochs(args.seed, args.rounds + 2, args.rows // 2 * 2, 2), work, "parquet")
    sides = w1_spark.make_sides(setting, [], False, args.rows, [])
    try:
        for side in sides.values():
            side.start()
        speeds = measure.interleave({n: partial(w1_spark.turn, n, side) for n, side in sides.items()}, args.rounds, 2)
    finally:
        for side in sides.values():
            side.stop()
        session.close(spark)
    return {"w1_spark_function": speeds["penstock"], "w1_spark_declared": speeds[w1_spark.DECLARED]}


def table(speeds: dict[str, list[float]], seed: int) -> list[dict[str, Any]]:
    """Return each workload beside its limits: the lowest of them is the one that counts."""
    found = []
    for workload, limits in LIMITS.items():
        there = [(name, times) for name, times in limits if name in speeds]
        if workload not in speeds or not there:
            continue
        reached = measure.median(speeds[workload], seed=seed).median
        most = {
            name if times == 1 else f"{times:g} x {name}": times * measure.median(speeds[name], seed=seed).median
            for name, times in there
        }
        limit = min(most, key=lambda name: most[name])
        found.append(
            {
                "workload": workload,
                "rows_s": round(reached),
                "limit": limit,
                "limit_rows_s": round(most[limit]),
                "fraction": round(reached / most[limit], 3),
                "limits": {name: round(each) for name, each in most.items()},
            }
        )
    return found


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Draw what fraction of its limit each workload reaches."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(found) + 1.2))
    names = [f"{row['workload']}  /  {row['limit']}" for row in found]
    bars = axes.barh(names, [row["fraction"] for row in found], color="#4477aa")
    axes.bar_label(bars, [f" {row['fraction']:.2f}  ({row['rows_s']:,} rows/s)" for row in found])
    axes.axvline(1.0, color="#bb5566", linestyle="--")
    axes.set_xlim(0, max([1.3, *(1.35 * row["fraction"] for row in found)]))
    axes.invert_yaxis()
    axes.set_xlabel("fraction of the limit on the same machine, in the same run")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
