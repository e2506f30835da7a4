"""Choose how many rows an epoch on Spark may take in, so that it fits a latency target."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from statistics import median
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, time_text
from penstock.elastic.calm import Calm, CalmState
from penstock.elastic.costs import Costs, Sample, fit


@dataclass(frozen=True, slots=True)
class IntakeStatistics:
    """Report one epoch: its rows, what it took, and the rows that it left."""

    rows: int
    seconds: float
    backlog: int
    at: float = 0.0
    """When it ended, in seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class IntakeState:
    """Hold the rows that an epoch may have, the last epochs, and which of them were since the last change."""

    size: int
    epochs: tuple[tuple[int, float], ...] = ()
    """Rows and seconds, the latest last."""
    same: int = 0
    """How many of them were full, and run with this size."""
    calm: CalmState = field(default_factory=CalmState)


@dataclass(frozen=True, slots=True)
class EpochRows:
    """Hold the bounds and the target.

    A row that just missed an epoch waits for the next one to end, so an epoch may take half of the target. Only epochs
    that are full say something, since only those are bounded. Where they take too long, they get as many rows as the
    costs that were fitted allow (`costs`), but no fewer than pay for what is fixed. Where rows are left over
    they get twice as many, if that fits even were all of the time for the rows; while the run is young also if it fits
    by the costs. One epoch that was slow is no reason once the run is settled: the middle one of the last is.
    """

    name: ClassVar[str] = "epoch_rows"

    target: float
    low: int = 1
    high: int = 1 << 20
    initial: int = 1024
    _: KW_ONLY
    room: float = 0.7
    """The part of what an epoch may take that a new size is expected to take."""
    full: float = 0.8
    """An epoch is full if it has this part of the rows that it may have."""
    kept: int = 16
    looks: int = 5
    """How many full epochs are looked at before a settled size changes."""
    calm: Calm = field(default_factory=Calm)

    def start(self) -> IntakeState:
        return IntakeState(clamp(self.initial, self.low, self.high))

    def step(self, state: IntakeState, statistics: IntakeStatistics) -> tuple[IntakeState, Actions]:
        at, size = statistics.at, state.size
        epochs = (*state.epochs, (statistics.rows, statistics.seconds))[-self.kept :]
        calm = self.calm.weigh(state.calm, at, 0.0)
        if statistics.rows < self.full * size:
            return IntakeState(size, epochs, state.same, calm), ()
        same = min(state.same + 1, self.looks)
        state = IntakeState(size, epochs, same, calm)
        young = self.calm.young(calm, at)
        if same < (1 if young else self.looks):
            return state, ()
        half = self.target / 2
        took = median(seconds for rows, seconds in epochs if rows >= self.full * size)
        after = size
        if took > half:
            after = self._fewer(epochs, size, took)
        elif statistics.backlog >= 2 * size and (2 * took <= half or (young and self._fits(epochs, 2 * size, took))):
            after = clamp(2 * size, self.low, self.high)
        # What is not urgent waits until the last change is some time ago.
        urgent = took > 1.5 * half or (after > size and statistics.backlog >= 4 * size)
        if after == size or not (young or urgent or self.calm.quiet(calm, at)):
            return state, ()
        if after < size:
            why = f"at most {after:,} rows an epoch instead of {size:,}: one takes {time_text(took)}"
        else:
            why = f"up to {after:,} rows an epoch instead of {size:,}: rows are left over, one takes {time_text(took)}"
        why += f", and half of the target is {time_text(half)}"
        figures = (("epoch_seconds", took), ("rows_left", statistics.backlog), ("target_seconds", self.target))
        state = IntakeState(after, epochs, 0, self.calm.change(calm, at))
        return state, (Action("epoch_rows", "", size, after, why, figures),)

    def _fewer(self, epochs: tuple[tuple[int, float], ...], size: int, took: float) -> int:
        """Return how many rows take the part of the target that they should, as far as fewer rows help at all."""
        costs = _costs(epochs)
        fixed = costs.seconds(1, 0, 1)
        allowed = self.room * self.target / 2
        if len({rows for rows, _ in epochs}) < 2 or fixed >= took:
            # One size does not tell what is fixed: were nothing, this would fit.
            return clamp(round(size * allowed / took), self.low, size)
        per_row = (took - fixed) / size
        return clamp(round(max(allowed - fixed, fixed) / per_row), self.low, size)

    def _fits(self, epochs: tuple[tuple[int, float], ...], size: int, took: float) -> bool:
        if len({rows for rows, _ in epochs}) < 2:
            return False
        return took + _costs(epochs).per_row * size / 2 <= self.room * self.target / 2


def _costs(epochs: tuple[tuple[int, float], ...]) -> Costs:
    return fit([Sample(1, rows, seconds, 1) for rows, seconds in epochs])
