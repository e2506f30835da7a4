"""Choose the tasks of a Spark stage from a model of its epochs, fitted to what was measured.

On Spark the stages of an epoch take turns, so queues between them do not form and the Jackson network does
not apply. What an epoch takes is instead

    seconds = fixed + per_task * tasks + per_row * rows / min(tasks, cores)

The three costs are fitted by least squares to the epochs that are trusted, none below zero, with priors that
decide only what the measurements leave open; where a number of tasks was measured, what the model missed
there is added. The fewest tasks that meet the target are chosen; without a target, or if it cannot be met,
the fastest, but twice the tasks must gain at least the sensitivity: few tasks for small epochs. A choice
stands once half and twice as many tasks have been measured too. When the epochs at the chosen number all
differ from the model, the older ones are not trusted any more.
"""

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.elastic.base import Action, Actions, clamp

Vector = npt.NDArray[np.float64]

_SHORTEST = 1e-9
"""Seconds below which no epoch is believed to be."""


@dataclass(frozen=True, slots=True)
class EpochStatistics:
    """Report one epoch of a stage, and the rows that the next one is expected to have."""

    tasks: int
    rows: int
    seconds: float
    """Zero before an epoch was run with these tasks: then only the bounds count."""
    expected_rows: int
    cores: int
    most: int | None = None
    """The most tasks that there is room for by now: machines come and go. None leaves it to the controller."""


@dataclass(frozen=True, slots=True)
class EpochCosts:
    """Hold the fitted costs, in seconds."""

    fixed: float
    per_task: float
    per_row: float

    def seconds(self, tasks: int, rows: int, cores: int) -> float:
        """Return what an epoch is expected to take; never zero, so that measurements can be compared with it."""
        return max(self.fixed + self.per_task * tasks + self.per_row * rows / min(tasks, cores), _SHORTEST)


# Measured on two cores (SPARK.md): about 0.1 s for an empty epoch, 0.02 s for each task, 1.5 us a row.
PRIOR = EpochCosts(fixed=0.1, per_task=0.02, per_row=1.5e-6)
# Far below the noise of an epoch, so that the prior yields to any measurement.
_PRIOR_WEIGHT = 1e-5


