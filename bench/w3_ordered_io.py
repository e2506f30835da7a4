"""Run W3: a lookup that waits, outputs in input order; the threads engine against windows and pools tuned by hand.

Both sides choose how many rows are in flight: every size is tried in short turns first, and each side keeps its best.
Then the best of all sides take turns over all rows. What the engine finds by itself, with nothing set, is compared over
several services (`waiting_defaults`).
"""

import argparse
import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import penstock as ps
from bench import local_side, measure, waiting_defaults
from penstock.threads.engine import LocalOptions

DESCRIPTION = "a lookup that waits, in order: threads engine against hand-tuned asyncio windows and thread pools"

Rows = list[int]
PAIRS = {
    "async_ratio": ("penstock_async", "window"),
    "plain_ratio": ("penstock_plain", "pool"),
}


class Lookup:
    """The function of a row: it waits, and answers with the row."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def functions(self) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
        """Return it as an async def and as a plain function."""
        seconds, sleep, wait = self.seconds, time.sleep, asyncio.sleep

        async def ask(row: int) -> int:
            await wait(seconds)
            return row

        def ask_plainly(row: int) -> int:
            sleep(seconds)
            return row

        return ask, ask_plainly


def window_turn(ask: Callable[[int], Any], rows: Rows, size: int) -> Rows:
    """Keep a window of rows in flight in one event loop: tasks that take the next row from one iterator."""
    results: Rows = [-1] * len(rows)

    async def runner(numbered: Iterator[tuple[int, int]]) -> None:
        for index, row in numbered:
            results[index] = await ask(row)

    async def whole() -> None:
        numbered = iter(enumerate(rows))
        await asyncio.gather(*(runner(numbered) for _ in range(size)))

    asyncio.run(whole())
    return results


def pool_turn(ask: Callable[[int], int], rows: Rows, size: int) -> Rows:
    """Keep a pool of threads that take the next row from one deque."""
    results: Rows = [-1] * len(rows)
    take = deque(enumerate(rows)).popleft

    def runner() -> None:
        while True:
            try:
                index, row = take()
            except IndexError:
                return
            results[index] = ask(row)

    threads = [threading.Thread(target=runner) for _ in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def executor_turn(ask: Callable[[int], int], rows: Rows, size: int) -> Rows:
    """Map over the standard library's pool of threads."""
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(ask, rows))


def penstock_turn(options: LocalOptions, ask: Callable[[int], Any], rows: Rows, size: int) -> Rows:
    """Run a flow on the threads engine."""
    flow = ps.Flow("w3")
    flow.source("rows", ps.read.items(rows)).map(ask, in_flight=size).sink("out", ps.write.memory())
    engine, _ = local_side.run_flow(flow, options)
    return engine.results["out"]


Turn = Callable[[Rows, int], Rows]


def clocked(name: str, turn: Turn, rows: Rows, size: int) -> Callable[[], float]:
    """Return a turn that checks the order and gives the rows a second."""

    def seconds() -> float:
        began = time.perf_counter()
        found = turn(rows, size)
        spent = time.perf_counter() - began
        local_side.check_order(name, found, len(rows))
        return spent

    return local_side.clocked(f"{name} of {size}", len(rows), seconds)


def best_size(name: str, turn: Turn, rows: Rows, sizes: list[int], rounds: int) -> tuple[int, float]:
    """Try all sizes in turns; return the best one and its rows a second."""
    tried = measure.interleave({str(size): clocked(name, turn, rows, size) for size in sizes}, rounds)
    medians = {size: measure.median(tried[str(size)]).median for size in sizes}
    best = max(medians, key=lambda size: medians[size])
    return best, medians[best]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--wait", type=float, default=2.0, help="milliseconds that the lookup waits")
    parser.add_argument("--windows", type=int, nargs="+", default=[256, 512, 1024, 2048], help="sizes for async def")
    parser.add_argument("--pools", type=int, nargs="+", default=[32, 64, 128, 256], help="sizes for plain functions")
    parser.add_argument("--tuning-rows", type=int, default=20_000, help="rows of a turn that looks for the best size")
    parser.add_argument("--tuning-rounds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=1, help="turns of every side that are not counted")
    known = list(waiting_defaults.SERVICES)
    parser.add_argument("--services", nargs="*", choices=known, default=known, help="for the runs with nothing set")
    parser.add_argument("--default-seconds", type=float, default=20.0, help="of a run with nothing set")
    parser.add_argument("--hand-seconds", type=float, default=1.5, help="of a turn of a size that is tuned by hand")
    local_side.add_engine_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Tune every side, run all sides in turns and compare them."""
    ask, ask_plainly = Lookup(args.wait / 1000).functions()
    options = local_side.engine_options(args)
    few, rows = list(range(args.tuning_rows)), list(range(args.rows))
    candidates: dict[str, tuple[Turn, list[int]]] = {
        "window": (partial(window_turn, ask), args.windows),
        "penstock_async": (partial(penstock_turn, options, ask), args.windows),
        "deque_pool": (partial(pool_turn, ask_plainly), args.pools),
        "executor_pool": (partial(executor_turn, ask_plainly), args.pools),
        "penstock_plain": (partial(penstock_turn, options, ask_plainly), args.pools),
    }
    tuned = {name: best_size(name, turn, few, sizes, args.tuning_rounds) for name, (turn, sizes) in candidates.items()}
    pool = max("deque_pool", "executor_pool", key=lambda name: tuned[name][1])
    chosen = {
        "window": ("window", tuned["window"][0]),
        "penstock_async": ("penstock_async", tuned["penstock_async"][0]),
        "pool": (pool, tuned[pool][0]),
        "penstock_plain": ("penstock_plain", tuned["penstock_plain"][0]),
    }
    sides = {name: clocked(name, candidates[kind][0], rows, size) for name, (kind, size) in chosen.items()}
    compared = local_side.compare(measure.interleave(sides, args.rounds, args.warmup), PAIRS, args.seed)
    return {
        "rows": args.rows,
        "wait_ms": args.wait,
        **local_side.engine_figures(options),
        "rounds": args.rounds,
        "warmup": args.warmup,
        "ratio": min(compared["async_ratio"], compared["plain_ratio"]),
        **compared,
        "best_pool": pool,
        "in_flight": {name: size for name, (_, size) in chosen.items()},
        "tuning_rows_s": {name: speed for name, (_, speed) in tuned.items()},
        "in_order": True,
        **waiting_defaults.compare(args.services, args.default_seconds, args.hand_seconds),
    }
