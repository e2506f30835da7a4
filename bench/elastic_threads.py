"""Compare what a live flow finds with every fixed setting, over graphs, kinds and costs of operators.

One flow runs for each experiment. Its controllers are stepped until they have settled; then elastic spells, in which
they go on deciding, take turns with spells at each fixed setting, in an order drawn anew for each round, so that all of
them meet the same machine. Throughput is that of all operators together, as Streams has it: rows leave a flow with many
branches in waves that may be as long as a spell. A round's elastic throughput is compared with the setting that was
best in the *other* rounds: the best of several noisy figures is best partly by luck. An experiment's ratio is that of
all rows of its rounds, because rows come in bursts, and rounds go on until it is known well enough, whatever it is.

Two questions are asked. How many workers: `ratio` is the geometric mean over the experiments, `worst` the least, and
the papers' ways to find the number (Streams' published rules, C-Stream's pool by utilization) are sides of the same
flow, each in its turns (`sides`). How many workers *and* replicas of operators, found together: `replicas_ratio`
against the best fixed pair of the two, of which those that are far off in a first round are not measured again.

Only these, and the rows in flight of operators that wait, are found: batches have a size that suits the operators'
cost, and decisions fall four times as often as in a flow of a user's. Each kind meets each graph and each of its costs,
but not every combination, unless asked for with `--all`.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import penstock as ps
from bench import local_side
from bench.flown import BASELINES, OWN, Flown, Setting, flying
from penstock.lab.workloads.synthetic import Kind, Shape, graph

DESCRIPTION = "elastic workers, and replicas with them, against the best fixed ones and the papers' rules"

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
REPLICATED: tuple[tuple[str, int, Kind, float], ...] = (
    ("one blocking", 1, "blocking", 2000),
    ("three blocking", 3, "blocking", 2000),
    ("three numpy", 3, "numpy", 1000),
    ("three python", 3, "python", 200),
)
"""Chains whose operators have replicas: a name, the operators, their kind and microseconds a row."""
BATCH_SECONDS = 0.01
"""Work of a batch, as one core would do it."""
CONTENDERS = 4
"""Pairs of workers and replicas that are measured after the first round."""
QUICK = {
    "rounds": 3,
    "most_rounds": 3,
    "seconds": 0.5,
    "settle": 30,
    "replica_settle": 60,
    "baseline_steps": 10,
    "quick": 3,
}


def rounds_of(
    flown: Flown, settings: Sequence[Setting], sides: Sequence[str], args: argparse.Namespace
) -> Iterator[tuple[dict[str, list[float]], dict[Setting, list[float]]]]:
    """Measure all sides and settings, round after round; yield what is known after each."""
    elastic: dict[str, list[float]] = {side: [] for side in sides}
    fixed: dict[Setting, list[float]] = {setting: [] for setting in settings}
    chance = random.Random(args.seed)
    while True:
        # What a spell finds in the queues is of the one before: none always follows the same.
        turns: list[str | Setting] = [*sides, *settings]
        for turn in chance.sample(turns, len(turns)):
            if isinstance(turn, Setting):
                fixed[turn].append(flown.fixed(turn, args.seconds))
            else:
                elastic[turn].append(flown.elastic(turn, args.steps))
        yield elastic, fixed


def compared(
    flown: Flown, settings: Sequence[Setting], sides: Sequence[str], args: argparse.Namespace
) -> dict[str, Any]:
    """Run rounds until the ratio is known well enough; return the figures of all sides."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    found: list[str] = []
    for elastic, fixed in rounds_of(flown, settings, sides, args):
        found.append(flown.said(OWN))
        if len(found) < max(3, args.rounds):
            continue
        pairs = {
            side: [(speed, fixed[best_of(fixed, number)][number]) for number, speed in enumerate(speeds)]
            for side, speeds in elastic.items()
        }
        if len(found) >= args.most_rounds or error(pairs[OWN]) <= args.error:
            break
    return {
        "elastic_rows_s": {side: statistics.median(speeds) for side, speeds in elastic.items()},
        "found": found,
        "fixed_rows_s": {str(setting): statistics.median(speeds) for setting, speeds in fixed.items()},
        "best": str(best_of(fixed)),
        "ratio": overall(pairs[OWN]),
        "error": error(pairs[OWN]),
        "ratios": {side: overall(each) for side, each in pairs.items()},
        "rounds": len(found),
    }


