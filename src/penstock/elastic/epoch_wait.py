"""Choose how long an epoch waits for rows, against a latency target.

A row that just missed an epoch waits for the next one to begin and to end. What the target leaves beside the
epoch itself is spent on waiting: fewer epochs then carry the same rows, and fixed costs are paid less often.
Nothing waits while rows are left over.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions


@dataclass(frozen=True, slots=True)
class PaceStatistics:
    """Report one epoch: what it took, and the rows that it left."""

    seconds: float
    backlog: int


@dataclass(frozen=True, slots=True)
class PaceState:
    """Hold the seconds from epoch to epoch, and what an epoch takes lately."""

    every: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EpochWait:
    """Hold the target."""

    name: ClassVar[str] = "epoch_wait"

    target: float
    used: float = 0.75
    """The part of the target that may be used up: epochs vary."""
    least_change: float = 0.1
    """Smaller changes than this part of the target are not made."""

    def start(self) -> PaceState:
        return PaceState()

    def step(self, state: PaceState, statistics: PaceStatistics) -> tuple[PaceState, Actions]:
        # A long epoch counts at once, a short one by and by.
        seconds = max(statistics.seconds, 0.8 * state.seconds + 0.2 * statistics.seconds)
        every = max(0.0, self.used * self.target - seconds)
        if statistics.backlog > 0 or every <= seconds:
            every = 0.0  # behind, or an epoch takes longer than the wait would
        change = abs(every - state.every)
        if change < self.least_change * self.target and (every > 0 or state.every == 0):
            return PaceState(state.every, seconds), ()
        why = f"an epoch takes {seconds:.3g} s and leaves {statistics.backlog} rows, the target is {self.target:.3g} s"
        return PaceState(every, seconds), (Action("every", "", state.every, every, why),)
