"""Size the thread pool by how busy its threads are (C-Stream, section 4.1).

One thread more when the mean utilization exceeds the high threshold, one less when it falls below the low
one, once a period of 10 s. Below 18 threads the published band is narrower than one thread: with work for 1.5
threads, one is too busy and two are too idle, for ever. So a size that proved too small for a load is
remembered and not tried again until the load falls. With a `calm`, once the run is settled, it is the mean of several
periods that counts, and a thread is given back only if the others are then not too busy, some time after the last
change.
"""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, instead, percent
from penstock.elastic.costs import Calm, CalmState
from penstock.elastic.noise import Coming


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Report, for each thread, the fraction of the period that it spent running operators."""

    utilization: tuple[float, ...]
    at: float = 0.0
    """Seconds of a clock that never goes back."""
    rate: float = 0.0
    """Rows per second that all operators did; 0 where that is not known."""

    @property
    def mean(self) -> float:
        return sum(self.utilization) / len(self.utilization) if self.utilization else 0.0


@dataclass(frozen=True, slots=True)
class PoolState:
    """Hold the size, and the size that was too small with the work that was seen one above it."""

    size: int
    too_small: int = 0
    busy: float = 0.0
    recent: tuple[float, ...] = ()
    """The mean utilization in the last periods, with this size."""
    calm: CalmState = field(default_factory=CalmState)
    coming: Coming = field(default_factory=Coming)


@dataclass(frozen=True, slots=True)
class UtilizationPool:
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
    calm: Calm | None = None
    looks: int = 6
    """Periods whose mean counts, once the run is settled."""
    full_looks: int = 3
    """Periods in a row in which threads must be too busy then, unless more is done than usually comes."""

    def start(self) -> PoolState:
        return PoolState(clamp(self.initial, self.low, self.high))

    def step(self, state: PoolState, statistics: PoolStatistics) -> tuple[PoolState, Actions]:
        if self.calm is None:
            return self._choose(state, statistics.mean)
        at, calm = statistics.at, self.calm.begin(state.calm, statistics.at)
        recent = (*state.recent, statistics.mean)[-self.looks :]
        keeps_up = statistics.mean <= self.high_utilization
        coming = state.coming.add(statistics.rate, 1.0, keeps_up, self.load_change, self.full_looks)
        if coming.grew(1.0, self.load_change, periods=1):
            calm = self.calm.begin_again(calm, at)
        state = replace(state, coming=coming)
        young, mean = self.calm.young(calm, at), sum(recent) / len(recent)
        after, actions = self._choose(state, statistics.mean if young else mean)
        if after.size < state.size:
            spare = mean * state.size <= self.low_utilization * after.size
            ripe = spare and (young or (len(recent) == self.looks and self.calm.quiet(calm, at)))
        else:
            ripe = young or min(recent[-self.full_looks :]) > self.high_utilization
        if not actions or not ripe:
            return replace(state, recent=recent, calm=calm), ()
        calm = self.calm.change(calm, at)
        # More may be needed than one: then it goes as fast as at the beginning.
        calm = self.calm.begin_again(calm, at) if after.size > state.size else calm
        return replace(after, recent=(), calm=calm, coming=coming), actions

    def _choose(self, state: PoolState, mean: float) -> tuple[PoolState, Actions]:
        size = state.size
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
