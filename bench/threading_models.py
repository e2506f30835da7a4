"""Compare the threading models on Streams' three shapes of graphs, with light and heavy NumPy operators."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import local_side, measure
from penstock.lab.workloads.synthetic import Shape, graph
from penstock.threads.engine import LocalOptions
from penstock.threads.models.base import ModelName
from penstock.threads.settings import Settings

DESCRIPTION = "manual, dedicated, dynamic and bound threads on pipeline, data-parallel and mixed graphs"

MODELS: tuple[ModelName, ...] = ("manual", "dedicated", "dynamic", "bound")
SHAPES: tuple[Shape, ...] = ("pipeline", "data-parallel", "mixed")


def sizes(shape: Shape, operators: int) -> tuple[int, int]:
    """Return the width and the depth of a graph with so many operators."""
    return {"pipeline": (1, operators), "data-parallel": (operators, 1), "mixed": (2, operators // 2)}[shape]


def turn(shape: Shape, operators: int, microseconds: float, rows: int, options: LocalOptions) -> float:
    """Run a graph to its end; check the order; return the seconds."""
    width, depth = sizes(shape, operators)
    flow = graph(shape, width=width, depth=depth, cost_us=microseconds, rows=rows)
    engine, seconds = local_side.run_flow(flow, options)
    if engine.element.model.name != options.settings.model:
        raise AssertionError(f"the engine was built with the {engine.element.model.name} model")
    local_side.check_order(options.settings.model, [row.serial for row in engine.results["out"]], rows)
    return seconds


def measured(shape: Shape, microseconds: float, args: argparse.Namespace) -> dict[str, Any]:
    """Run the models in turns on one graph and compare them."""
    # As much work in every graph, and as much in every batch.
    rows = max(1, round(args.seconds * 1e6 / microseconds / sizes(shape, args.operators)[1]))
    batch = max(1, rows // args.batches)
    turns: dict[str, Callable[[], float]] = {}
    for model in MODELS:  # operators are not fused: what is compared is which thread runs which of them
        options = LocalOptions(batch, settings=Settings(model=model, workers=args.workers, fuse=False))
        run_one = partial(turn, shape, args.operators, microseconds, rows, options)
        turns[model] = local_side.clocked(f"{shape}, {microseconds:g} us, {model}", rows, run_one)
    speeds = measure.interleave(turns, args.rounds, args.warmup)
    pairs = {f"{model}_manual": (model, "manual") for model in MODELS if model != "manual"}
    figures = local_side.compare(speeds, pairs, args.seed)
    best = max(MODELS, key=lambda model: figures[f"{model}_rows_s"])
    return {
        "graph": shape,
        "microseconds": microseconds,
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
    weights = (args.light, args.heavy)
    return {**settings, "experiments": [measured(shape, weight, args) for weight in weights for shape in SHAPES]}
