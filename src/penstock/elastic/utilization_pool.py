"""Size the thread pool by how busy its threads are (C-Stream, section 4.1).

One thread more when the mean utilization exceeds the high threshold, one less when it falls below the low
one, once a period of 10 s. Below 18 threads the published band is narrower than one thread: with work for 1.5
threads, one is too busy and two are too idle, for ever. So a size that proved too small for a load is
remembered and not tried again until the load falls.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, instead, percent


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Report, for each thread, the fraction of the period that it spent running operators."""

    utilization: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean utilization of the threads."""
        return sum(self.utilization) / len(self.utilization) if self.utilization else 0.0


@dataclass(frozen=True, slots=True)
class PoolState:
    """Hold the size, and the size that was too small with the work that was seen one above it."""

    size: int
    too_small: int = 0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class UtilizationPool:
    """Hold C-Stream's settings."""

    name: ClassVar[str] = "utilization_pool"

    low: int = 1
    high: int = 1
    initial: int = 1
    low_utilization: float = 0.90
    high_utilization: float = 0.95
    load_change: float = 0.2
    _: KW_ONLY
    remember: bool = True
    """False gives the published rule, which may never settle."""

    def start(self) -> PoolState:
        return PoolState(clamp(self.initial, self.low, self.high))

    def step(self, state: PoolState, statistics: PoolStatistics) -> tuple[PoolState, Actions]:
        mean, size = statistics.mean, state.size
        busy = mean * size
        if mean > self.high_utilization and size < self.high:
            why = f"they are {percent(mean)} busy, more than {percent(self.high_utilization)}"
            return replace(state, size=size + 1, too_small=size, busy=0.0), (_change(size, size + 1, why, mean),)
        if state.too_small == size - 1 and state.busy == 0.0:
            # The first period at the larger size shows the work that the smaller one hid by being full.
            state = replace(state, busy=busy)
        if mean >= self.low_utilization or size == self.low:
            return state, ()
        still_needed = state.too_small == size - 1 and busy > (1 - self.load_change) * state.busy
        if self.remember and still_needed:
            return state, ()
        why = f"they are {percent(mean)} busy, less than {percent(self.low_utilization)}"
        return PoolState(size - 1), (_change(size, size - 1, why, mean),)


def _change(before: int, after: int, why: str, busy: float) -> Action:
    return Action("threads", "", before, after, f"{instead(after, before, 'thread')}: {why}", (("busy", busy),))