def workers_experiment(shape: Shape, kind: Kind, cost: float, args: argparse.Namespace) -> dict[str, Any]:
    """Compare elastic and fixed numbers of workers on one graph, the papers' rules beside."""
    width, depth = SHAPES[shape]
    # Rows that wait keep nobody busy, so a batch of them holds more.
    batch = 128 if kind == "waiting" else max(1, round(BATCH_SECONDS * 1e6 / cost / depth))
    flow = graph(shape, width=width, depth=depth, cost_us=cost, kind=kind, rows=None, sink=nowhere())
    with flying(flow, batch, args.period, baselines=tuple(args.baselines)) as flown:
        steps = flown.settle(OWN, args.settle)
        for side in args.baselines:
            flown.settle(side, args.baseline_steps)
        settings = [Setting(level) for level in args.levels]
        result = compared(flown, settings, [OWN, *args.baselines], args)
    return said({"graph": shape, "kind": kind, "microseconds": cost, "steps_to_settle": steps, **result})


def replicas_experiment(name: str, depth: int, kind: Kind, cost: float, args: argparse.Namespace) -> dict[str, Any]:
    """Compare workers and replicas that are found together with every fixed pair of them."""
    batch = max(1, round(BATCH_SECONDS * 1e6 / cost / depth))
    flow = graph("chain", width=1, depth=depth, cost_us=cost, kind=kind, rows=None, sink=nowhere())
    with flying(flow, batch, args.period, replicas=True) as flown:
        steps = flown.settle(OWN, args.replica_settle)
        scouted = {pair: flown.fixed(pair, args.seconds) for pair in pairs_of(args.pair_levels)}
        contenders = sorted(scouted, key=lambda pair: scouted[pair], reverse=True)[:CONTENDERS]
        result = compared(flown, contenders, [OWN], args)
    scout = {str(pair): speed for pair, speed in scouted.items()}
    what = {"graph": name, "kind": kind, "microseconds": cost, "steps_to_settle": steps}
    return said({**what, **result, "first_round_rows_s": scout})


