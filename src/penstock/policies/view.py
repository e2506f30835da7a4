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


class OperatorView(Protocol):
    """What was measured about one operator. Rows are counted, not batches; times are in seconds.

    An engine hands over its own live object (`measured.MeasuredOperator`): what is read is as of now, and what is not
    read costs nothing. `Snapshot` has the same values frozen.
    """

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def order(self) -> int:
        """Its place in a topological order of the flow: every operator comes after those it reads from."""

    @property
    def is_source(self) -> bool:
        """Whether it brings rows in. What waits for it is what was read and is not in the flow yet."""

    @property
    def permits(self) -> int | None:
        """How many workers it admits at once; None for any number."""

    @property
    def workers(self) -> int:
        """How many workers run it now."""

    @property
    def queued(self) -> tuple[int, ...]:
        """Rows waiting for it from each input port, whether in the port's queue or, cut in parts, behind it."""

    @property
    def front_time(self) -> float | None:
        """When the oldest waiting row entered the flow."""

    @property
    def front_number(self) -> int | None:
        """The number of the oldest waiting batch."""

    @property
    def waiting_time(self) -> float:
        """How long rows have recently waited for it, on average."""

    @property
    def downstream(self) -> tuple[str, ...]:
        """The operators that its outputs go to, one entry for each port that is fed."""

    @property
    def downstream_queued(self) -> tuple[int, ...]:
        """Rows waiting at each of those ports."""

    @property
    def downstream_room(self) -> tuple[int, ...]:
        """Rows, of the batches that come there, that still fit at each of those ports."""

    @property
    def last_run(self) -> float:
        """When it was last given to a worker."""

    @property
    def read_rates(self) -> tuple[float, ...]:
        """Rows that it has recently taken from each input port in a second of running."""

    @property
    def write_rates(self) -> tuple[float, ...]:
        """Rows that it has recently sent to each port in `downstream` in a second of running."""

    @property
    def cost(self) -> float | None:
        """Recent worker time for one row; None until it has run for the first time."""

    @property
    def window_time(self) -> float:
        """Worker time spent on it in the current window, finished pieces of work only."""

    @property
    def inflow(self) -> float:
        """Rows that reach it for one row of the flow's input: the cumulative selectivity *before* it."""

    @property
    def outflow_share(self) -> float:
        """Rows that it emits for one row of input, as a share of the sum of that over all operators."""

    @property
    def rows_waiting(self) -> int:
        """Rows waiting at all input ports together."""

    @property
    def is_full(self) -> bool:
        """Whether it already has as many workers as it admits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A view whose values stay: one that was taken, or one that a test makes up. See `OperatorView`."""

    name: str
    order: int
    is_source: bool = False
    permits: int | None = None
    workers: int = 0
    queued: tuple[int, ...] = ()
    front_time: float | None = None
    front_number: int | None = None
    waiting_time: float = 0.0
    downstream: tuple[str, ...] = ()
    downstream_queued: tuple[int, ...] = ()
    downstream_room: tuple[int, ...] = ()
    last_run: float = -math.inf
    read_rates: tuple[float, ...] = ()
    write_rates: tuple[float, ...] = ()
    cost: float | None = None
    window_time: float = 0.0
    inflow: float = 1.0
    outflow_share: float = 0.0

    @property
    def rows_waiting(self) -> int:
        """Rows waiting at all input ports together."""
        return sum(self.queued)

    @property
    def is_full(self) -> bool:
        """Whether it already has as many workers as it admits."""
        return self.permits is not None and self.workers >= self.permits


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
