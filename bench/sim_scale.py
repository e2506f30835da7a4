"""Check the controllers at the papers' size, in the simulator.

Two settings. Streams': 1,000 operators on 176 and 184 cores, elastic thread level against every fixed level.
Elasticutor's: 32 nodes of 8 cores, 8,192 shards, zipf keys that are shuffled, with the static,
resource-centric and executor-centric approaches side by side. Costs of synchronization and migration are
inputs (`lab/sim/machine.py`, `lab/sim/cluster.py`), so this checks the controllers, not the papers' claims.
"""

import argparse
import math
import sys
import time
from itertools import pairwise
from typing import Any

from penstock.elastic.thread_level import ThreadLevel
from penstock.lab.baselines import StreamsRules
from penstock.lab.sim.elasticity import Approach, ResourceCentricApproach, StaticApproach, run_approach
from penstock.lab.sim.executor_centric import ExecutorCentricApproach
from penstock.lab.sim.keys import KeySpace
from penstock.lab.sim.scale import Experiment, experiments, static_levels

DESCRIPTION = "simulated: elastic threads on 184 cores against the best fixed level, and a 256-core cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--operators", type=int, default=1_000)
    parser.add_argument("--periods", type=int, default=80, help="periods that the thread level has to settle")
    parser.add_argument("--noise", type=float, default=0.03, help="of a measured throughput")
    parser.add_argument("--shuffles", type=float, nargs="*", default=[0, 1, 2, 4, 8, 16], help="a minute")
    parser.add_argument("--seconds", type=float, default=60.0, help="of virtual time for each cluster run")
    parser.add_argument("--skew", type=float, default=0.5, help="of the keys of the cluster run")


def thread_levels(experiment: Experiment, args: argparse.Namespace) -> dict[str, Any]:
    """Compare where the controllers end with the best fixed level; all are measured without noise."""
    began = time.perf_counter()
    static = {level: experiment.static(level) for level in static_levels(experiment.machine)}
    best = max(static, key=lambda level: static[level])
    result: dict[str, Any] = {"best_static_level": best}
    cores = experiment.machine.cores
    for name, controller in (("elastic", ThreadLevel(high=cores)), ("published", StreamsRules(high=cores))):
        journey, reached = experiment.elastic(controller, periods=args.periods, noise=args.noise, seed=args.seed)
        changed = [i for i, (a, b) in enumerate(pairwise(journey.levels)) if a != b]
        result[name] = {
            "ratio": reached / static[best],
            "level": journey.levels[-1],
            "changes": len(changed),
            "last_change_at_period": changed[-1] + 1 if changed else 0,
        }
    result["static"] = {str(level): value / static[best] for level, value in static.items()}
    result["seconds"] = time.perf_counter() - began
    found = result["elastic"]
    text = f"{experiment.name}: {found['ratio']:.3f} of the best ({best} threads) at {found['level']}"
    print(text, file=sys.stderr, flush=True)
    return result


def summarize(threads: dict[str, Any], name: str) -> dict[str, float]:
    """Return the worst ratio, the geometric mean and the mean number of changes of one controller."""
    ratios = [result[name]["ratio"] for result in threads.values()]
    changes = [result[name]["changes"] for result in threads.values()]
    return {
        "worst": min(ratios),
        "ratio": math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios)),
        "changes": sum(changes) / len(changes),
    }


def cluster(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the approaches side by side for each number of shuffles a minute."""
    results = []
    for shuffles in args.shuffles:
        approaches: tuple[Approach, ...] = (
            StaticApproach(),
            ResourceCentricApproach(),
            ExecutorCentricApproach("naive_executor_centric", naive=True),
            ExecutorCentricApproach(),
        )
        for approach in approaches:
            began = time.perf_counter()
            outcome, _ = run_approach(
                approach,
                shuffles_per_minute=shuffles,
                seconds=args.seconds,
                warmup=10.0,
                seed=args.seed,
                space=KeySpace(skew=args.skew),
            )
            result = {
                "shuffles_per_minute": shuffles,
                "approach": outcome.approach,
                "throughput": outcome.throughput,
                "mean_latency_ms": 1e3 * outcome.mean_latency,
                "state_moved_mb_s": outcome.state_moved_rate / 1e6,
                "remote_data_mb_s": outcome.remote_rate / 1e6,
                "decisions": outcome.decisions,
                "seconds": time.perf_counter() - began,
            }
            text = f"{shuffles:g} shuffles a minute, {outcome.approach}: {outcome.throughput:,.0f} tuples/s"
            print(text, file=sys.stderr, flush=True)
            results.append(result)
    return results


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run both settings."""
    threads = {each.name: thread_levels(each, args) for each in experiments(args.operators)}
    elastic, published = summarize(threads, "elastic"), summarize(threads, "published")
    return {
        "worst": elastic["worst"],
        "ratio": elastic["ratio"],
        "changes": elastic["changes"],
        "published_rules": published,
        "threads": threads,
        "cluster": cluster(args),
        "note": "costs of synchronization and migration are inputs: a check of the controllers",
    }
