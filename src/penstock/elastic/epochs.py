"""Steer the epochs of a run on Spark: their tasks, whether one task will do, how long they wait, and the executors."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.elastic.base import Action, Actions, clamp


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
    """Hold the target.

    A row that just missed an epoch waits for the next one to begin and to end. What the target leaves beside the epoch
    itself is spent on waiting: fewer epochs then carry the same rows, and fixed costs are paid less often. Nothing
    waits while rows are left over.
    """

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
    """Hold the settings.

    Stages that share an epoch's work pay for the shuffles between them. Where the work that further tasks would take
    over is less than that, one task runs all stages one after the other and there is no shuffle at all. What a row
    costs is learned from epochs that are large enough to tell; a prior stands in for it before. A small one tells only
    what a row costs at the most: else an epoch that was slow once would count for ever where all are small.
    """

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
    """Hold the target and the bounds; with `advise` the action is advice, for a cluster that takes no orders.

    An epoch takes what its tasks compute, shared by all cores, and a part that no core can help. Both follow from one
    epoch. An executor takes seconds to come or to go, and its state must follow, so several epochs in a row must agree
    before anything changes: few to get more, many to give some back.
    """

    name: ClassVar[str] = "executor_count"

    target: float | None = None
    low: int = 1
    high: int = 1
    advise: bool = False
    patience_up: int = 3
    patience_down: int = 10
    _: KW_ONLY
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
    """Hold the latency target of an epoch and the bounds.

    On Spark the stages of an epoch take turns, so queues between them do not form and the Jackson network does not
    apply. What an epoch takes is instead

        seconds = fixed + per_task * tasks + per_row * rows / min(tasks, cores)

    The three costs are fitted by least squares to the epochs that are trusted, none below zero, with priors that decide
    only what the measurements leave open; where a number of tasks was measured, what the model missed there is added.
    The fewest tasks that meet the target are chosen; without a target, or if it cannot be met, the fastest, but twice
    the tasks must gain at least the sensitivity: few tasks for small epochs. A choice stands once half and twice as
    many tasks have been measured too. When the epochs at the chosen number all differ from the model, the older ones
    are not trusted any more.
    """

    name: ClassVar[str] = "epoch_tasks"

    target: float | None = None
    low: int = 1
    high: int = 1
    sensitivity: float = 0.05
    load_change: float = 0.2
    noise_limit: int = 5
    _: KW_ONLY
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
