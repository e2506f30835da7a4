"""Functions that wait with nothing set, against windows and pools tuned by hand: what the engine's search is worth.

A run of the engine goes over as many rows as there is time for, and its second half counts: by then it should have
found how many rows to keep in flight. Before and after it each size that is tried by hand has a short turn of its own,
and the best counts.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import penstock as ps
from penstock.threads.engine import LocalEngine
from penstock.threads.waiting_stations import WaitingStation

Ask = Callable[[int], Any]
SERVICES = {"0.5 ms": (0.0005, False), "2 ms": (0.002, False), "20 ms": (0.02, False), "degrading": (0.002, True)}
"""What a call waits, and whether the service slows down beyond `STANDS` calls at once."""
STANDS = 32
SIZES = {True: (32, 128, 512, 2048), False: (32, 64, 256, 768)}
"""What is tried by hand: for an async def, and for a plain function."""


def service(seconds: float, degrades: bool) -> tuple[Ask, Ask]:
    """Return the function of a row as an async def and as a plain function."""
    inside, lock = [0], threading.Lock()

    def slowed() -> float:
        return seconds * max(1.0, inside[0] / STANDS) ** 1.5

    async def ask(row: int) -> int:
        if not degrades:
            await asyncio.sleep(seconds)
            return row
        inside[0] += 1
        await asyncio.sleep(slowed())
        inside[0] -= 1
        return row

    def ask_plainly(row: int) -> int:
        if not degrades:
            time.sleep(seconds)
            return row
        with lock:
            inside[0] += 1
        time.sleep(slowed())
        with lock:
            inside[0] -= 1
        return row

    return ask, ask_plainly


def by_hand(ask: Ask, asynchronous: bool, size: int, seconds: float) -> float:
    """Keep so many rows in flight for a time; return the rows a second."""
    rows, end = itertools.count(), time.perf_counter() + seconds
    results: list[Any] = []

    async def runner() -> None:
        while time.perf_counter() < end:
            results.append(await ask(next(rows)))

    async def all_runners() -> None:
        await asyncio.gather(*(runner() for _ in range(size)))

    def thread() -> None:
        while time.perf_counter() < end:
            results.append(ask(next(rows)))

    began = time.perf_counter()
    if asynchronous:
        asyncio.run(all_runners())
    else:
        threads = [threading.Thread(target=thread) for _ in range(size)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    return len(results) / (time.perf_counter() - began)


def by_default(ask: Ask, asynchronous: bool, seconds: float) -> tuple[float, int]:
    """Run a flow with nothing set; return the rows a second of its second half, and the rows in flight at its end."""
    stopped = threading.Event()

    def rows() -> Iterator[int]:
        return itertools.takewhile(lambda _: not stopped.is_set(), itertools.count())

    waits: Any = {} if asynchronous else {"waits": True}
    flow = ps.Flow("defaults")
    flow.source("rows", ps.read.items(rows())).map(ask, name="ask", **waits).sink("out", ps.write.callback(_forget))
    run = ps.start(flow, on=ps.Threads())
    engine = run.engine
    assert isinstance(engine, LocalEngine)
    time.sleep(seconds / 2)
    half = run.stats
    time.sleep(seconds / 2)
    done = run.stats.since(half)
    station = engine.element.stations["ask"]
    assert isinstance(station, WaitingStation)
    stopped.set()
    engine.stop_now()
    run.await_end()
    return done.operators["ask"].begun / done.seconds, station.in_flight


def _forget(_rows: Any, _epoch: int) -> None:
    """Take rows, and do nothing with them."""


def compare(names: list[str], seconds: float, turn: float) -> dict[str, Any]:
    """Compare both forms over the services; the worst counts."""
    found: dict[str, dict[str, Any]] = {"async": {}, "plain": {}}
    for name in names:
        for form, asynchronous, ask in zip(found, (True, False), service(*SERVICES[name]), strict=True):
            tried: dict[int, list[float]] = {size: [] for size in SIZES[asynchronous]}
            for size, speeds in tried.items():
                speeds.append(by_hand(ask, asynchronous, size, turn))
            speed, level = by_default(ask, asynchronous, seconds)
            for size, speeds in tried.items():
                speeds.append(by_hand(ask, asynchronous, size, turn))
            means = {size: sum(speeds) / len(speeds) for size, speeds in tried.items()}
            best = max(means, key=means.__getitem__)
            found[form][name] = {
                "ratio": speed / means[best],
                "rows_s": speed,
                "in_flight": level,
                "by_hand_rows_s": means[best],
                "by_hand": best,
            }
    return {
        **{f"{form}_default_ratio": min(each["ratio"] for each in cases.values()) for form, cases in found.items()},
        "defaults": found,
    }