def pairs_of(levels: Sequence[int]) -> list[Setting]:
    """Return workers with one replica, with half as many replicas as workers, and with as many."""
    return [Setting(level, count) for level in levels for count in sorted({1, max(1, level // 2), level})]


def nowhere() -> Any:
    """Return a sink that keeps nothing."""
    return ps.write.callback(lambda rows, number: None)


def said(result: dict[str, Any]) -> dict[str, Any]:
    """Tell whoever watches what an experiment gave."""
    others = ", ".join(f"{side} {ratio:.2f}" for side, ratio in result["ratios"].items() if side != OWN)
    local_side.say(
        f"{result['graph']}, {result['kind']}, {result['microseconds']:g} us: "
        f"{result['elastic_rows_s'][OWN]:,.0f} rows/s at {' '.join(result['found'])} after "
        f"{result['steps_to_settle']} steps, best {result['fixed_rows_s'][result['best']]:,.0f} at {result['best']}: "
        f"{result['ratio']:.2f} +- {result['error']:.2f}" + (f" ({others})" if others else "")
    )
    return result


def overall(pairs: list[tuple[float, float]]) -> float:
    """Return the ratio of two sides over all rounds."""
    return sum(one for one, _ in pairs) / sum(other for _, other in pairs)


def error(pairs: list[tuple[float, float]]) -> float:
    """Return the standard error of the ratio over all rounds, from what each round makes of it (jackknife)."""
    without = [overall(pairs[:number] + pairs[number + 1 :]) for number in range(len(pairs))]
    return math.sqrt((len(pairs) - 1) * statistics.pvariance(without))


def best_of(fixed: dict[Setting, list[float]], without: int | None = None) -> Setting:
    """Return the setting that was best, in the rounds but for one."""
    return max(
        fixed,
        key=lambda each: statistics.fmean(speed for at, speed in enumerate(fixed[each]) if at != without),
    )


def chosen(args: argparse.Namespace) -> list[tuple[Shape, Kind, float]]:
    """Return the experiments on workers: each kind on each graph and at each cost, one cost a graph unless for all."""
    found: list[tuple[Shape, Kind, float]] = []
    for row, kind in enumerate(args.kinds):
        for column, shape in enumerate(args.graphs):
            costs = COSTS[kind]
            if args.costs:
                found += [(shape, kind, cost) for cost in costs if cost in args.costs]
            else:
                found += [(shape, kind, cost) for cost in (costs if args.all else [costs[(row + column) % len(costs)]])]
    # A quick run has one experiment a kind, each on another graph.
    return found if not args.quick else [found[row * (len(args.graphs) + 1) % len(found)] for row in range(args.quick)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--graphs", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(COSTS))
    parser.add_argument("--costs", type=float, nargs="+", help="microseconds of the operators to take, on every graph")
    parser.add_argument("--all", action="store_true", help="every kind at every cost on every graph: about an hour")
    parser.add_argument("--quick", action="store_const", const=True, help="three experiments and one with replicas")
    parser.add_argument("--baselines", nargs="*", default=list(BASELINES), choices=list(BASELINES))
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 4, 8], help="fixed numbers of workers")
    parser.add_argument(
        "--replicated", nargs="*", default=[name for name, *_ in REPLICATED], help="chains with replicas to take"
    )
    parser.add_argument("--pair-levels", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="workers of fixed pairs")
    parser.add_argument("--period", type=float, default=0.5, help="seconds from decision to decision")
    parser.add_argument("--settle", type=int, default=40, help="decisions before anything is measured, at most")
    parser.add_argument("--replica-settle", type=int, default=80, help="the same where replicas are found, too")
    parser.add_argument("--baseline-steps", type=int, default=12, help="decisions of a baseline before it is measured")
    parser.add_argument("--steps", type=int, default=2, help="decisions of a measured elastic spell")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a spell at a fixed setting")
    parser.add_argument("--rounds", type=int, default=4, help="measured spells of each, at least (3 or more)")
    parser.add_argument("--most-rounds", type=int, default=5, help="measured spells of each, at most")
    parser.add_argument("--error", type=float, default=0.05, help="standard error of a ratio that ends its rounds")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all experiments."""
    if args.rounds < 3:
        raise SystemExit(f"--rounds must be at least 3, not {args.rounds}: a round is compared with the others")
    known = [cost for kind in args.kinds for cost in COSTS[kind]]
    if unknown := set(args.costs or known) - set(known):
        raise SystemExit(f"no operator of these kinds costs {unknown.pop():g} us; there are {known}")
    if unknown_names := set(args.replicated) - {name for name, *_ in REPLICATED}:
        raise SystemExit(f"no chain {unknown_names.pop()!r}; there are {[name for name, *_ in REPLICATED]}")
    if args.quick:
        vars(args).update(QUICK)
    found = [workers_experiment(shape, kind, cost, args) for shape, kind, cost in chosen(args)]
    chains = [each for each in REPLICATED if each[0] in args.replicated][: 1 if args.quick else None]
    replicated = [replicas_experiment(*chain, args) for chain in chains]
    sides = [OWN, *args.baselines]
    python = {level for each in found if each["kind"] == "python" for level in each["found"]}
    return {
        "ratio": mean(each["ratio"] for each in found),
        "worst": min((each["ratio"] for each in found), default=None),
        "replicas_ratio": mean(each["ratio"] for each in replicated),
        "replicas_worst": min((each["ratio"] for each in replicated), default=None),
        "sides": {side: mean(each["ratios"][side] for each in found) for side in sides},
        "python_levels": sorted(map(int, python)),
        "period": args.period,
        "experiments": found,
        "replicas": replicated,
    }


def mean(ratios: Iterator[float]) -> float | None:
    """Return the geometric mean; None of nothing."""
    values = [max(ratio, 1e-3) for ratio in ratios]
    return statistics.geometric_mean(values) if values else None
