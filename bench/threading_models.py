"""Compare the threading models on Streams' three shapes of graphs, with light and heavy NumPy operators."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import penstock as ps
from bench import local_side, measure
from penstock.local.engine import Options
from penstock.pe.element import Settings

DESCRIPTION = "manual, dedicated, dynamic and bound threads on pipeline, data-parallel and mixed graphs"

MODELS = ("manual", "dedicated", "dynamic", "bound")
Work = Callable[[Any], Any]
Graph = Callable[[ps.Stream, Work, int], ps.Stream]


def pipeline(stream: ps.Stream, work: Work, size: int) -> ps.Stream:
    """Put operators one behind the other."""
    for _ in range(size):
        stream = stream.map(work)
    return stream


def data_parallel(stream: ps.Stream, work: Work, size: int) -> ps.Stream:
    """Put operators side by side, each with its part of the rows."""
    return side_by_side(stream, work, size, 1)


def mixed(stream: ps.Stream, work: Work, size: int) -> ps.Stream:
    """Put pipelines side by side."""
    return side_by_side(stream, work, 2, size // 2)


def side_by_side(stream: ps.Stream, work: Work, wide: int, deep: int) -> ps.Stream:
    """Deal rows out to pipelines and gather them again, in order."""
    branches = stream.split(*(partial(_is_for, wide, number) for number in range(wide - 1)))
    first, *others = (pipeline(branch, work, deep) for branch in branches)
    return first.union(*others)


def _is_for(wide: int, number: int, row: Any) -> bool:
    return bool(row.serial % wide == number)


GRAPHS: dict[str, Graph] = {"pipeline": pipeline, "data_parallel": data_parallel, "mixed": mixed}


def turn(graph: Graph, size: int, kernel: local_side.Kernel, rows: int, options: Options) -> float:
    """Run a graph to its end; check the order; return the seconds."""

    def work(row: Any) -> Any:
        kernel()
        return row

    flow = ps.Flow("models")
    source = flow.source("rows", ps.read.generate(local_side.serials, schema={"serial": int}, rows=rows))
    graph(source, work, size).sink("out")
    engine, seconds = local_side.run_flow(flow, options)
    local_side.check_order(options.settings.model, [row.serial for row in engine.results["out"]], rows)
    return seconds


def operators_a_row(name: str, size: int) -> int:
    """Return how many operators each row goes through."""
    return {"pipeline": size, "data_parallel": 1, "mixed": size // 2}[name]


def measured(name: str, kernel: local_side.Kernel, args: argparse.Namespace) -> dict[str, Any]:
    """Run the models in turns on one graph and compare them."""
    # As much work in every graph, and as much in every batch.
    rows = max(1, round(args.seconds * 1e6 / kernel.microseconds / operators_a_row(name, args.operators)))
    batch = max(1, rows // args.batches)
    turns = {}
    for model in MODELS:
        options = Options(batch, settings=Settings(model=model, workers=args.workers))
        run_one = partial(turn, GRAPHS[name], args.operators, kernel, rows, options)
        turns[model] = local_side.clocked(f"{name}, {kernel.microseconds:g} us, {model}", rows, run_one)
    speeds = measure.interleave(turns, args.rounds, args.warmup)
    pairs = {f"{model}_manual": (model, "manual") for model in MODELS if model != "manual"}
    figures = local_side.compare(speeds, pairs, args.seed)
    best = max(MODELS, key=lambda model: figures[f"{model}_rows_s"])
    return {
        "graph": name,
        "microseconds": kernel.microseconds,
        "rows": rows,
        "batch_rows": batch,
        "best": best,
        **figures,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--operators", type=int, default=8, help="operators of a graph, without splits and unions")
    parser.add_argument("--light", type=float, default=20, help="microseconds that a light operator takes for a row")
    parser.add_argument("--heavy", type=float, default=500, help="microseconds that a heavy operator takes for a row")
    parser.add_argument("--seconds", type=float, default=0.5, help="work of a turn, as one core would do it")
    parser.add_argument("--batches", type=int, default=32, help="batches of a turn")
    parser.add_argument("--workers", type=int, default=2, help="workers of the dynamic and the bound model")
    parser.add_argument("--rounds", type=int, default=5, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=1, help="turns of every side that are not counted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Compare the models on every graph with both weights."""
    settings = {name: getattr(args, name) for name in ("operators", "seconds", "batches", "workers", "rounds")}
    kernels = [local_side.Kernel(args.light), local_side.Kernel(args.heavy)]
    return {**settings, "experiments": [measured(name, kernel, args) for kernel in kernels for name in GRAPHS]}
