"""The loop that steers a flow in this process: a thread of its own ends a period every so often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from penstock.elastic.pilot import Lever, Period, Pilot
from penstock.statistics import FlowStats

PERIOD = 2.0
"""Seconds from decision to decision. Streams takes 10; a flow in one process settles sooner."""
SEARCH_PERIOD = 0.5
"""The same while numbers of workers are compared, five looks or more: a flow should have its workers in seconds."""


class PilotThread(Pilot):
    """Step several levers every so often, in a thread of its own; any thread may hand one over or take one away."""

    def __init__(
        self, statistics: Callable[[], FlowStats], levers: Iterable[Lever], *, period: float | None = None
    ) -> None:
        self._statistics = statistics
        self._period = PERIOD if period is None else period
        self._moves = True
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = False
        super().__init__(levers, statistics())

    def start(self) -> None:
        """Begin to measure, as soon as there is something to steer."""
        with self._lock:
            self._started = True
            self._begin()

    def _begin(self) -> None:
        if self._started and self.levers and self._thread is None and not self._end.is_set():
            self._thread = threading.Thread(target=self._loop, name="penstock-pilot", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        with self._lock:
            self._end.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def add(self, levers: Iterable[Lever]) -> None:
        with self._lock:
            super().add(levers)
            self._begin()

    def leave(self, names: Collection[str]) -> None:
        with self._lock:
            super().leave(names)

    @property
    def names(self) -> list[str]:
        """What is steered, in the order of its turns."""
        return [each.name for each in self.levers]

    def _loop(self) -> None:
        while not self._end.wait(self.wait):
            self.step()

    @property
    def wait(self) -> float:
        """The seconds until the next decision."""
        return min(self._period, SEARCH_PERIOD) if self.searching and self._moves else self._period

    def begin_period(self) -> None:
        """Forget what was done since the last decision, because something was changed from elsewhere meanwhile."""
        with self._lock:
            self.before = self._statistics()

    def step(self, now: FlowStats | None = None) -> None:
        with self._lock:
            now = now or self._statistics()
            # Where nothing moves, nothing is found out.
            self._moves = now.batches_out > self.before.batches_out or _begun(now) > _begun(self.before)
            super().step(now)

    def try_turn(self, lever: Lever, period: Period) -> bool:
        """Let a lever have a turn at a time of its own; return whether it had it.

        It has none if others decide just now: whoever carries out what they decide may be who asks here, so it must
        not wait.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.turn(lever, period)
        finally:
            self._lock.release()
        return True


def _begun(stats: FlowStats) -> int:
    """Count the rows of functions that wait: the first batch of them may take long."""
    return sum(each.begun for each in stats.operators.values())
