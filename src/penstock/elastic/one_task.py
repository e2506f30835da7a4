"""Tell whether one task had better run a whole epoch: the low end of the epoch model.

Stages that share an epoch's work pay for the shuffles between them. Where the work that further tasks would
take over is less than that, one task runs all stages one after the other and there is no shuffle at all. What
a row costs is learned from epochs that are large enough to tell; a prior stands in for it before. A small one
tells only what a row costs at the most: else an epoch that was slow once would count for ever where all are small.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions

_WEIGHT = 0.5
"""How much the latest epoch counts for the cost of a row."""


@dataclass(frozen=True, slots=True)
class WorkStatistics:
    """Report one epoch, and the rows that the next one is to have."""

    rows: int
    cpu_seconds: float
    """Of all its tasks together."""
    expected_rows: int
    cores: int


@dataclass(frozen=True, slots=True)
class OneTaskState:
    """Hold what a row costs, and whether one task runs the epochs."""

    row_seconds: float
    one: bool = False


@dataclass(frozen=True, slots=True)
class OneTask:
    """Hold the settings."""

    name: ClassVar[str] = "one_task"

    shuffle_seconds: float = 0.025
    """What an epoch saves without its shuffles. Measured on two cores: 10,000 rows of W1 take as long either way."""
    row_seconds: float = 5e-6
    """What a row costs, until it is known."""
    least_rows: int = 1000
    """An epoch of fewer rows says little of what a row costs, unless it takes longer than the shuffles."""
    band: float = 1.5
    """By how much the work must exceed the shuffles before one task is given up."""

    def start(self) -> OneTaskState:
        return OneTaskState(self.row_seconds)

    def step(self, state: OneTaskState, statistics: WorkStatistics) -> tuple[OneTaskState, Actions]:
        """Learn what a row costs, then compare the work of the next epoch with its shuffles."""
        if statistics.rows >= self.least_rows or (statistics.rows and statistics.cpu_seconds > self.shuffle_seconds):
            cost = statistics.cpu_seconds / statistics.rows
            known = state.row_seconds != self.row_seconds
            state = replace(state, row_seconds=cost + (state.row_seconds - cost) * (1 - _WEIGHT) * known)
        elif statistics.rows and state.row_seconds > self.row_seconds:
            most = max(self.row_seconds, statistics.cpu_seconds / statistics.rows)
            state = replace(state, row_seconds=min(state.row_seconds, most))
        shared = statistics.expected_rows * state.row_seconds * (1 - 1 / statistics.cores)
        one = shared <= self.shuffle_seconds * (self.band if state.one else 1.0)
        if one == state.one:
            return state, ()
        why = (
            f"{statistics.expected_rows} rows at {state.row_seconds:.3g} s: {statistics.cores} cores would save "
            f"{shared:.3g} s of work, without shuffles an epoch saves {self.shuffle_seconds:.3g} s"
        )
        return replace(state, one=one), (Action("one_task", "", state.one, one, why),)
