"""The ten policies of the papers. Each picks one of the operators that could run now; see `view.py` for what it sees.

C-Stream (section 3.2.6): random, longest queue, minimum latency, least recently run, maximum running time. Ordered
(section 6): QST, LP, ET, CT. Rebinding (section III): a single queue in the order of virtual time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from penstock.threads.policies.view import Moment, OperatorView, Policy, largest, smallest


@dataclass(frozen=True, slots=True)
class LeastRecent:
    """Pick the one that was last given to a worker longest ago: Streams' free list, C-Stream's LeastRecentlyRun."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return smallest(ready, lambda view: view.last_run)


@dataclass(frozen=True, slots=True)
class RandomChoice:
    """Pick uniformly at random: C-Stream's Random, robust on every topology and the baseline for the others."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return moment.random.randrange(len(ready))


@dataclass(frozen=True, slots=True)
class LongestQueue:
    """Pick a source if one is ready, else the operator with the most rows waiting: C-Stream's MaxQueueLength.

    Equals are told apart at random.
    """

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        best = [index for index, view in enumerate(ready) if view.is_source]
        if not best:
            waiting = [view.rows_waiting for view in ready]
            longest = max(waiting)
            best = [index for index, rows in enumerate(waiting) if rows == longest]
        return moment.random.choice(best)


@dataclass(frozen=True, slots=True)
class MinLatency:
    """Pick the smallest time stamp at the front of a queue; a source counts as from when it last ran: C-Stream."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return smallest(ready, _age_mark)


def _age_mark(view: OperatorView) -> float:
    if view.is_source:
        return view.last_run
    front = view.front_time
    return math.inf if front is None else front


@dataclass(frozen=True, slots=True)
class MaxRunningTime:
    """Pick by how long an operator can read from its queues and write to those below: C-Stream."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return largest(ready, lambda view: view.running_time)


@dataclass(frozen=True, slots=True)
class QueueSizeThrottling:
    """Pick the earliest operator whose outputs have not piled up beyond its threshold: Ordered's QST (section 6.1).

    Equation 1: the threshold T_i is C * cs_i / sum(cs), the operator's share of `capacity` rows by how many rows it
    emits for a row of input. With several ports below, the fullest one counts. If everything is above its threshold,
    the paper runs nothing; here the operator runs whose outputs have piled up least, since queues are bounded anyway
    and an idle worker helps nobody.
    """

    capacity: float = 10_000.0

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        fullness = [self.fullness(view) for view in ready]
        below = [index for index, part in enumerate(fullness) if part < 1.0]
        if below:
            return min(below, key=lambda index: ready[index].order)
        return min(range(len(ready)), key=lambda index: (fullness[index], ready[index].last_run))

    def threshold(self, view: OperatorView) -> float:
        """Return the number of output rows at which an operator is throttled."""
        return self.capacity * view.outflow_share

    def fullness(self, view: OperatorView) -> float:
        """Return the output rows waiting in the fullest port below, as a share of the threshold."""
        waiting = max(view.downstream_queued, default=0)
        if waiting == 0:
            return 0.0
        threshold = self.threshold(view)
        return waiting / threshold if threshold > 0.0 else math.inf


@dataclass(frozen=True, slots=True)
class LastInPipeline:
    """Pick the latest operator in topological order: Ordered's LP (section 6.2), its best for latency."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return max(range(len(ready)), key=lambda index: ready[index].order)


@dataclass(frozen=True, slots=True)
class EstimatedTime:
    """Pick the one whose queue would take longest to work off with one worker more: Ordered's ET (section 6.3)."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return largest(ready, priority)


def priority(view: OperatorView) -> float:
    """Return equation 2: I_i * c_i / (w_i + 1), or nothing if the operator admits no further worker.

    An operator that has never run has no cost yet; it goes first, and then has one.
    """
    if view.is_full:
        return 0.0
    cost = view.cost
    return math.inf if cost is None else view.rows_waiting * cost / (view.workers + 1)


@dataclass(frozen=True, slots=True)
class CurrentThroughput:
    """Pick the lowest normalized throughput in the current window, the likely bottleneck: Ordered's CT (section 6.4).

    It is the paper's best for throughput.
    """

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return smallest(ready, lambda view: normalized_rows(view, moment.time_slice))


def normalized_rows(view: OperatorView, time_slice: float) -> float:
    """Return equation 3: (T_i + w_i * s) / (c_i * cs_i), in rows of the flow's input.

    (T_i + w_i * s) / c_i is how many rows the operator takes in with the worker time it has had and has been promised.
    To compare operators, that is divided by how many rows reach it for each row of input: the cumulative selectivity
    *before* it (the paper's cs_i includes the operator's own, which would count its outputs). An operator that has
    never run has processed nothing, and goes first.
    """
    cost = view.cost
    if cost is None:
        return 0.0
    per_input_row = cost * view.inflow
    worker_time = view.window_time + view.workers * time_slice
    return worker_time / per_input_row if per_input_row > 0.0 else worker_time


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """Pick the smallest batch number at the front of a queue: Rebinding's one priority queue for all workers.

    The number is the flow's virtual time. Of two operators at the same time, the later one in topological order goes
    first, so that a batch is finished rather than spread.
    """

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return min(range(len(ready)), key=lambda index: _virtual_time(ready[index]))


def _virtual_time(view: OperatorView) -> tuple[float, int]:
    number = view.front_number
    return (math.inf if number is None else number, -view.order)


POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "least-recent": LeastRecent,
        "random": RandomChoice,
        "longest-queue": LongestQueue,
        "min-latency": MinLatency,
        "max-running-time": MaxRunningTime,
        "qst": QueueSizeThrottling,
        "lp": LastInPipeline,
        "et": EstimatedTime,
        "ct": CurrentThroughput,
        "virtual-time": VirtualTime,
    }
)


def by_name(name: str) -> Policy:
    """Make the policy of that name with its usual parameters."""
    if name not in POLICIES:
        raise ValueError(f"no scheduling policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]()
