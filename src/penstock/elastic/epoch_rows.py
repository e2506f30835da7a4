"""Choose how many rows an epoch on Spark may take in, so that it fits a latency target."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from statistics import median
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, time_text
from penstock.elastic.costs import Calm, CalmState, Costs, Sample, fit


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
    """Hold the rows that an epoch may have, the last epochs, and what is known of those that were full and others."""

    size: int
    epochs: tuple[tuple[int, float], ...] = ()
    """Rows and seconds, the latest last."""
    full: tuple[tuple[float, int], ...] = ()
    """Seconds of the last epochs that were full, with this size, and the rows that they left."""
    easy: tuple[int, ...] = ()
    """Rows of the last epochs that were not: they had all that came."""
    floor: int = 0
    """As many rows an epoch must have, or it falls behind."""
    calm: CalmState = field(default_factory=CalmState)


@dataclass(frozen=True, slots=True)
class EpochRows:
    """Hold the bounds and the target.

    A row that just missed an epoch waits for the next one to end, so an epoch may take half of the target. Only epochs
    that are full say something, since only those are bounded. Where they take too long, they get as many rows as the
    costs that were fitted allow (`costs`), but no fewer than pay for what is fixed. Where rows are left over
    they get twice as many, if that fits even were all of the time for the rows; while the run is young also if it fits
    by the costs. One epoch that was slow is no reason once the run is settled: the middle one of the last full ones is.

    Keeping up comes first, since a row that is left over waits for longer than any epoch takes. So epochs may always
    have several times the rows of one that has many, and where more and more is left over they get twice as many,
    whatever they take.
    """

    name: ClassVar[str] = "epoch_rows"
    version: ClassVar[int] = 2

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
    spare: float = 4.0
    """How many times the rows of one that has many an epoch may always have."""
    least_change: float = 0.3
    """By which part fewer rows are to be fewer."""
    calm: Calm = field(default_factory=Calm)

    def start(self) -> IntakeState:
        return IntakeState(clamp(self.initial, self.low, self.high))

    def step(self, state: IntakeState, statistics: IntakeStatistics) -> tuple[IntakeState, Actions]:
        at, size, backlog = statistics.at, state.size, statistics.backlog
        epochs = (*state.epochs, (statistics.rows, statistics.seconds))[-self.kept :]
        state = replace(state, epochs=epochs, calm=self.calm.begin(state.calm, at))
        if statistics.rows < self.full * size:
            easy = state.easy if backlog else (*state.easy, statistics.rows)[-self.kept :]
            return replace(state, easy=easy), ()
        full = (*state.full, (statistics.seconds, backlog))[-self.looks :]
        state = replace(state, full=full)
        young = self.calm.young(state.calm, at)
        if len(full) < (1 if young else self.looks):
            return state, ()
        took, behind = median(seconds for seconds, _ in full), self._falls_behind(state)
        after = self._size(state, took, backlog, young, behind)
        # What is not urgent waits until the last change is some time ago.
        urgent = behind or took > 0.75 * self.target or (after > size and backlog >= 4 * size)
        if after > size and not young and backlog < full[0][1]:
            return state, ()  # what is left over is less and less
        if after == size or not (young or urgent or self.calm.quiet(state.calm, at)):
            return state, ()
        calm, floor = self.calm.change(state.calm, at), after if behind else state.floor
        return replace(state, size=after, full=(), floor=floor, calm=calm), (
            self._action(size, after, took, backlog, behind),
        )

    def _falls_behind(self, state: IntakeState) -> bool:
        """Tell whether full epochs leave more and more."""
        left = [backlog for _, backlog in state.full]
        return len(left) == self.looks and left[-1] >= 4 * state.size and left == sorted(set(left))

    def _size(self, state: IntakeState, took: float, backlog: int, young: bool, behind: bool) -> int:
        size, half = state.size, self.target / 2
        double = clamp(2 * size, self.low, self.high)
        if behind:
            return double
        if took > half:
            many = sorted(state.easy)[-1 - len(state.easy) // 4] if state.easy else 0
            after = max(self._fewer(state.epochs, size, took), min(size, max(state.floor, round(self.spare * many))))
            return after if after <= (1 - self.least_change) * size else size
        fits = 2 * took <= half or (young and self._fits(state.epochs, 2 * size, took))
        return double if backlog >= 2 * size and fits else size

    def _action(self, size: int, after: int, took: float, backlog: int, behind: bool) -> Action:
        one, half = time_text(took), f"half of the target is {time_text(self.target / 2)}"
        if behind:
            why = f"up to {after:,} rows an epoch instead of {size:,}: more and more are left over, {backlog:,} by now"
        elif after < size:
            why = f"at most {after:,} rows an epoch instead of {size:,}: one takes {one}, and {half}"
        else:
            why = f"up to {after:,} rows an epoch instead of {size:,}: rows are left over, one takes {one}, and {half}"
        figures = (("epoch_seconds", took), ("rows_left", backlog), ("target_seconds", self.target))
        return Action("epoch_rows", "", size, after, why, figures)

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
