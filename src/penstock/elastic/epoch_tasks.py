"""Choose the tasks of a stage on Spark, by what its epochs cost."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from statistics import median
from typing import ClassVar

from penstock.elastic.base import Action, Actions, Figures, ShardTable, clamp, in_words, things, time_text
from penstock.elastic.costs import PRIOR, Calm, CalmState, Costs, Sample, fit
from penstock.elastic.noise import Usual
from penstock.elastic.shard_balance import ShardStatistics, even_out

_USUAL = 16
"""Epochs whose rows are looked at to know how many they usually have."""


@dataclass(frozen=True, slots=True)
class EpochStatistics:
    """Report one epoch of a stage, and the rows that the next one is expected to have."""

    tasks: int
    rows: int
    seconds: float
    """Zero before an epoch was run with these tasks: then only the bounds count."""
    expected_rows: int
    cores: int
    _: KW_ONLY
    most: int | None = None
    """The most tasks that there is room for by now: machines come and go. None leaves it to the controller."""
    at: float = 0.0
    """When the epoch ended, in seconds of a clock that never goes back."""
    began: float | None = None
    """When the run began, by the same clock: it may have run in one task until now, and is not young because of that.
    None is with this epoch."""
    operators: tuple[ShardStatistics, ...] = ()
    """The shards of the stage's operators, for the tables that go with another number of tasks; they are long, and so
    they are there only where the number changes."""


@dataclass(frozen=True, slots=True)
class EpochState:
    """Hold the epochs that are trusted, the latest last, and what staying with the tasks has cost."""

    epochs: tuple[Sample, ...] = ()
    calm: CalmState = field(default_factory=CalmState)
    wanted: int | None = None
    """The number of tasks that the debt is about."""
    unmet: bool = False
    """Whether it was said that the target cannot be met."""
    relearned: float | None = None
    """When epochs last differed so much that numbers of tasks were tried again."""
    _: KW_ONLY
    gave: tuple[float, int] | None = None
    """When tasks were given back last, and the rows that epochs had before."""
    failed: tuple[int, int] | None = None
    """Tasks that were too few soon after others had been given back, and the rows that epochs had before that."""
    rate: Usual = field(default_factory=Usual)
    """Rows per second."""
    seen: float | None = None
    """When the last epoch ended."""
    span: float = 0.0
    """Seconds from the end of the one before it until then."""
    lighter: bool = False
    """Whether fewer rows come than did when the tasks were last changed."""


@dataclass(frozen=True, slots=True)
class EpochTasks:
    """Hold the latency target of an epoch and the bounds.

    On Spark the stages of an epoch take turns, so queues between them do not form and the Jackson network does not
    apply. What an epoch takes is instead

        seconds = fixed + per_task * tasks + per_row * rows / min(tasks, cores)

    The three costs are fitted by least squares to the epochs that are trusted, none below zero, with priors that decide
    only what the measurements leave open; where a number of tasks was measured, what the model missed there is added.
    The fewest tasks that meet the target are chosen; without a target, or if it cannot be met, the fastest, but twice
    the tasks must gain at least the sensitivity: few tasks for small epochs.

    While a run is young, half and twice as many tasks are measured too before a choice stands. Later what staying costs
    must add up to what a change costs (`Calm`). When the epochs at the chosen number all differ from older ones, beyond
    the noise, the older ones are not trusted any more; where that is by so much that the choice may be another, the run
    is young again.
    """

    name: ClassVar[str] = "epoch_tasks"
    version: ClassVar[int] = 4

    target: float | None = None
    low: int = 1
    high: int = 1
    _: KW_ONLY
    sensitivity: float = 0.05
    load_change: float = 0.2
    noise_limit: int = 5
    kept: int = 16
    """Epochs that are kept of each number of tasks."""
    relearn: float = 0.3
    """By which part epochs must have become longer, or others shorter, for numbers of tasks to be tried again."""
    prior: Costs = PRIOR
    calm: Calm = field(default_factory=Calm)
    looks: int = 4
    """The most epochs of a number of tasks that are measured before it is judged, where they are noisy."""
    ease: float = 0.8
    """Fewer tasks must be expected to take no more than this part of the target, where epochs vary much."""
    settled_ease: float = 0.5
    """The same once the run is settled: epochs that take longer have more rows, and take longer again."""
    doubt: int = 0
    """How many times twice as much as else it must cost to stay with fewer tasks, once some were given back. With any,
    numbers of tasks are not tried again because epochs have become shorter."""
    free_worth: float = 0.025
    """What a free task is worth in an epoch, as a part of what a change costs: so long it must be wanted."""
    goal: float = 1.05
    """How near to the mean the busiest task is to be after a change."""

    def start(self) -> EpochState:
        return EpochState()

    def step(self, state: EpochState, statistics: EpochStatistics) -> tuple[EpochState, Actions]:
        most = self.high if statistics.most is None else clamp(statistics.most, self.low, self.high)
        return replace(self, high=most)._decide(state, statistics)

    def _decide(self, state: EpochState, statistics: EpochStatistics) -> tuple[EpochState, Actions]:
        """Add the epoch, fit the costs, choose."""
        now, at = statistics.tasks, statistics.at
        if state.calm.began is None and statistics.began is not None:
            state = replace(state, calm=replace(state.calm, began=statistics.began))
        if statistics.seconds <= 0:
            return state, self._bounded(statistics)
        state = self._trust(self._rated(state, statistics), statistics)
        noise = _noise(state.epochs, now)
        costs = fit(state.epochs, self.prior)
        times = self._times(state, costs, statistics)
        settled = not self.calm.young(state.calm, at)
        chosen, problem = self._choose(times, statistics, noise, settled)
        if settled and chosen < now and not self._can_give(state, chosen, statistics):
            chosen = now
        calm, wanted = self._weigh(state, statistics, times, chosen, noise)
        young = self.calm.young(calm, at)
        missing = self._missing(state, chosen, now, noise, times) if young else None
        outside = not self.low <= now <= self.high
        if missing is not None:
            chosen = missing
        elif chosen != now and not outside and not self.calm.due(calm, at, more=chosen > now):
            chosen = now
        actions = []
        if problem and not state.unmet:
            actions.append(Action("latency_target", "", self.target, None, problem))
        if chosen != now:
            if chosen > now and state.gave is not None and at - state.gave[0] < self.calm.patience:
                state = replace(state, failed=(now, state.gave[1]))
            gives = chosen < now and not young
            state = replace(state, gave=(at, _usual_rows(state.epochs)) if gives else None)
            calm, wanted, state = self.calm.change(calm, at), None, replace(state, lighter=False)
            if gives:  # a slow epoch soon after says little: what is known of fewer tasks may be long ago
                calm = replace(calm, streak=calm.streak + self.doubt)
            why = self._why(times, statistics, chosen, missing is not None)
            actions.append(Action("tasks", "", now, chosen, why, _figures(times, statistics, chosen, costs)))
        state = replace(state, calm=calm, wanted=wanted, unmet=problem is not None)
        return state, self._with_tables(tuple(actions), statistics)

    def _rated(self, state: EpochState, statistics: EpochStatistics) -> EpochState:
        """Note how many rows come, and whether they have become fewer."""
        since = 0.0 if state.seen is None else statistics.at - state.seen
        # The rows of an epoch have come while the one before it ran.
        before, state = state.span, replace(state, seen=statistics.at, span=since)
        if before <= 0:
            return state
        rate, other = state.rate.add(statistics.rows / before, self.load_change, self.noise_limit)
        lighter = rate.mean < state.rate.mean if other else state.lighter
        return replace(state, rate=rate, lighter=lighter)

    def _bounded(self, statistics: EpochStatistics) -> Actions:
        """Go to the bounds: tasks may come from a checkpoint that a larger machine has left."""
        tasks = statistics.tasks
        after = clamp(tasks, self.low, self.high)
        if after == tasks:
            return ()
        why = f"{things(after, 'task')} instead of {in_words(tasks)}: there is room for {self.low} to {self.high}"
        return self._with_tables((Action("tasks", "", tasks, after, why),), statistics)

    def _with_tables(self, actions: Actions, statistics: EpochStatistics) -> Actions:
        """Add the tables that go with another number of tasks."""
        return tuple(
            replace(
                action,
                tables=tuple(
                    ShardTable(each.operator, even_out(each, action.after, self.goal)) for each in statistics.operators
                ),
            )
            if action.what == "tasks" and isinstance(action.after, int)
            else action
            for action in actions
        )

    def _trust(self, state: EpochState, statistics: EpochStatistics) -> EpochState:
        """Add an epoch; trust only the last ones if all of them differ from older ones with their tasks."""
        now = Sample(statistics.tasks, statistics.rows, statistics.seconds, statistics.cores)
        epochs = (*state.epochs, now)
        same = tuple(epoch for epoch in epochs if epoch.tasks == now.tasks)
        older, recent = same[: -self.noise_limit - 1], same[-self.noise_limit - 1 :]
        costs = None
        if len(older) < self.noise_limit and len({epoch.tasks for epoch in epochs[: -self.noise_limit - 1]}) > 2:
            # Few were run with these tasks, but enough with others to tell what they should take.
            older, recent = epochs[: -self.noise_limit - 1], epochs[-self.noise_limit - 1 :]
            costs = fit(older, self.prior)
        spread = _spread(older)
        changed = None
        if len(older) >= self.noise_limit:
            changed = _changed(older, recent, 1 + max(self.load_change, 2 * spread), costs)
        varies = _spread(same) if self.doubt else 0.0  # few older ones may be alike by luck
        known = len(older) >= 2 * self.noise_limit  # of fewer, how much they vary is not known well enough
        if changed is not None and known and self._relearns(state, changed, max(spread, varies), statistics.at):
            young = CalmState(statistics.at, state.calm.changed, state.calm.streak)
            return replace(state, epochs=recent, calm=young, relearned=statistics.at)
        if changed is not None:
            # The machine is slower or faster by some: what is known of other numbers of tasks is so too.
            others = (epoch for epoch in epochs[: -len(recent)] if epoch.tasks != now.tasks)
            return replace(
                state, epochs=(*(replace(epoch, seconds=epoch.seconds * changed) for epoch in others), *recent)
            )
        if len(same) > self.kept:
            first = epochs.index(same[0])
            epochs = epochs[:first] + epochs[first + 1 :]
        return replace(state, epochs=epochs)

    def _relearns(self, state: EpochState, changed: float, spread: float, at: float) -> bool:
        """Tell whether epochs differ so much that numbers of tasks are to be tried again, and have not been lately."""
        if self.doubt and changed < 1 and not self.calm.young(state.calm, at):
            return False  # what takes less time than it did is not urgent
        lately = state.relearned is not None and at - state.relearned < self.calm.patience
        return max(changed, 1 / changed) > 1 + max(1.0 if lately else self.relearn, 4 * spread)

    def _times(self, state: EpochState, costs: Costs, now: EpochStatistics) -> dict[int, float]:
        """Return what an epoch is expected to take for each number of tasks."""
        errors: dict[int, list[float]] = {}
        for epoch in state.epochs:
            errors.setdefault(epoch.tasks, []).append(costs.missed(epoch) - 1)
        times = {}
        for tasks in range(self.low, self.high + 1):
            own = errors.get(tasks, [])
            # The fewer the epochs, the more of what the model missed is noise; one that was slow once counts for none.
            missed = median(own) * len(own) / (len(own) + 2) if own else 0.0
            times[tasks] = costs.seconds(tasks, now.expected_rows, now.cores) * (1 + missed)
        return times

    def _choose(
        self, times: dict[int, float], now: EpochStatistics, noise: float, settled: bool
    ) -> tuple[int, str | None]:
        """Return the number of tasks, and why the target cannot be met, if so."""
        fastest = min(times, key=lambda tasks: (times[tasks], tasks))
        problem = None
        chosen = None
        good = times[fastest] * (1 + self.sensitivity + noise)
        if self.target is not None:
            # Fewer only where there is room: where epochs vary, a number that just fits would be given up again.
            ease = self.settled_ease if settled else 1 - min(1 - self.ease, 4 * noise)
            meets = (n for n, seconds in times.items() if seconds <= self.target * (ease if n < now.tasks else 1))
            chosen = next(meets, None)
            good = self.target if chosen is not None else good
            if chosen is None:
                problem = (
                    f"no number of tasks meets the target of {time_text(self.target)}: the fastest, "
                    f"{in_words(fastest)}, would take {time_text(times[fastest])} for {now.expected_rows:,} rows"
                )
        if chosen is None:
            chosen = next(tasks for tasks in times if times[tasks] <= times[fastest] * self._allowed(fastest, tasks))
        if times.get(now.tasks, math.inf) <= good and chosen > now.tasks / 2:
            # Each change makes state follow: it must save time, or half of the tasks.
            chosen = now.tasks
        return chosen, problem

    def _weigh(
        self, state: EpochState, now: EpochStatistics, times: dict[int, float], chosen: int, noise: float
    ) -> tuple[CalmState, int | None]:
        """Add what staying costs in the next epoch, against what is wanted now, or was before."""
        wanted = state.wanted if chosen == now.tasks else chosen
        if wanted is None or wanted not in times or now.tasks not in times:
            return self.calm.begin(state.calm, now.at), None if chosen == now.tasks else chosen
        regret = times[now.tasks] - times[wanted] - noise * times[now.tasks]
        if wanted < now.tasks:
            # Fewer tasks need not be faster: that they are free for others counts for something.
            worth = self.free_worth * self.calm.change_seconds
            if self.calm.young(state.calm, now.at):
                regret = max(regret, worth if chosen == wanted else -self.calm.change_seconds)
            else:  # it is never urgent, and what one epoch seems to save is noise
                regret = worth if chosen == wanted else -self.calm.change_seconds
        elif self.target is not None and chosen == wanted:
            regret = max(regret, times[now.tasks] - self.target)
        return self.calm.weigh(state.calm, now.at, regret), wanted

    def _can_give(self, state: EpochState, chosen: int, now: EpochStatistics) -> bool:
        """Tell whether tasks can be given back on the strength of what is expected of fewer."""
        if self.doubt and not state.lighter:
            return False  # as much comes as before: what was chosen then is not chosen anew
        if chosen > now.tasks / 2 and all(epoch.tasks != chosen for epoch in state.epochs):
            return False  # to save less than half is not worth to try what was never measured
        if state.failed is None or chosen > state.failed[0]:
            return True
        return _usual_rows(state.epochs) <= self.ease * state.failed[1]  # at that load so few were too few

    def _allowed(self, fastest: int, tasks: int) -> float:
        """Return how much slower than the fastest a number of tasks may be for what it saves."""
        return 1 + self.sensitivity * min(1.0, math.log2(max(1.0, fastest / tasks)))

    def _missing(self, state: EpochState, chosen: int, now: int, noise: float, times: dict[int, float]) -> int | None:
        """Return a number of tasks to measure before the choice stands, near one that was measured."""
        measured: dict[int, int] = {}
        for epoch in state.epochs:
            measured[epoch.tasks] = measured.get(epoch.tasks, 0) + 1
        enough = clamp(math.ceil((_spread(state.epochs) / 0.1) ** 2), 1, self.looks)
        if measured.get(now, 0) < enough and times.get(now, math.inf) < (1 + 3 * noise + 0.3) * min(times.values()):
            return now  # it is not told apart yet from the best
        lowest, highest = (clamp(each, self.low, self.high) for each in (min(measured) // 2, 2 * max(measured)))
        near = [chosen, clamp(2 * chosen, self.low, self.high), clamp(chosen // 2, self.low, self.high)]
        return next((n for n in (clamp(each, lowest, highest) for each in near) if n not in measured), None)

    def _why(self, times: dict[int, float], now: EpochStatistics, chosen: int, tried: bool) -> str:
        instead = f"{things(chosen, 'task')} instead of {in_words(now.tasks)}"
        if now.tasks not in times:
            return f"{instead}: there is room for {self.low} to {self.high}"
        if tried:
            return (
                f"{instead}: {in_words(chosen)} have not been measured yet"
                if chosen > 1
                else (f"{instead}: one has not been measured yet")
            )
        expected = f"{instead}: an epoch would take {time_text(times[chosen])} instead of {time_text(times[now.tasks])}"
        return expected if self.target is None else f"{expected}, the target is {time_text(self.target)}"


def _figures(times: dict[int, float], now: EpochStatistics, chosen: int, costs: Costs) -> Figures:
    return (
        ("rows", now.expected_rows),
        ("seconds", times.get(now.tasks, now.seconds)),
        ("seconds_then", times[chosen]),
        ("fixed_seconds", costs.fixed),
        ("seconds_per_task", costs.per_task),
        ("seconds_per_row", costs.per_row),
    )


def _changed(older: tuple[Sample, ...], recent: tuple[Sample, ...], beyond: float, costs: Costs | None) -> float | None:
    """Return how many times as long recent epochs all took, beyond that; None where they did not.

    How much of an epoch is for its rows is not known well enough to compare one of few rows with one of many: only what
    is too long, or too short, whether all of it is for its rows or none counts. Epochs with other tasks are compared by
    the `costs`.
    """

    def whole(epoch: Sample) -> float:
        return epoch.seconds if costs is None else costs.missed(epoch)

    def each_row(epoch: Sample) -> float:
        return whole(epoch) / max(epoch.rows, 1)

    usual, usual_row = median(map(whole, older)), median(map(each_row, older))
    ratios = [(whole(epoch) / usual, each_row(epoch) / usual_row) for epoch in recent]
    if all(min(pair) > beyond for pair in ratios):
        return median(min(pair) for pair in ratios)
    return median(max(pair) for pair in ratios) if all(max(pair) < 1 / beyond for pair in ratios) else None


def _spread(epochs: tuple[Sample, ...]) -> float:
    """Return by how much epochs with the same tasks differ, as a fraction: a standard deviation, but for outliers."""
    deviations = []
    for tasks in {epoch.tasks for epoch in epochs}:
        own = tuple(epoch for epoch in epochs if epoch.tasks == tasks)
        if len(own) > 1:
            costs = fit(own)
            ratios = [costs.missed(epoch) for epoch in own]
            middle = median(ratios)
            deviations += [abs(ratio / middle - 1) for ratio in ratios]
    return 1.48 * median(deviations) if deviations else 0.0


def _usual_rows(epochs: tuple[Sample, ...]) -> int:
    """Return how many rows the last epochs had, but for those after one that was slow once."""
    return round(median(epoch.rows for epoch in epochs[-_USUAL:]))


def _noise(epochs: tuple[Sample, ...], tasks: int) -> float:
    """Return the standard error of the mean of the epochs with these tasks, as a fraction."""
    own = tuple(epoch for epoch in epochs if epoch.tasks == tasks)
    return _spread(own) / math.sqrt(len(own)) if len(own) > 1 else 0.0
