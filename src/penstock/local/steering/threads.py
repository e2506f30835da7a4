"""Steer the number of workers of the dynamic model, by throughput (Streams)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from penstock.elastic.base import Action, Controller
from penstock.elastic.thread_level import ThreadLevel, ThreadState, ThreadStatistics
from penstock.local.steering.base import Period
from penstock.pe.element import Element

MOST_WORKERS = max(16, os.cpu_count() or 1)
"""Operators that wait gain from more workers than there are processors; others show by themselves that they do not."""

HELD_BACK = 0.01
"""The part of a period for which sources may be held back by a flow that still keeps up."""
WAITED = 0.05
"""The part of a period for which sources are waited for, at least, where they are the limit."""


class ThreadSteering:
    """Set the number of workers of an element."""

    name = "threads"

    def __init__(
        self,
        element: Element,
        *,
        most: int = MOST_WORKERS,
        target: float | None = None,
        cpu_usage: Callable[[], float] | None = None,
        controller: Controller[Any, ThreadStatistics] | None = None,
    ) -> None:
        """A `target` is how long a batch may take, in seconds; without a `controller` it is Penstock's own."""
        self._element = element
        self._cpu_usage = cpu_usage or machine_usage()
        # What waits in queues at one level may be worked off for a good part of the next period, and a machine's
        # speed drifts, which three samples in a row need not show.
        self.controller: Controller[Any, ThreadStatistics] = controller or ThreadLevel(
            high=most, initial=1, skipped=1, least_noise=0.05, target=target
        )

    def measure(self, period: Period) -> ThreadStatistics | None:
        """Tell the throughput of all operators, how busy the machine is, and who has not left that should have.

        Nothing of a period that began with batches of another size: that is no doing of the workers.
        """
        usage = self._cpu_usage()
        if period.seconds <= 0 or not period.unchanged("batches", 2):
            return None
        done = period.done
        cores = done.computed / period.seconds
        elsewhere = max(0.0, usage - cores / (os.cpu_count() or 1))
        return ThreadStatistics(
            done.rate,
            usage,
            self._element.leaving,
            keeps_up(period),
            cores,
            elsewhere,
            done.batches_in / period.seconds,
            done.worked / done.batches_out if done.batches_out > 0 else 0.0,
        )

    def searching(self, state: Any) -> bool:
        """Tell whether levels are being compared; the published rules never say."""
        return isinstance(state, ThreadState) and state.searching

    def act(self, action: Action) -> None:
        if action.what == "thread_level" and isinstance(action.after, int):
            self._element.set_workers(action.after)


def keeps_up(period: Period) -> bool:
    """Tell whether the sources were the limit.

    They were waited for, nothing held them back, and what waits in the flow is no more than is worked on. A flow that
    is busy may have little waiting, too: whoever reads its sources drains full queues, or waits for the
    interpreter's lock.
    """
    # Sources have no input.
    held_back = sum(each.below_full for each in period.done.operators.values() if not each.queued)
    return (
        period.done.waited >= WAITED * period.seconds
        and held_back < HELD_BACK * period.seconds
        and period.now.in_flight <= 1 + len(period.now.workers)
    )


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