@dataclass(frozen=True, slots=True)
class EpochState:
    """Hold the epochs that are trusted, the latest last."""

    epochs: tuple[EpochStatistics, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochTasks:
    """Hold the latency target of an epoch and the bounds."""

    name: ClassVar[str] = "epoch_tasks"

    target: float | None = None
    low: int = 1
    high: int = 1
    sensitivity: float = 0.05
    load_change: float = 0.2
    noise_limit: int = 5
    kept: int = 8
    """Epochs that are kept of each number of tasks."""
    prior: EpochCosts = PRIOR

    def start(self) -> EpochState:
        return EpochState()

    def step(self, state: EpochState, statistics: EpochStatistics) -> tuple[EpochState, Actions]:
        most = self.high if statistics.most is None else clamp(statistics.most, self.low, self.high)
        return replace(self, high=most)._decide(state, statistics)

    def _decide(self, state: EpochState, statistics: EpochStatistics) -> tuple[EpochState, Actions]:
        """Add the epoch, fit the costs, choose."""
        if statistics.seconds <= 0:
            return state, self._bounded(statistics.tasks)
        state = self._trust(state, statistics)
        costs = fit(state.epochs, self.prior)
        times = self._times(state, costs, statistics)
        tasks, why, problem = self._choose(costs, times, statistics, _noise(state, statistics.tasks))
        missing = self._missing(state, tasks)
        if missing is not None:
            tasks, why = missing, f"{why}; {missing} tasks were not measured: try them"
        actions = []
        if problem:
            actions.append(Action("latency_target", "", self.target, None, problem))
        if tasks != statistics.tasks:
            actions.append(Action("tasks", "", statistics.tasks, tasks, why))
        return state, tuple(actions)

    def _bounded(self, tasks: int) -> Actions:
        """Go to the bounds: tasks may come from a checkpoint that a larger machine has left."""
        after = clamp(tasks, self.low, self.high)
        why = f"{tasks} tasks are outside of {self.low} to {self.high}, before any epoch was measured"
        return () if after == tasks else (Action("tasks", "", tasks, after, why),)

    def _trust(self, state: EpochState, now: EpochStatistics) -> EpochState:
        """Add an epoch; trust only the last ones if all of them differ from older ones with their tasks."""
        epochs = (*state.epochs, now)
        same = tuple(epoch for epoch in epochs if epoch.tasks == now.tasks)
        older, recent = same[: -self.noise_limit - 1], same[-self.noise_limit - 1 :]
        if older:
            # The model only makes epochs of different sizes comparable; it is not what is tested here.
            costs = fit(older, self.prior)
            ratios = [epoch.seconds / costs.seconds(epoch.tasks, epoch.rows, epoch.cores) for epoch in recent]
            if min(ratios) > 1 + self.load_change or max(ratios) < 1 / (1 + self.load_change):
                return EpochState(recent)
        if len(same) > self.kept:
            first = epochs.index(same[0])
            epochs = epochs[:first] + epochs[first + 1 :]
        return EpochState(epochs)

    def _times(self, state: EpochState, costs: EpochCosts, now: EpochStatistics) -> dict[int, float]:
        """Return what an epoch is expected to take for each number of tasks."""
        times = {}
        for tasks in range(self.low, self.high + 1):
            errors = [
                epoch.seconds / costs.seconds(tasks, epoch.rows, epoch.cores) - 1
                for epoch in state.epochs
                if epoch.tasks == tasks
            ]
            # The fewer the epochs, the more of what the model missed is noise.
            missed = sum(errors) / (len(errors) + 2)
            times[tasks] = costs.seconds(tasks, now.expected_rows, now.cores) * (1 + missed)
        return times

    def _choose(
        self, costs: EpochCosts, times: dict[int, float], now: EpochStatistics, noise: float
    ) -> tuple[int, str, str | None]:
        """Return the number of tasks, the reason, and why the target cannot be met, if so."""
        fastest = min(times, key=lambda tasks: (times[tasks], tasks))
        model = f"{costs.fixed:.3g} s + {costs.per_task:.3g} s a task + {costs.per_row:.3g} s a row"
        problem = None
        chosen = None
        good = times[fastest] * (1 + self.sensitivity + noise)
        if self.target is not None:
            chosen = next((tasks for tasks, seconds in times.items() if seconds <= self.target), None)
            good = self.target if chosen is not None else good
            if chosen is None:
                problem = (
                    f"the fastest, {fastest} tasks, is expected to take {times[fastest]:.3g} s for "
                    f"{now.expected_rows} rows, the target is {self.target:.3g} s"
                )
        if chosen is None:
            chosen = next(tasks for tasks in times if times[tasks] <= times[fastest] * self._allowed(fastest, tasks))
        if times.get(now.tasks, math.inf) <= good and chosen > now.tasks / 2:
            # Each change makes state follow: it must save time, or half of the tasks.
            chosen = now.tasks
        goal = "" if self.target is None else f", target {self.target:.3g} s"
        why = (
            f"{chosen} tasks are expected to take {times[chosen]:.3g} s, the fastest, {fastest}, "
            f"{times[fastest]:.3g} s{goal} ({model})"
        )
        return chosen, why, problem

    def _allowed(self, fastest: int, tasks: int) -> float:
        """Return how much slower than the fastest a number of tasks may be for what it saves."""
        return 1 + self.sensitivity * min(1.0, math.log2(max(1.0, fastest / tasks)))

    def _missing(self, state: EpochState, chosen: int) -> int | None:
        """Return a number of tasks to measure before the choice stands, near one that was measured."""
        measured = {epoch.tasks for epoch in state.epochs}
        lowest, highest = (clamp(each, self.low, self.high) for each in (min(measured) // 2, 2 * max(measured)))
        near = [chosen, clamp(2 * chosen, self.low, self.high), clamp(chosen // 2, self.low, self.high)]
        return next((n for n in (clamp(each, lowest, highest) for each in near) if n not in measured), None)


def _noise(state: EpochState, tasks: int) -> float:
    """Return the standard error of the mean of the epochs with these tasks, as a fraction."""
    own = tuple(epoch for epoch in state.epochs if epoch.tasks == tasks)
    if len(own) < 2:
        return 0.0
    costs = fit(own)
    ratios = np.array([e.seconds / costs.seconds(e.tasks, e.rows, e.cores) for e in own])
    return float(ratios.std(ddof=1)) / math.sqrt(len(own))


def fit(epochs: tuple[EpochStatistics, ...], prior: EpochCosts = PRIOR) -> EpochCosts:
    """Return the costs that explain the epochs best; recent ones weigh more."""
    size = len(epochs)
    rows = np.array([[1.0, e.tasks, e.rows / min(e.tasks, e.cores)] for e in epochs]).reshape(size, 3)
    seconds = np.array([e.seconds for e in epochs])
    # Errors count relative to the epoch: a short epoch must not drown in the noise of a long one.
    weights = 0.98 ** np.arange(size - 1, -1, -1) / np.maximum(seconds, _SHORTEST)
    center = np.array([prior.fixed, prior.per_task, prior.per_row])
    ridge = np.diag(_PRIOR_WEIGHT / center)
    matrix = np.vstack([rows * weights[:, None], ridge])
    target = np.concatenate([seconds * weights, np.full(3, _PRIOR_WEIGHT)])
    return EpochCosts(*(float(value) for value in _non_negative(matrix, target)))


def _non_negative(matrix: Vector, target: Vector) -> Vector:
    """Solve least squares with no negative unknown, by trying which of the three are zero."""
    best, best_error = np.zeros(3), math.inf
    for size in (3, 2, 1):
        for used in combinations(range(3), size):
            columns = list(used)
            found = np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0]
            if (found < 0).any():
                continue
            values = np.zeros(3)
            values[columns] = found
            error = float(((matrix @ values - target) ** 2).sum())
            if error < best_error:
                best, best_error = values, error
        if size == 3 and math.isfinite(best_error):
            break  # The unconstrained solution is allowed, so no other can be better.
    return best
