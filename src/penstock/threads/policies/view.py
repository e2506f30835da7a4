"""Say what a scheduling policy sees and what it answers.

A policy picks one of the operators that could run now. It is a pure function of measured values: no clock, no global
randomness, no memory. So it can be tested by hand, and it runs unchanged in the simulator. To add one, write a class
with a `choose` method; nothing else is asked of it. One that also has `preempt` decides when a worker leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Protocol, runtime_checkable

from penstock.threads.policies.measured import MeasuredOperator, running_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A view whose values stay: one that was taken, or one that a test makes up. `MeasuredOperator` has the others."""

    name: str
    order: int
    """Its place in a topological order of the flow: every operator comes after those that it reads from."""
    is_source: bool = False
    """Whether it brings rows in. What waits for it is what was read and is not in the flow yet."""
    permits: int | None = None
    """How many workers it admits at once; None for any number."""
    workers: int = 0
    """How many workers run it now."""
    queued: tuple[int, ...] = ()
    front_time: float | None = None
    front_number: int | None = None
    waiting_time: float = 0.0
    downstream: tuple[str, ...] = ()
    downstream_queued: tuple[int, ...] = ()
    downstream_room: tuple[int, ...] = ()
    last_run: float = -math.inf
    """When it was last given to a worker."""
    read_rates: tuple[float, ...] = ()
    write_rates: tuple[float, ...] = ()
    cost: float | None = None
    window_time: float = 0.0
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

    @property
    def running_time(self) -> float:
        """How long it can run until an input port is empty or a port below is full."""
        return running_time(self.queued, self.read_rates, self.downstream_room, self.write_rates)


OperatorView = MeasuredOperator | Snapshot
"""What a policy sees of an operator. An engine hands over its own live object: what is read is as of now, and what is
not read costs nothing. Rows are counted, not batches; times are in seconds."""


def take_snapshot(view: OperatorView) -> Snapshot:
    """Freeze what a view says now."""
    return Snapshot(**{field.name: getattr(view, field.name) for field in fields(Snapshot)})


@dataclass(frozen=True, slots=True)
class Moment:
    """The circumstances of one decision."""

    now: float
    worker: int
    random: Random
    time_slice: float = 0.050


@runtime_checkable
class Policy(Protocol):
    """Pick the operator that a worker runs next."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of one of the ready operators, of which there is at least one.

        All of them have something to do, and admit one more worker.
        """


@runtime_checkable
class Preempting(Protocol):
    """A policy that also says when a worker is to leave an operator that has more to do.

    One without `preempt` leaves it to the time slice. It is asked between two batches, and in the middle of one where
    the operator is a co-routine.
    """

    def preempt(self, running: OperatorView, ran: float, moment: Moment) -> bool:
        """Tell whether the worker, which took the operator `ran` seconds ago, is to look for another one."""


def smallest(ready: Sequence[OperatorView], measure: Callable[[OperatorView], float]) -> int:
    """Return the index with the smallest measure; among equals, of the one that ran longest ago."""
    return min(range(len(ready)), key=lambda index: (measure(ready[index]), ready[index].last_run))


def largest(ready: Sequence[OperatorView], measure: Callable[[OperatorView], float]) -> int:
    """Return the index with the largest measure; among equals, of the one that ran longest ago."""
    return smallest(ready, lambda view: -measure(view))
