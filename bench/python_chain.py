"""Run a chain of plain Python operators with one worker, with two, and with as many as the engine finds.

`workers_ratio` is what a second worker brings: nothing where the interpreter has a GIL, nearly twice where it has none.
`elastic_ratio` compares the second half of a run whose workers are found with that of the better of the two others, and
`found_seconds` tells for each turn when the last number of workers was set, if one was. `others_busy` is the part of
the machine that other programs kept busy meanwhile: where more than 80 % of it are busy no workers are added, as
Streams has it, and `elastic_ratio` says nothing about how they are found.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import penstock as ps
from bench import local_side, measure
from penstock.lab.workloads.synthetic import graph
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings

DESCRIPTION = "a chain of plain Python operators with one worker, two, and those that are found"


class Chain:
    """A chain of operators, and what its runs gave."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._operators, self._microseconds = args.operators, args.microseconds
        self.rows = max(4, round(args.seconds * 1e6 / args.microseconds / args.operators))
        self.found: list[float | None] = []
        self.others: list[float] = []

    def turn(self, name: str, options: LocalOptions) -> float:
        """Run the chain to its end; check the order; return the rows per second of the second half."""
        moments: list[tuple[float, int]] = []
        serials: list[int] = []

        def leave(rows: list[Any], _epoch: int) -> None:
            serials.extend(row.serial for row in rows)
            moments.append((time.perf_counter(), len(serials)))

        sink = ps.write.callback(leave)
        flow = graph(
            "chain",
            width=1,
            depth=self._operators,
            cost_us=self._microseconds,
            kind="python",
            rows=self.rows,
            sink=sink,
        )
        began = time.perf_counter()
        engine, _ = local_side.run_flow(flow, options)
        local_side.check_order(name, serials, self.rows)
        if options.elastic:
            moment = last_change(engine)
            self.found.append(None if moment is None else moment - began)
            self.others.append(others_busy(engine))
        (start, before), (stop, after) = next(each for each in moments if 2 * each[1] >= self.rows), moments[-1]
        speed = (after - before) / (stop - start)
        local_side.say(f"{name}: {speed:,.0f} rows/s in the second half, {moments[-1][0] - began:.1f} s in all")
        return speed


def last_change(engine: LocalEngine) -> float | None:
    """Return when the number of workers was last changed, if it was."""
    changes = [each for each in engine.decisions_since(0)[0] if each.what == "thread_level" and each.after is not None]
    return max((each.time for each in changes if each.time is not None), default=None)


def others_busy(engine: LocalEngine) -> float:
    """Return the part of the machine that other programs kept busy, in the mean of the periods that were looked at."""
    seen = [each.statistics or {} for each in engine.decisions_since(0)[0] if each.controller == "threads"]
    return statistics.fmean([each["elsewhere"] for each in seen if "elsewhere" in each] or [0.0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--operators", type=int, default=4, help="operators of the chain")
    parser.add_argument("--microseconds", type=float, default=100, help="what a row costs in each")
    parser.add_argument("--seconds", type=float, default=20, help="work of a turn, as one worker would do it")
    parser.add_argument("--rounds", type=int, default=3, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=0, help="turns of every side that are not counted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns and compare them."""
    chain, one = Chain(args), LocalOptions(settings=Settings(workers=1))
    options = {
        "one": one,
        "two": replace(one, settings=replace(one.settings, workers=2)),
        "elastic": replace(one, elastic=True),
    }
    turns: dict[str, Callable[[], float]] = {name: partial(chain.turn, name, each) for name, each in options.items()}
    speeds = measure.interleave(turns, args.rounds, args.warmup)
    best = max(("one", "two"), key=lambda name: measure.median(speeds[name]).median)
    pairs = {"workers_ratio": ("two", "one"), "elastic_ratio": ("elastic", best)}
    return {
        "operators": args.operators,
        "microseconds": args.microseconds,
        "rows": chain.rows,
        **local_side.compare(speeds, pairs, args.seed),
        "best": best,
        "found_seconds": chain.found[args.warmup :],
        "others_busy": chain.others[args.warmup :],
    }
