"""What work costs, in seconds: the model that controllers put their questions to.

    seconds = fixed + per_task * tasks + per_row * rows / min(tasks, cores)

How many tasks (`epoch_tasks`), how many rows (`epoch_rows`), one task or several, how many executors (`epochs`), how
large a batch, which is one task's (`batch_size`): each asks for another side of it. It is fitted to many measurements
(`fit`), goes through two (`line`), or follows from one whose work is known (`split`).

`Calm` weighs a change against what it costs itself, so that noise changes nothing and a real gain is taken at once.
What staying costs is added up from epoch to epoch, as a debt in seconds; what staying saves pays it back, and it never
falls below nothing. A change is due when the debt has reached what the change itself costs: state that follows its
shards, workers that compile and fill their memory anew. A large gain reaches that within an epoch, a small one takes
its time, and what is only noise is paid back before.

A run that is young changes its mind cheaply, because nothing is known yet. Later each change that follows the one
before within the patience must save twice as much as that, and giving back what is held waits out the patience: it is
never urgent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_SHORTEST = 1e-9
"""Seconds below which nothing is believed to be."""


@dataclass(frozen=True, slots=True)
class Sample:
    tasks: int
    rows: int
    seconds: float
    cores: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Hold the costs, in seconds."""

    fixed: float = 0.0
    per_task: float = 0.0
    per_row: float = 0.0

    def seconds(self, tasks: int, rows: float, cores: int) -> float:
        """Return what the work is expected to take; never zero, so that measurements can be compared with it."""
        return max(self.fixed + self.per_task * tasks + self.per_row * rows / min(tasks, cores), _SHORTEST)

    def missed(self, sample: Sample) -> float:
        """Return how many times as long as expected it took."""
        return sample.seconds / self.seconds(sample.tasks, sample.rows, sample.cores)


# Measured on two cores (SPARK.md): about 0.1 s for an empty epoch, 0.02 s for each task, 1.5 us per row.
PRIOR = Costs(fixed=0.1, per_task=0.02, per_row=1.5e-6)
# Far below the noise of an epoch, so that the prior yields to any measurement.
_PRIOR_WEIGHT = 1e-5


def split(seconds: float, work: float, cores: int) -> Costs:
    """Return the costs of what took so long on so many cores: what they did not share as `work` is fixed.

    The work counts as one row.
    """
    return Costs(fixed=max(0.0, seconds - work / cores), per_row=work)


def line(points: Sequence[tuple[float, float]]) -> Costs:
    """Return the costs of one task by its rows and seconds at two sizes, the later last.

    One point does not tell the fixed part: all of it is taken to be, so that no size is tried in vain.
    """
    (rows, seconds), *others = points[::-1]
    slope = max(0.0, (seconds - others[0][1]) / (rows - others[0][0])) if others else 0.0
    return Costs(fixed=max(seconds - slope * rows, 0.0), per_row=slope)


def fit(samples: Sequence[Sample], prior: Costs = PRIOR) -> Costs:
    """Return the costs that explain what was measured best; recent ones weigh more."""
    size = len(samples)
    rows = np.array([[1.0, e.tasks, e.rows / min(e.tasks, e.cores)] for e in samples]).reshape(size, 3)
    seconds = np.array([e.seconds for e in samples])
    # Errors count relative to the epoch: a short epoch must not drown in the noise of a long one.
    weights = 0.98 ** np.arange(size - 1, -1, -1) / np.maximum(seconds, _SHORTEST)
    center = np.array([prior.fixed, prior.per_task, prior.per_row])
    ridge = np.diag(_PRIOR_WEIGHT / center)
    matrix = np.vstack([rows * weights[:, None], ridge])
    target = np.concatenate([seconds * weights, np.full(3, _PRIOR_WEIGHT)])
    return Costs(*(float(value) for value in _non_negative(matrix, target)))


def _non_negative(matrix: Vector, target: Vector) -> Vector:
    """Solve least squares with no negative unknown, by trying which of the three are zero."""
    best, best_error = np.zeros(3), math.inf
    for size in (3, 2, 1):
        for used in combinations(range(3), size):
            columns = list(used)
            solution = np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0]
            if (solution < 0).any():
                continue
            values = np.zeros(3)
            values[columns] = solution
            error = float(((matrix @ values - target) ** 2).sum())
            if error < best_error:
                best, best_error = values, error
        if size == 3 and math.isfinite(best_error):
            break  # The unconstrained solution is allowed, so no other can be better.
    return best


@dataclass(frozen=True, slots=True)
class CalmState:
    """Hold when it began, when the last change was, how many came close to each other, and the debt in seconds."""

    began: float | None = None
    changed: float | None = None
    streak: int = 0
    debt: float = 0.0


@dataclass(frozen=True, slots=True)
class Calm:
    """Hold what a change costs, and the times: all in seconds."""

    change_seconds: float = 0.3
    """What a change costs."""
    settling: float = 45.0
    """How long a run is young."""
    patience: float = 300.0
    """How long nothing is given back after a change, and how far apart changes must be to count as single ones."""
    eagerness: float = 0.03
    """The part of a change's cost that counts at the very beginning; it rises until the run is settled."""

    def young(self, state: CalmState, at: float) -> bool:
        return state.began is None or at - state.began < self.settling

    def begin(self, state: CalmState, at: float) -> CalmState:
        """Note when the run began, with its first period."""
        return replace(state, began=at) if state.began is None else state

    def begin_again(self, state: CalmState, at: float) -> CalmState:
        """Let the run be young once more: what comes is not what came before."""
        return replace(state, began=at)

    def weigh(self, state: CalmState, at: float, regret: float) -> CalmState:
        """Add what staying costs in an epoch; less than nothing is what it saves."""
        return replace(self.begin(state, at), debt=max(0.0, state.debt + regret))

    def cost(self, state: CalmState, at: float) -> float:
        """Return the debt that makes a change due."""
        age = 0.0 if state.began is None else at - state.began
        part = min(1.0, max(self.eagerness, age / self.settling)) if self.settling > 0 else 1.0
        return self.change_seconds * part * 2.0 ** min(state.streak, 20)

    def due(self, state: CalmState, at: float, *, more: bool = True) -> bool:
        """Tell whether a change is due; `more` is one that takes more instead of giving back."""
        if state.debt < self.cost(state, at):
            return False
        return more or self.young(state, at) or self.quiet(state, at)

    def quiet(self, state: CalmState, at: float) -> bool:
        """Tell whether the last change is longer ago than the patience."""
        return state.changed is None or at - state.changed >= self.patience

    def change(self, state: CalmState, at: float) -> CalmState:
        """Note that something was changed: the debt is paid."""
        alone = self.young(state, at) or self.quiet(state, at)
        began = at if state.began is None else state.began
        return CalmState(began, at, 0 if alone else state.streak + 1)
