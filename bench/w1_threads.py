"""Run W1 in one process: the threads engine, a bare Python loop, and Bytewax with one worker.

`workers_ratio` is what a second worker brings: little where the interpreter has a GIL, much where it has none.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from bench import local_side, measure
from bench.peers.python_loop import LoopSide
from bench.workload import Event, Running, running
from penstock.local.engine import Options

DESCRIPTION = "keyed running count and sum in one process: threads engine, bare loop, Bytewax"

PAIRS = {
    "loop_ratio": ("penstock", "loop"),
    "loop_no_gc_ratio": ("penstock", "loop_no_gc"),
    "ratio": ("penstock", "bytewax"),
    "workers_ratio": ("penstock_two_workers", "penstock"),
}


def penstock_turn(folder: Path, rows: int, options: Options) -> float:
    """Run the user's function over the files, outputs into memory; check them; return the seconds."""
    flow = ps.Flow("w1")
    events = flow.source("events", ps.read.parquet(str(folder), schema=Event))
    events.key_by("key").scan(running, (0, 0.0)).sink("out", ps.write.memory())
    engine, seconds = local_side.run_flow(flow, options)
    check(engine.results["out"], rows)
    return seconds


def loop_turn(paths: Sequence[Path], collector: bool) -> float:
    """Run the bare loop over the files; return the seconds."""
    ((_, seconds),) = LoopSide([paths], collector).run_epochs(1)
    return seconds


def check(outputs: Sequence[Running], rows: int) -> None:
    """Fail unless there is one output for each event, in the order of the events, with the right count."""
    counts: dict[int, int] = {}
    for number, row in enumerate(outputs):
        if row.serial != number:
            raise AssertionError(f"output {number} is of event {row.serial}: not in the order of the inputs")
        counts[row.key] = counts.get(row.key, 0) + 1
        if row.count != counts[row.key]:
            raise AssertionError(f"event {number}: the count of key {row.key} is {row.count}, not {counts[row.key]}")
    if len(outputs) != rows:
        raise AssertionError(f"{len(outputs)} outputs for {rows} events")


class BytewaxSide:
    """Bytewax's turn: checked for completeness, and its inversions counted, for it does not keep the order."""

    def __init__(self, module: Any, paths: Sequence[Path], rows: int) -> None:
        self._module, self._paths, self._rows = module, paths, rows
        self.inversions = 0

    def turn(self) -> float:
        """Run once; return the seconds."""
        outputs, seconds = self._module.run(self._paths)
        check(sorted(outputs, key=lambda row: row.serial), self._rows)
        serials = [row.serial for row in outputs]
        self.inversions = sum(a > b for a, b in itertools.pairwise(serials))
        return float(seconds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--files", type=int, default=2, help="files that a turn reads")
    parser.add_argument("--file-rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=2, help="turns of every side that are not counted")
    local_side.add_engine_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns and compare them."""
    folder, paths = local_side.directory(args.seed, args.files, args.file_rows)
    rows = args.files * args.file_rows
    options = local_side.engine_options(args)
    turns: dict[str, Callable[[], float]] = {
        "penstock": partial(penstock_turn, folder, rows, options),
        "loop": partial(loop_turn, paths, True),
        "loop_no_gc": partial(loop_turn, paths, False),
    }
    if options.settings.workers == 1:
        two = replace(options, settings=replace(options.settings, workers=2))
        turns["penstock_two_workers"] = partial(penstock_turn, folder, rows, two)
    module = local_side.peer("bytewax_w1")
    bytewax = None if module is None else BytewaxSide(module, paths, rows)
    if bytewax is not None:
        turns["bytewax"] = bytewax.turn
    sides = {name: local_side.clocked(name, rows, turn) for name, turn in turns.items()}
    speeds = measure.interleave(sides, args.rounds, args.warmup)
    return {
        "rows": rows,
        **local_side.engine_figures(options),
        "rounds": args.rounds,
        "warmup": args.warmup,
        **local_side.compare(speeds, PAIRS, args.seed),
        "in_order": True,
        "bytewax_inversions": None if bytewax is None else bytewax.inversions,
        "skipped": [] if bytewax is not None else ["bytewax"],
    }
