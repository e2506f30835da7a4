"""Measure latency: a flow of three operators at half its maximum rate, from when a row is due until it is out.

`p99_ratio` compares the engine with Bytewax at one rate, half of what Bytewax can, in turns.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from bench import local_side, measure
from penstock.threads.engine import LocalOptions

DESCRIPTION = "end-to-end latency of three operators at half their maximum rate: threads engine, Bytewax"

KEYS = 1_000


class Row(Protocol):
    """What the functions read of a row."""

    serial: int
    key: int
    value: float


def scaled(row: Row) -> tuple[int, int, float]:
    """Take a row to a plain one with another value: the first operator."""
    return row.serial, row.key, row.value * 100


def key_of(row: tuple[int, int, float]) -> int:
    """Return the key of a plain row."""
    return row[1]


def summed(total: float, row: tuple[int, int, float]) -> tuple[float, tuple[int, float]]:
    """Keep the sum of a key: the second operator."""
    total += row[2]
    return total, (row[0], total)


def positive(row: tuple[int, float]) -> bool:
    """Keep what is positive, which is everything: the third operator."""
    return row[1] >= 0


@dataclass
class Arrivals:
    """Note which rows came in and went out when.

    A row is due at its place in a steady stream, not when somebody asked for it: what a source that was kept busy
    elsewhere gave late counts as late.
    """

    rate: float | None = None
    taken: list[tuple[int, float]] = field(default_factory=list)
    """The number of rows that had been handed out, and when."""
    left: list[tuple[int, float]] = field(default_factory=list)
    """Serial numbers that came out, and when."""

    def take(self, stop: int) -> None:
        """Note that the rows before `stop` are handed out."""
        self.taken.append((stop, time.monotonic()))

    def leave(self, rows: Sequence[tuple[int, float]]) -> None:
        """Note that rows come out."""
        now = time.monotonic()
        self.left.extend((row[0], now) for row in rows)

    def latencies(self) -> npt.NDArray[np.float64]:
        """Return the seconds that each row took from when it was due, without the first and last tenth."""
        assert self.rate is not None
        # The source began at a moment that only it knows: no row can have been handed out before it was due.
        began = min(moment - stop / self.rate for stop, moment in self.taken)
        serials = np.array([serial for serial, _ in self.left])
        late = np.array([moment for _, moment in self.left]) - (began + (serials + 1) / self.rate)
        order = np.argsort(serials)
        return np.asarray(late[order][len(late) // 10 : len(late) * 9 // 10])


def table(arrivals: Arrivals, start: int, stop: int) -> pa.Table:
    """Generate rows, noting that they are handed out."""
    serial = np.arange(start, stop, dtype=np.int64)
    made = pa.table({"serial": serial, "key": serial * 7919 % KEYS, "value": (serial % 100) / 100})
    arrivals.take(stop)
    return made


def penstock_run(options: LocalOptions, rows: int, rate: float | None) -> tuple[Arrivals, float]:
    """Run the flow over so many rows, at a rate or as fast as it can; return what came when, and the seconds."""
    arrivals = Arrivals(rate)
    schema = {"serial": int, "key": int, "value": float}
    reader = ps.read.generate(partial(table, arrivals), schema=schema, rows_per_second=rate, rows=rows)
    flow = ps.Flow("latency")
    sums = flow.source("rows", reader).map(scaled).key_by(key_of).scan(summed, 0.0)
    sums.filter(positive).sink("out", ps.write.callback(lambda rows, _: arrivals.leave(rows)))
    _, seconds = local_side.run_flow(flow, options)
    serials = [serial for serial, _ in arrivals.left]
    local_side.check_order("penstock", serials, rows)
    return arrivals, seconds


Run = Callable[[int, float | None], tuple[Arrivals, float]]


def figures(name: str, run_side: Run, args: argparse.Namespace) -> dict[str, Any]:
    """Find a side's maximum rate, then run it at a part of that."""
    speeds = []
    for number in range(args.rounds + 1):
        _, seconds = run_side(args.rows, None)
        if number:  # the first one warms
            speeds.append(args.rows / seconds)
    most = median(speeds)
    rate = most * args.load
    local_side.say(f"{name}: at most {most:,.0f} rows/s; running at {rate:,.0f}")
    turns = [late(name, run_side, rate, args) for _ in range(args.rounds + 1)][1:]
    return {**summary(turns), "maximum_rows_s": most, "rows_s": rate}


def late(name: str, run_side: Run, rate: float, args: argparse.Namespace) -> tuple[float, float, float]:
    """Run a side at a rate; return the median of the latencies, their 99th percentile, and the longest, in ms."""
    arrivals, _ = run_side(max(1_000, int(rate * args.seconds)), rate)
    low, high, longest = (float(each) * 1e3 for each in np.quantile(arrivals.latencies(), [0.5, 0.99, 1.0]))
    local_side.say(f"{name}: p50 {low:.3f} ms, p99 {high:.3f} ms, longest {longest:.3f} ms")
    return low, high, longest


def summary(turns: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """Return the medians of some turns, each turn, and the longest of all."""
    p50, p99, longest = zip(*turns, strict=True)
    return {
        "p50_ms": median(p50),
        "p99_ms": median(p99),
        "longest_ms": max(longest),
        "p50_ms_rounds": list(p50),
        "p99_ms_rounds": list(p99),
    }


def at_one_rate(sides: dict[str, Run], rate: float, args: argparse.Namespace) -> dict[str, Any]:
    """Run the engine and a peer in turns at one rate, and compare them pair by pair."""
    runs = {name: partial(late, f"{name} at {rate:,.0f} rows/s", side, rate, args) for name, side in sides.items()}
    turns = measure.interleave(runs, args.rounds, warmup=1)
    mine, peers = ([p99 for _, p99, _ in found] for found in turns.values())
    return {
        "p99_ratio": measure.ratio(mine, peers, seed=args.seed).median,
        "one_rate": {"rows_s": rate, **{name: summary(found) for name, found in turns.items()}},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the runs that find the maximum rate")
    parser.add_argument("--load", type=float, default=0.5, help="part of the maximum rate")
    parser.add_argument("--seconds", type=float, default=3, help="length of the runs at a rate")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs; medians are reported")
    local_side.add_engine_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the threads engine, and Bytewax beside it, each at half of what it can; then both at Bytewax's rate."""
    options = local_side.engine_options(args)
    own = partial(penstock_run, options)
    result = {
        **local_side.engine_figures(options),
        "load": args.load,
        "rounds": args.rounds,
        **figures("penstock", own, args),
    }
    module = local_side.peer("bytewax_latency")
    if module is not None:
        result["bytewax"] = figures("bytewax", module.run, args)
        result |= at_one_rate({"penstock": own, "bytewax": module.run}, result["bytewax"]["rows_s"], args)
    return {**result, "skipped": [] if module is not None else ["bytewax"]}
