"""Say what a scheduling policy sees and what it answers.

A policy picks one of the operators that could run now. It is a pure function of immutable, measured values:
no clock, no global randomness, no memory. So it can be tested by hand, replayed from a log, and run unchanged
in the simulator. To add one, write a class with a `choose` method; nothing else is asked of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorView:
    """What was measured about one operator. Rows are counted, not batches; times are in seconds."""

    name: str
    order: int
    """Its place in a topological order of the flow: every operator comes after those it reads from."""
    is_source: bool = False
    permits: int | None = None
    """How many workers it admits at once; None for any number."""
    workers: int = 0
    """How many workers run it now."""

    queued: tuple[int, ...] = ()
    """Rows waiting at each input port."""
    front_time: float | None = None
    """When the oldest waiting row entered the flow."""
    front_number: int | None = None
    """The number of the oldest waiting batch; for a source, of the batch it would produce next."""
    waiting_time: float = 0.0
    """How long rows have recently waited in its queues, on average."""
    downstream: tuple[str, ...] = ()
    """The operators that its outputs go to, one entry for each port that is fed."""
    downstream_queued: tuple[int, ...] = ()
    """Rows waiting at each of those ports."""
    downstream_room: tuple[int, ...] = ()
    """Rows that still fit at each of those ports."""

    last_run: float = -math.inf
    """When it was last given to a worker."""
    read_rates: tuple[float, ...] = ()
    """Rows that it takes from each input port in a second of running."""
    write_rates: tuple[float, ...] = ()
    """Rows that it sends to each port in `downstream` in a second of running."""
    cost: float | None = None
    """Worker time for one row; None until it has run for the first time."""
    window_time: float = 0.0
    """Worker time spent on it in the current window, finished slices only."""
    inflow: float = 1.0
    """Rows that reach it for one row of the flow's input: the cumulative selectivity *before* it."""
    outflow_share: float = 0.0
    """Rows that it emits for one row of input, as a share of the sum of that over all operators."""

    @property
    def rows_waiting(self) -> int:
        """Rows waiting at all input ports together."""
        return sum(self.queued)

    @property
    def is_full(self) -> bool:
        """Whether it already has as many workers as it admits."""
        return self.permits is not None and self.workers >= self.permits


@dataclass(frozen=True, slots=True)
class Moment:
    """The circumstances of one decision."""

    now: float
    worker: int
    random: Random
    time_slice: float = 0.050


class Policy(Protocol):
    """Pick the operator that a worker runs next."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of one of the ready operators, of which there is at least one."""


def smallest(ready: Sequence[OperatorView], measure: Callable[[OperatorView], float]) -> int:
    """Return the index with the smallest measure; among equals, of the one that ran longest ago."""
    return min(range(len(ready)), key=lambda index: (measure(ready[index]), ready[index].last_run))


def largest(ready: Sequence[OperatorView], measure: Callable[[OperatorView], float]) -> int:
    """Return the index with the largest measure; among equals, of the one that ran longest ago."""
    return smallest(ready, lambda view: -measure(view))


def rows_for_slice(view: OperatorView, time_slice: float) -> int:
    """Return how many rows fit into a time slice (Ordered, section 6); at least one."""
    if view.cost is None or view.cost <= 0.0:
        return 1
    return max(1, int(time_slice / view.cost))
