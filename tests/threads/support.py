"""What tests of the threads engine share: flows, and sources that give rows when the test says so."""

from __future__ import annotations

import threading
import time
from typing import Any

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings

from ..patience import PATIENCE

MODELS = ["manual", "dedicated", "dynamic", "bound"]


def simple(rows: Any, function: Any = lambda row: row.v + 1) -> ps.Flow:
    flow = ps.Flow("simple")
    flow.source("in", ps.read.items(rows, schema={"v": int})).map(function, name="work").sink("out")
    return flow


def numbers(count: int) -> list[dict[str, int]]:
    return [{"v": number} for number in range(count)]


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]


class Held:
    """A source that gives rows as they are released, so that a test knows what has come in."""

    def __init__(self, rows: int) -> None:
        self._rows, self.taken = rows, 0
        self.go = threading.Semaphore(0)

    def __iter__(self):
        for number in range(self._rows):
            self.go.acquire()
            self.taken += 1
            yield {"v": number}


def wait_for(condition: Any, seconds: float = PATIENCE) -> None:
    """Wait until something holds that must, however long it takes; the end is there only so that no test hangs."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.002)


def wait_until_still(value: Any) -> None:
    """Wait until a value does not change any more."""
    last, since = value(), time.monotonic()
    while time.monotonic() - since < 0.2:
        if value() != last:
            last, since = value(), time.monotonic()
        time.sleep(0.01)


def ran(flow: ps.Flow, *, fuse: bool, batch_rows: int) -> LocalEngine:
    engine = LocalEngine(make_plan(flow), LocalOptions(batch_rows, settings=Settings(workers=2, fuse=fuse)))
    engine.run()
    return engine
