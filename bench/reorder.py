"""Measure what order costs: a light NumPy operator with two workers, in order, out of order, and under a lock."""

import argparse
from collections import deque
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import penstock as ps
from bench import local_side, measure
from penstock.order.primitives import Primitives
from penstock.order.reorder import LockedReorderBuffer, ReorderBuffer
from penstock.threads.engine import LocalOptions
from penstock.threads.settings import Settings

DESCRIPTION = "a light NumPy operator with two workers: ordered against unordered and against a lock"


class Unordered:
    """Let every batch through as soon as it is there: the reorder buffer's work left out."""

    def __init__(self, _primitives: Primitives, size: int, *, first: int = 0) -> None:
        del first  # numbers mean nothing here
        self.size = size
        self._waiting: deque[Any] = deque()

    def has_room(self, _number: int) -> bool:
        """Say that there is room."""
        return True

    def offer(self, _number: int, value: Any) -> bool:
        """Store the output of a batch."""
        self._waiting.append(value)
        return True

    def drain(self) -> Generator[Any, None, None]:
        """Iterate over all outputs that are there, in whatever order they came."""
        while True:
            try:
                value = self._waiting.popleft()
            except IndexError:
                return
            yield value

    def progress(self) -> tuple[int, int]:
        """Say that nothing waits for anything."""
        return 0, 0


BUFFERS: dict[str, Any] = {"ordered": ReorderBuffer, "unordered": Unordered, "locked": LockedReorderBuffer}


def turn(name: str, kernel: local_side.Kernel, rows: int, options: LocalOptions) -> float:
    """Run the operator over so many rows with one kind of buffer; check the outputs; return the seconds."""

    def work(row: Any) -> Any:
        kernel()
        return row

    flow = ps.Flow("reorder")
    flow.source("rows", ps.read.generate(local_side.serials, schema={"serial": int}, rows=rows)).map(work).sink("out")
    options = replace(options, settings=replace(options.settings, reorder=BUFFERS[name]))
    engine, seconds = local_side.run_flow(flow, options)
    stations = engine.element.stations
    local_side.check_part(name, stations["work"]._reorder, BUFFERS[name])  # type: ignore[attr-defined]
    local_side.check_part(name, stations["out"].around.published, BUFFERS[name])
    found = [row.serial for row in engine.results["out"]]
    local_side.check_order(name, sorted(found) if name == "unordered" else found, rows)
    return seconds


def compare(
    names: list[str], kernel: local_side.Kernel, rows: int, options: LocalOptions, args: argparse.Namespace
) -> dict[str, list[float]]:
    """Run some kinds of buffer in turns; return the rows a second of each."""
    turns = {
        name: local_side.clocked(
            f"{name}, batches of {options.batch_rows or 'a size that is found'}",
            rows,
            partial(turn, name, kernel, rows, options),
        )
        for name in names
    }
    return measure.interleave(turns, args.rounds, args.warmup)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--microseconds", type=float, default=30, help="what a row costs")
    parser.add_argument("--rows", type=int, default=40_000, help="rows of a turn at the default batch size")
    parser.add_argument("--single-rows", type=int, default=4_000, help="rows of a turn at batch size 1")
    parser.add_argument("--batch-rows", type=int, help="rows of a batch (default: found by the engine)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=2, help="turns of every side that are not counted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns, at the default batch size and at one row a batch, and compare them."""
    kernel = local_side.Kernel(args.microseconds)
    settings = Settings(workers=args.workers)
    whole = compare(["ordered", "unordered"], kernel, args.rows, LocalOptions(args.batch_rows, settings=settings), args)
    single = compare(list(BUFFERS), kernel, args.single_rows, LocalOptions(1, settings=settings), args)
    by_row = {"ordered_unordered": ("ordered", "unordered"), "non_blocking_locked": ("ordered", "locked")}
    return {
        "microseconds": args.microseconds,
        "workers": args.workers,
        "batch_rows": args.batch_rows,
        "rows": args.rows,
        "rounds": args.rounds,
        "warmup": args.warmup,
        **local_side.compare(whole, {"ratio": ("ordered", "unordered")}, args.seed),
        "batch_size_1": {"rows": args.single_rows, **local_side.compare(single, by_row, args.seed)},
    }
