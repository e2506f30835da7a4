"""Compare the number of workers that a live flow finds with every fixed one, over graphs, kinds and costs of operators.

One flow runs for each experiment. Its controllers are stepped until they have settled; then elastic spells, in which
they go on deciding, take turns with spells at each fixed number of workers, in an order drawn anew for each round, so
that all of them meet the same machine. Throughput is that of all operators together, as Streams has it: rows leave a
flow with many branches in waves that may be as long as a spell. A round's elastic throughput is compared with the
number of workers that was best in the *other* rounds: the best of several noisy figures is best partly by luck. An
experiment's ratio is that of all rows of its rounds, because rows come in bursts, and rounds go on until it is known
well enough, whatever it is. `ratio` is the geometric mean of all experiments.

Only the number of workers, and the rows in flight of those that wait, are found: batches have a size that suits the
operators' cost, and decisions fall four times as often as in a flow of a user's, so that an experiment takes a minute.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import penstock as ps
from bench import local_side
from penstock.elastic.levels import SETTLED
from penstock.local.engine import LocalEngine, Options
from penstock.local.pilot import FlowPilot
from penstock.plan import make_plan
from penstock.statistics import FlowStats
from penstock.workloads.synthetic import Kind, Shape, graph

DESCRIPTION = "elastic number of workers against the best fixed one, over graphs, kinds and costs of operators"

SHAPES: dict[Shape, tuple[int, int]] = {
    "chain": (1, 10),
    "data-parallel": (10, 1),
    "tree": (2, 3),
    "reverse-tree": (2, 3),
    "mixed": (10, 10),
}
"""The width and depth of each graph."""
COSTS: dict[Kind, tuple[float, ...]] = {
    "numpy": (20, 100, 1000),
    "python": (2, 20, 200),
    "waiting": (500, 2000, 10_000),
    "blocking": (500, 2000, 10_000),
}
"""Microseconds a row of each kind of operator; `blocking` ones wait in a function that nobody declared to wait."""
KINDS: tuple[Kind, ...] = ("numpy", "python", "waiting")
"""The kinds that are compared if nobody asks for others."""
BY_HAND = 3600.0
"""Seconds in which the pilot does not step by itself: the bench does."""
PAUSE = 0.25
"""Seconds before a spell is measured."""
BATCH_SECONDS = 0.01
"""Work of a batch, as one core would do it."""


@dataclass
class Flown:
    """A flow that runs, and what steers it."""

    engine: LocalEngine
    pilot: FlowPilot
    period: float

    @property
    def level(self) -> int:
        """The number of workers."""
        return int(self.engine.element.model.active)

    def settle(self, most: int) -> int:
        """Let the controllers decide until the number of workers has settled; return how often they did."""
        for step in range(1, most + 1):
            time.sleep(self.period)
            self.pilot.step()
            if self.pilot.journal.state("threads").levels.phase == SETTLED:
                return step
        return most

    def elastic(self, steps: int) -> float:
        """Let the controllers decide so many times; return the rows a second meanwhile."""
        time.sleep(PAUSE)  # what was under way at another number
        self.pilot.begin_period()  # what a fixed number did is none of their business
        with self._clocked() as clock:
            for _ in range(steps):
                time.sleep(self.period)
                self.pilot.step()
        return clock.rate

    def fixed(self, level: int, seconds: float) -> float:
        """Run with so many workers; return the rows a second."""
        self.engine.element.set_workers(level)
        time.sleep(PAUSE)
        with self._clocked() as clock:
            time.sleep(seconds)
        return clock.rate

    @contextmanager
    def _clocked(self) -> Iterator[Clock]:
        clock = Clock()
        before = self.engine.statistics()
        yield clock
        after = self.engine.statistics()
        clock.rate = (handled(after) - handled(before)) / (after.at - before.at)


@dataclass
class Clock:
    """What was measured."""

    rate: float = 0.0


def handled(statistics: FlowStats) -> int:
    """Return the rows that all operators took in."""
    return sum(each.rows_in for each in statistics.operators.values())


@contextmanager
def flying(shape: Shape, kind: Kind, cost: float, period: float) -> Iterator[Flown]:
    """Run a graph without end, until the block is left."""
    width, depth = SHAPES[shape]
    sink = ps.write.callback(lambda rows, number: None)
    flow = graph(shape, width=width, depth=depth, cost_us=cost, kind=kind, rows=None, sink=sink)
    # Rows that wait keep nobody busy, so a batch of them holds more.
    batch = 128 if kind == "waiting" else max(1, round(BATCH_SECONDS * 1e6 / cost / depth))
    options = Options(batch, elastic=True, steer=frozenset({"waits"}), period=BY_HAND)
    engine = LocalEngine(make_plan(flow), options)
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    try:
        yield Flown(engine, engine.pilot, period)
    finally:
        engine.stop_now()
        thread.join()


def experiment(shape: Shape, kind: Kind, cost: float, args: argparse.Namespace) -> dict[str, Any]:
    """Compare elastic and fixed numbers of workers on one graph."""
    with flying(shape, kind, cost, args.period) as flown:
        steps = flown.settle(args.settle)
        elastic: list[float] = []
        fixed: dict[int, list[float]] = {level: [] for level in args.levels}
        levels: list[int] = []
        pairs: list[tuple[float, float]] = []
        chance = random.Random(args.seed)
        found = flown.level
        while len(levels) < args.rounds or (len(levels) < args.most_rounds and error(pairs) > args.error):
            # What a spell finds in the queues is of the one before: none always follows the same.
            for level in chance.sample([None, *args.levels], 1 + len(args.levels)):
                if level is None:
                    flown.engine.element.set_workers(found)
                    elastic.append(flown.elastic(args.steps))
                    found = flown.level
                    levels.append(found)
                else:
                    fixed[level].append(flown.fixed(level, args.seconds))
            if len(levels) > 1:
                pairs = [(speed, fixed[best_level(fixed, number)][number]) for number, speed in enumerate(elastic)]
    best = best_level(fixed)
    medians = {level: statistics.median(speeds) for level, speeds in fixed.items()}
    local_side.say(
        f"{shape}, {kind}, {cost:g} us: {statistics.median(elastic):,.0f} rows/s at {levels} after {steps} steps, "
        f"best {medians[best]:,.0f} at {best}: "
        f"{overall(pairs):.2f} +- {error(pairs):.2f} after {len(pairs)} rounds"
    )
    return {
        "graph": shape,
        "kind": kind,
        "microseconds": cost,
        "elastic_rows_s": statistics.median(elastic),
        "levels": levels,
        "steps_to_settle": steps,
        "fixed_rows_s": medians,
        "best_level": best,
        "ratio": overall(pairs),
        "error": error(pairs),
        "rounds": len(pairs),
    }


def overall(pairs: list[tuple[float, float]]) -> float:
    """Return the ratio of two sides over all rounds."""
    return sum(one for one, _ in pairs) / sum(other for _, other in pairs)


def error(pairs: list[tuple[float, float]]) -> float:
    """Return the standard error of the ratio over all rounds, from what each round makes of it (jackknife)."""
    without = [overall(pairs[:number] + pairs[number + 1 :]) for number in range(len(pairs))]
    return math.sqrt((len(pairs) - 1) * statistics.pvariance(without))


def best_level(fixed: dict[int, list[float]], without: int | None = None) -> int:
    """Return the number of workers that was best, in the rounds but for one."""
    return max(
        fixed,
        key=lambda level: statistics.fmean(speed for at, speed in enumerate(fixed[level]) if at != without),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--graphs", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(COSTS))
    parser.add_argument("--costs", type=float, nargs="+", help="microseconds of the operators to take; all without it")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 4, 8], help="fixed numbers of workers")
    parser.add_argument("--period", type=float, default=0.5, help="seconds from decision to decision")
    parser.add_argument("--settle", type=int, default=100, help="decisions before anything is measured, at most")
    parser.add_argument("--steps", type=int, default=2, help="decisions of a measured elastic spell")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a spell at a fixed number")
    parser.add_argument("--rounds", type=int, default=5, help="measured spells of each, at least (3 or more)")
    parser.add_argument("--most-rounds", type=int, default=12, help="measured spells of each, at most")
    parser.add_argument("--error", type=float, default=0.05, help="standard error of a ratio that ends its rounds")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all experiments."""
    if args.rounds < 3:
        raise SystemExit(f"--rounds must be at least 3, not {args.rounds}: a round is compared with the others")
    known = [cost for kind in args.kinds for cost in COSTS[kind]]
    if unknown := set(args.costs or known) - set(known):
        raise SystemExit(f"no operator of these kinds costs {unknown.pop():g} us; there are {known}")
    found = [
        experiment(shape, kind, cost, args)
        for kind in args.kinds
        for cost in COSTS[kind]
        if cost in (args.costs or known)
        for shape in args.graphs
    ]
    ratios = [each["ratio"] for each in found]
    python = [level for each in found if each["kind"] == "python" for level in each["levels"]]
    return {
        "ratio": statistics.geometric_mean([max(ratio, 1e-3) for ratio in ratios]),
        "worst": min(ratios),
        "python_levels": sorted(set(python)),
        "period": args.period,
        "experiments": found,
    }
