"""A flow whose source gives a row for each step of the test, so that it can be changed at a known place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import penstock as ps

from .support import wait_for

ROWS = 60


class Paced:
    """A source that gives a row for each step."""

    def __init__(self) -> None:
        self._go, self._steps, self._asked = threading.Semaphore(0), 0, 0

    def __iter__(self):
        for number in range(ROWS):
            self._asked = number + 1
            self._go.acquire()
            yield {"n": number, "k": number % 3}

    def step(self, rows: int) -> None:
        self._steps += rows
        self._go.release(rows)

    def past(self, run: ps.Run, change: Callable[..., Any], *arguments: Any) -> Any:
        """Make a change while the source waits in its next row: it is made once that has come."""
        wait_for(lambda: self._asked > self._steps)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(change, *arguments)
            wait_for(lambda: run.engine._changes or asked.done())
            self.step(1)
            return asked.result()


def started(model: str, paced: Paced) -> tuple[ps.Flow, ps.Stream, ps.Stream, ps.Run]:
    flow = ps.Flow("queries")
    source = flow.source("in", ps.read.items(paced, schema={"n": int, "k": int}), time="n")
    shared = source.map(lambda row: {"n": row.n * 10, "k": row.k}, schema={"n": int, "k": int}, name="shared")
    shared.sink("first")
    run = ps.start(flow, on=ps.Threads(model=model, workers=3, batch_rows=1))
    return flow, source, shared, run
