"""Ask what would be: simulate a flow on another machine, or a keyed operator on a cluster, in virtual time.

    penstock sim threads --operators 20 --cost 50 --cores 16      a pipeline of 20 operators of 50 us per row
    penstock sim threads first.py --costs scan=200,map=20         your flow, with what its operators cost
    penstock sim cluster --nodes 8 --rate 50000 --skew 0.8        skewed keys on 8 nodes, by four approaches

The controllers are those of the engines, decisions included. What synchronization and migration cost is an input
(penstock/lab/sim/machine.py and cluster.py): a result compares settings with each other, and promises no rate. Python
functions that hold the GIL run one at a time, however many cores there are; the simulation has no GIL.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from penstock.cli import DONE, UsageError
from penstock.cli.displays import show
from penstock.cli.loading import load_target
from penstock.errors import FlowError
from penstock.flow import Flow
from penstock.lab.sim.graphs import Graph, Operator, data_parallel, mixed, pipeline, reverse_tree, tree
from penstock.lab.sim.machine import CSTREAM_HOST, POWER8, REBINDING_HOST, XEON, Machine

HELP = "simulate a flow, or a cluster, in virtual time"
MACHINES = {machine.name: machine for machine in (XEON, POWER8, CSTREAM_HOST, REBINDING_HOST)}
SHAPES: dict[str, Callable[[int, float], Graph]] = {
    "pipeline": pipeline,
    "data-parallel": data_parallel,
    "mixed": lambda count, cost: mixed(max(1, count // 10), min(10, count), cost),
    "tree": lambda count, cost: tree(_depth(count), 2, cost),
    "reverse-tree": lambda count, cost: reverse_tree(_depth(count), 2, cost),
}
PARTITIONS = 8
"""Workers that may be in a partitioned operator at once: as many as the threads engine has partitions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    threads = what.add_parser("threads", help="worker threads of one process: each fixed level, and the elastic one")
    threads.add_argument("target", metavar="FILE.py[:name]", nargs="?", help="a flow (default: a made-up graph)")
    threads.add_argument("--shape", choices=tuple(SHAPES), default="pipeline", help="the made-up graph")
    threads.add_argument("--operators", type=_whole, default=20, metavar="N", help="of the made-up graph (default: 20)")
    threads.add_argument(
        "--cost", type=_amount, default=20.0, metavar="US", help="of a row in an operator (default: 20)"
    )
    threads.add_argument("--costs", type=_pairs, default={}, metavar="NAME=US,...", help="of a flow's operators")
    threads.add_argument(
        "--selectivities", type=_pairs, default={}, metavar="NAME=X,...", help="rows out for a row in (default: 1)"
    )
    threads.add_argument("--cores", type=_whole, metavar="N", help="of a plain machine (default: 16)")
    threads.add_argument("--machine", choices=tuple(MACHINES), help="a machine of the papers instead")
    threads.add_argument("--rows", type=_whole, default=64, metavar="N", help="of a batch (default: 64)")
    threads.add_argument("--periods", type=_whole, default=60, metavar="N", help="of the elastic run (default: 60)")
    threads.add_argument("--json", action="store_true", help="one JSON object per line")
    cluster = what.add_parser("cluster", help="a keyed operator on a cluster, by four approaches")
    cluster.add_argument("--nodes", type=_whole, default=32, metavar="N", help="(default: 32)")
    cluster.add_argument("--cores", type=_whole, default=8, metavar="N", help="of a node (default: 8)")
    cluster.add_argument("--rate", type=_amount, default=100_000.0, metavar="ROWS", help="a second (default: 100000)")
    cluster.add_argument("--cost", type=_amount, default=1000.0, metavar="US", help="of a row (default: 1000)")
    cluster.add_argument("--keys", type=_whole, default=10_000, metavar="N", help="(default: 10000)")
    cluster.add_argument("--skew", type=_amount, default=0.5, metavar="Z", help="of the keys, zipf (default: 0.5)")
    cluster.add_argument("--shards", type=_whole, default=8192, metavar="N", help="(default: 8192)")
    cluster.add_argument("--shuffles", type=_amount, default=2.0, metavar="N", help="of the keys a minute (default: 2)")
    cluster.add_argument("--seconds", type=_amount, default=30.0, metavar="S", help="virtual ones (default: 30)")
    for each in (threads, cluster):
        each.add_argument("--seed", type=int, default=1, metavar="N", help="of all chance (default: 1)")
    cluster.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    rows = simulate_threads(args) if args.what == "threads" else simulate_cluster(args)
    show(rows, args.json, dict.fromkeys(rows[0], _figure))
    return DONE


