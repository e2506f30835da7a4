"""Choose the executors of a Spark application: the fewest that meet the latency target.

An epoch takes what its tasks compute, shared by all cores, and a part that no core can help. Both follow from
one epoch. An executor takes seconds to come or to go, and its state must follow, so several epochs in a row
must agree before anything changes: few to get more, many to give some back.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp


@dataclass(frozen=True, slots=True)
class ExecutorStatistics:
    """Report one epoch on a cluster."""

    executors: int
    cores_each: int
    seconds: float
    """From the beginning of the epoch's job to its end."""
    work_seconds: float
    """Of all its tasks together."""
    most: int | None = None
    """The most executors that there may be by now, as far as is known; None leaves it to the controller."""


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """Count the epochs in a row that ask for more, or for fewer (negative), and the least that they ask for."""

    votes: int = 0
    wanted: int = 0
    executors: int = 0
    """The number that they ran with."""


@dataclass(frozen=True, slots=True)
class ExecutorCount:
    """Hold the target and the bounds; with `advise` the action is advice, for a cluster that takes no orders."""

    name: ClassVar[str] = "executor_count"

    target: float | None = None
    low: int = 1
    high: int = 1
    advise: bool = False
    patience_up: int = 3
    patience_down: int = 10
    sensitivity: float = 0.05
    ease: float = 0.8
    """Fewer executors must be expected to take no more than this part of what the target allows."""

    def start(self) -> ExecutorState:
        return ExecutorState()

    def seconds(self, statistics: ExecutorStatistics, executors: int) -> float:
        """Return what the epoch is expected to take with so many executors."""
        shared = statistics.work_seconds / statistics.cores_each
        fixed = max(0.0, statistics.seconds - shared / statistics.executors)
        return fixed + shared / executors

    def step(self, state: ExecutorState, statistics: ExecutorStatistics) -> tuple[ExecutorState, Actions]:
        """Count how many epochs in a row want another number, and change once they are enough."""
        now = statistics.executors
        wanted = self._wanted(statistics)
        direction = (wanted > now) - (wanted < now)
        if direction == 0:
            return ExecutorState(), ()
        # Executors also come and go by themselves: what was asked for with another number says nothing about this.
        same = state.votes * direction > 0 and state.executors == now
        # Of what the epochs ask for, the one that changes least.
        if same:
            wanted = min(wanted, state.wanted) if direction > 0 else max(wanted, state.wanted)
        votes = (abs(state.votes) if same else 0) + 1
        if votes < (self.patience_up if direction > 0 else self.patience_down):
            return ExecutorState(votes * direction, wanted, now), ()
        goal = "no target" if self.target is None else f"half of the target is {self.target / 2:.3g} s"
        why = (
            f"{votes} epochs in a row: with {now} executors one takes {statistics.seconds:.3g} s, with {wanted} "
            f"{self.seconds(statistics, wanted):.3g} s are expected; {goal}"
        )
        what = "advise_executors" if self.advise else "executors"
        return ExecutorState(), (Action(what, "", now, wanted, why),)

    def _wanted(self, statistics: ExecutorStatistics) -> int:
        """Return the number of executors that this epoch speaks for."""
        now = statistics.executors
        high = self.high if statistics.most is None else clamp(statistics.most, self.low, self.high)
        times = {count: self.seconds(statistics, count) for count in range(self.low, max(high, now) + 1)}
        fastest = min(times.values())
        enough = fastest * (1 + self.sensitivity)
        if self.target is not None:
            enough = max(enough, self.target / 2)
        # Fewer only where there is room: one that just fits would be asked for again at the next busy epoch.
        return next(
            (n for n, t in times.items() if t <= (enough * self.ease if n < now and self.target else enough)), now
        )
