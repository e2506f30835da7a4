"""Drive a threads engine step by step: the test says which operator runs next, and sees what policies would see."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import penstock as ps
from penstock.plan.plan import Plan, make_plan
from penstock.threads.element import Element
from penstock.threads.ingress import Cutter
from penstock.threads.policies import Moment, OperatorView, Snapshot, take_snapshot
from penstock.threads.settings import Settings

SOON = 60.0
"""Seconds for what happens at once, unless it never happens."""


class Clock:
    """Time that passes only where operators are said to take it, and by `tick` for each look."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now, self._tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self._tick
        return self.now

    def work(self, seconds: float) -> Any:
        """Return a function that takes so long for a row, and gives it back."""

        def worked(row: Any) -> Any:
            self.now += seconds
            return row

        return worked


class Driver:
    """A policy that shows what it could choose from, and chooses what the test says."""

    def __init__(self) -> None:
        self._shown: queue.Queue[tuple[Sequence[OperatorView], Moment]] = queue.Queue()
        self._orders: queue.Queue[str] = queue.Queue()
        self._released = threading.Event()

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        if self._released.is_set():
            return 0
        self._shown.put((ready, moment))
        name = self._orders.get(timeout=SOON)
        return next((i for i, view in enumerate(ready) if view.name == name), 0)

    def ready(self) -> tuple[list[OperatorView], Moment]:
        """Wait until the worker asks, and return what it could run."""
        ready, moment = self._shown.get(timeout=SOON)
        return list(ready), moment

    def order(self, name: str) -> None:
        """Have the worker that asks run an operator."""
        self._orders.put(name)

    def release(self) -> None:
        """Let the workers go on by themselves."""
        self._released.set()
        self._orders.put("")


class Stage:
    """An element whose one worker does what the test says."""

    def __init__(self, flow: ps.Flow, rows: Sequence[Any], sizes: Sequence[int], clock: Clock, **settings: Any) -> None:
        self.plan: Plan = make_plan(flow)
        self.driver, self.published = Driver(), list[int]()
        chosen: dict[str, Any] = {"policy": self.driver, "fuse": False, "quantum": 0.0, **settings}
        self.element = Element(
            self.plan, lambda header, chunks: self.published.append(header.number), Settings(**chosen), clock=clock
        )
        self._cuts = cuts(self.plan, rows, sizes)
        self.now: tuple[list[OperatorView], Moment] | None = None

    def submit(self) -> None:
        """Read the next batch."""
        cut = next(self._cuts)
        assert self.element.submit(cut.rows, cut.marks, cut.steps)

    def look(self) -> dict[str, Snapshot]:
        """Wait until the worker asks what to run; return what it could, as it is now."""
        if self.now is None:
            self.now = self.driver.ready()
        return {view.name: take_snapshot(view) for view in self.now[0]}

    def run(self, *names: str) -> None:
        """Have operators run one batch each; each must be ready."""
        for name in names:
            self.begin(name)
            self.look()

    def begin(self, name: str) -> None:
        """Have the worker that asks begin with an operator, and do not wait for it."""
        ready = self.look()
        assert name in ready, f"{name} is not ready; {list(ready)} are"
        self.now = None
        self.driver.order(name)

    def hold(self, name: str, reached: threading.Semaphore) -> None:
        """Have the worker run an operator that will hold it there, and wait until it does."""
        self.begin(name)
        assert reached.acquire(timeout=SOON)


@contextmanager
def on_stage(stage: Stage) -> Iterator[Stage]:
    """Start the worker; at the end, let it finish."""
    stage.element.start()
    try:
        yield stage
    finally:
        stage.driver.release()
        stage.element.close()


def cuts(plan: Plan, rows: Sequence[Any], sizes: Sequence[int]) -> Iterator[Any]:
    """Cut rows in batches of the given sizes."""
    cutter = Cutter(plan, sizes[0])
    (source,) = plan.sources
    feed = source.operator.reader.feed(source.name, lambda: 0.0)  # type: ignore[attr-defined]
    left = iter(sizes[1:])
    found = feed.poll(len(rows))
    assert found is not None
    for cut in cutter.cut({source.name: found}):
        cutter.batch_rows = next(left, sizes[-1])
        yield cut