def simulate_threads(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a graph at each fixed level, then with the elastic controller."""
    from penstock.elastic.thread_level import ThreadLevel
    from penstock.lab.sim.pe import PE
    from penstock.lab.sim.scale import static_levels
    from penstock.lab.sim.steering import static_throughput, steer, thread_lever

    if args.machine and args.cores:
        raise UsageError("--cores is of a plain machine; leave out --machine")
    cores = args.cores or 16
    machine = MACHINES[args.machine] if args.machine else Machine(f"{cores} cores", cores, cores)
    graph = flow_graph(args) if args.target else SHAPES[args.shape](args.operators, args.cost * 1e-6)
    costs = [operator.cost for operator in graph.operators if not operator.source]
    # Long enough that each worker runs some dozens of batches, whatever a row costs.
    period = (sum(costs) / len(costs) + machine.synchronization.tuple_passing) * args.rows * 96
    rates = {
        level: static_throughput(
            PE(graph, machine, level=level, rows=args.rows, filled=0.5), period=period, warmup=3, periods=6
        )
        for level in static_levels(machine)
    }
    pe = PE(graph, machine, level=1, rows=args.rows, filled=0.5)
    journey = steer(
        pe,
        [thread_lever(pe, ThreadLevel(high=machine.cores))],
        period=period,
        periods=args.periods,
        noise=0.02,
        seed=args.seed,
    )
    reached = static_throughput(pe, period=period, warmup=1, periods=6)
    best = max(rates.values())
    changes = sum(line.what not in ("start", "hold") for line in journey.log)
    levels = [
        {"workers": str(level), "operator rows/s": rate, "of the best": rate / best, "decisions": 0}
        for level, rate in rates.items()
    ]
    elastic = {
        "workers": f"elastic: {journey.levels[-1]}",
        "operator rows/s": reached,
        "of the best": reached / best,
        "decisions": changes,
    }
    return [*levels, elastic]


def flow_graph(args: argparse.Namespace) -> Graph:
    """Make the simulator's graph of a flow: kinds say how many workers an operator admits."""
    flow = load_target(args.target, [])
    for option in ("costs", "selectivities"):
        unknown = set(getattr(args, option)) - set(flow.nodes)
        if unknown:
            raise UsageError(
                f"--{option}: the flow has no operator {sorted(unknown)[0]!r}; it has {', '.join(flow.nodes)}"
            )
    return graph_of(flow, args.cost, args.costs, args.selectivities)


def graph_of(flow: Flow, cost: float, costs: Mapping[str, float], selectivities: Mapping[str, float]) -> Graph:
    """Make the simulator's graph of a flow; costs are microseconds of a row."""
    known = flow.graph()
    order = sorted(known.nodes, key=lambda name: known.nodes[name].operator.kind != "source")
    number = {name: i for i, name in enumerate(order)}
    permits = {"stateless": None, "partitioned": PARTITIONS}
    operators = []
    for name in order:
        kind = known.nodes[name].operator.kind
        plain = kind in ("source", "sink")
        operators.append(
            Operator(
                costs.get(name, 0.0 if plain else cost) * 1e-6,
                tuple(dict.fromkeys(number[edge.target] for edge in known.outgoing[name])),
                selectivity=selectivities.get(name, 1.0),
                permits=permits.get(kind, 1),
                source=kind == "source",
            )
        )
    if len(operators) < 2:
        raise FlowError(f"flow {flow.name!r} has nothing to simulate; it needs a source and a sink")
    return Graph(flow.name, tuple(operators))


def simulate_cluster(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the approaches side by side, on the same keys."""
    from penstock.lab.sim.cluster import ClusterSettings
    from penstock.lab.sim.elasticity import Approach, ResourceCentricApproach, StaticApproach, run_approach
    from penstock.lab.sim.executor_centric import ExecutorCentricApproach
    from penstock.lab.sim.keys import KeySpace

    settings = ClusterSettings(
        nodes=args.nodes,
        cores_per_node=args.cores,
        seconds_per_tuple=args.cost * 1e-6,
        rate=args.rate,
        upstream=args.nodes * args.cores,
    )
    executors = min(args.nodes, settings.cores)
    approaches: tuple[Approach, ...] = (
        StaticApproach(),
        ResourceCentricApproach(),
        ExecutorCentricApproach("naive_executor_centric", executors=executors, naive=True),
        ExecutorCentricApproach(executors=executors),
    )
    rows = []
    for approach in approaches:
        outcome, _ = run_approach(
            approach,
            shuffles_per_minute=args.shuffles,
            seconds=args.seconds,
            warmup=min(10.0, args.seconds),
            seed=args.seed,
            settings=settings,
            space=KeySpace(args.keys, args.skew, args.shards),
        )
        rows.append(
            {
                "approach": outcome.approach,
                "rows/s": outcome.throughput,
                "of offered": outcome.throughput / args.rate,
                "mean ms": 1e3 * outcome.mean_latency,
                "state moved MB/s": outcome.state_moved_rate / 1e6,
                "decisions": outcome.decisions,
            }
        )
    return rows


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def _depth(count: int) -> int:
    return max(1, (count + 1).bit_length() - 1)


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give 1 or more")
    return value


def _amount(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: give a number, 0 or more")
    return value


def _pairs(text: str) -> dict[str, float]:
    values = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"{part}: write NAME=VALUE, several with commas between")
        values[name] = _amount(value)
    return values
