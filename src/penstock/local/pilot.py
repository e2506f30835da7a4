"""Find the number of workers while a flow runs: measure, let the controller decide, act, and keep every decision."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from penstock.elastic.decisions import Decision, Pilot
from penstock.elastic.thread_level import ThreadLevel, ThreadState, ThreadStatistics
from penstock.pe.element import Element
from penstock.pe.statistics import ElementStats

PERIOD = 2.0
"""Seconds from decision to decision. Streams takes 10; a flow in one process settles sooner."""
MOST_THREADS = 16
"""Operators that wait gain from more workers than there are processors; others show by themselves that they do not."""


class ThreadPilot:
    """Set the number of workers of an element from its throughput, every so often, in a thread of its own."""

    def __init__(
        self,
        element: Element,
        *,
        period: float = PERIOD,
        most: int = MOST_THREADS,
        cpu_usage: Callable[[], float] | None = None,
    ) -> None:
        self._element, self._period = element, period
        self._cpu_usage = cpu_usage or machine_usage()
        self._before = element.statistics()
        controller = ThreadLevel(high=most, initial=1)
        self._pilot: Pilot[ThreadState, ThreadStatistics]
        self._pilot, started = Pilot.begin("threads", controller, time=self._before.at)
        self.decisions: list[Decision] = [started]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="penstock-pilot", daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _loop(self) -> None:
        while not self._end.wait(self._period):
            self.step()

    def step(self) -> None:
        """Look at what was done since the last time, and decide."""
        now = self._element.statistics()
        before, self._before = self._before, now
        seen = ThreadStatistics(_rate(before, now), self._cpu_usage(), self._element.leaving)
        self._pilot, actions, lines = self._pilot.step(seen, time=now.at)
        self.decisions.extend(lines)
        for action in actions:
            if action.what == "thread_level" and isinstance(action.after, int):
                self._element.set_workers(action.after)


def _rate(before: ElementStats, now: ElementStats) -> float:
    """Return rows a second, summed over all operators."""
    seconds = now.at - before.at
    rows = sum(each.rows_in for each in now.operators) - sum(each.rows_in for each in before.operators)
    return rows / seconds if seconds > 0 else 0.0


def machine_usage() -> Callable[[], float]:
    """Return a function that tells how busy the machine was since the last call, 0 to 1; 0 where that is not known."""
    last = _ticks()

    def usage() -> float:
        nonlocal last
        now, before = _ticks(), last
        last = now
        total = now[1] - before[1]
        return 1 - (now[0] - before[0]) / total if total > 0 else 0.0

    return usage


def _ticks() -> tuple[int, int]:
    """Return the idle ticks of all processors, and all ticks."""
    if not os.path.exists("/proc/stat"):
        return 0, 0
    with open("/proc/stat") as file:
        fields = [int(value) for value in file.readline().split()[1:]]
    return fields[3] + fields[4], sum(fields[:8])
