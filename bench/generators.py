"""Measure the generators of the workloads: rows a second of each on one core, made and written as Parquet."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import data, measure
from penstock.lab.workloads.mobile_fraud import Calls
from penstock.lab.workloads.stock_exchange.orders import PIECE, Orders
from penstock.lab.workloads.system_log import LogLines
from penstock.lab.workloads.tpcx_bb import data as tpcx_bb_data
from penstock.lab.workloads.tpcx_bb import generator as tpcx_bb
from penstock.lab.workloads.tpcx_bb import tables as tpcx_bb_tables

DESCRIPTION = "rows a second that the workloads' generators make and write, on one core"

Generate = Callable[[int, int, Path], int]
"""Make about so many rows with a seed, write them into a directory, and return how many they were."""


def web_clickstreams(rows: int, seed: int, directory: Path) -> int:
    """Make clicks of TPCx-BB."""
    scale = rows / tpcx_bb_tables.sizes(1).clicks
    return _write(tpcx_bb.web_clickstreams(scale, seed), directory)


def store_sales(rows: int, seed: int, directory: Path) -> int:
    """Make sales of TPCx-BB."""
    scale = rows / tpcx_bb_tables.sizes(1).sales
    return _write(tpcx_bb.store_sales(scale, seed), directory)


def orders(rows: int, seed: int, directory: Path) -> int:
    """Make orders of the stock exchange."""
    return _write(_pieces(Orders(seed=seed), rows), directory)


def call_records(rows: int, seed: int, directory: Path) -> int:
    """Make call records of the mobile fraud."""
    return _write(_pieces(Calls(seed=seed), rows), directory)


def log_lines(rows: int, seed: int, directory: Path) -> int:
    """Make lines of a system log, for the failed logins."""
    return _write(_pieces(LogLines(seed), rows), directory)


def _pieces(make: Callable[[int, int], pa.Table], rows: int) -> Iterable[pa.Table]:
    for start in range(0, rows, PIECE):
        yield make(start, min(start + PIECE, rows))


def _write(parts: Iterable[pa.Table], directory: Path) -> int:
    rows = 0
    for number, part in enumerate(parts):
        tpcx_bb_data.write_part(directory / f"{number:06d}.parquet", part)
        rows += part.num_rows
    return rows


GENERATORS: dict[str, Generate] = {
    "tpcx-bb/web_clickstreams": web_clickstreams,
    "tpcx-bb/store_sales": store_sales,
    "stock-exchange/orders": orders,
    "mobile-fraud/call_records": call_records,
    "failed-logins/log_lines": log_lines,
}


def speed(generate: Generate, rows: int, seed: int) -> tuple[float, float]:
    """Run a generator once and return its rows a second, and a second of processor time."""
    directory = Path(tempfile.mkdtemp(prefix="generate-", dir=data.cache_directory()))
    try:
        began, used = time.perf_counter(), time.process_time()
        made = generate(rows, seed, directory)
        return made / (time.perf_counter() - began), made / (time.process_time() - used)
    finally:
        shutil.rmtree(directory)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=3_000_000, help="about so many rows a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(GENERATORS), default=list(GENERATORS), metavar="NAME")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run every generator in turns."""
    data.cache_directory().mkdir(parents=True, exist_ok=True)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # threads of Arrow's pools included
    try:
        speeds: dict[str, list[float]] = {name: [] for name in args.only}
        alone: dict[str, list[float]] = {name: [] for name in args.only}
        for number in range(args.rounds + 1):
            for name in args.only:
                found, of_processor = speed(GENERATORS[name], args.rows, args.seed)
                line = f"{name}: {found:,.0f} rows/s, {of_processor:,.0f} a second of processor time"
                print(line, file=sys.stderr, flush=True)
                if number:  # the first round only warms up
                    speeds[name].append(found)
                    alone[name].append(of_processor)
    finally:
        os.sched_setaffinity(0, cores)
    estimates = {name: measure.median(each, seed=args.seed) for name, each in speeds.items()}
    return {
        "rows": args.rows,
        "rows_s": {name: each.median for name, each in estimates.items()},
        # What the core would do if it were not shared with others.
        "rows_per_processor_second": {name: measure.median(each).median for name, each in alone.items()},
        "intervals": {name: each.as_dict() for name, each in estimates.items()},
    }
