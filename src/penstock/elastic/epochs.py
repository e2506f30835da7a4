"""Steer the epochs of a run on Spark: whether one task will do, how long they wait, and the executors."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from statistics import median
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, in_words, instead, things, time_text
from penstock.elastic.costs import Calm, CalmState, Costs, split


@dataclass(frozen=True, slots=True)
class PaceStatistics:
    """Report one epoch: what it took, and the rows that it left."""

    seconds: float
    backlog: int
    at: float = 0.0
    """When it ended, in seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class PaceState:
    """Hold the seconds from epoch to epoch, what is waited now, and what the last epochs took."""

    every: float = 0.0
    wait: float = 0.0
    """The same for the next epoch alone: less than usual after one that was slow or left rows."""
    recent: tuple[float, ...] = ()
    calm: CalmState = field(default_factory=CalmState)
    begun: float = 0.0
    """What an epoch took when waiting began."""
    failed: float | None = None
    """What one took when waiting began that was given up: with more rows in each, epochs took too long for it."""
    asked: int = field(default=0, kw_only=True)
    """Epochs in a row by which a wait should begin, or be longer, once the run is settled."""


@dataclass(frozen=True, slots=True)
class EpochWait:
    """Hold the target.

    A row that just missed an epoch waits for the next one to begin and to end. What the target leaves beside the epoch
    itself is spent on waiting: fewer epochs then carry the same rows, and fixed costs are paid less often. The wait
    after an epoch that was slow is shorter, and after one that left rows there is none; that is no change yet. What is
    decided goes by the last epochs but for the slowest few. To wait longer is never urgent: once the run is settled, it
    is done after some time in which nothing changed, and only where that is much longer. To wait makes epochs longer,
    too: where that was too much, it is tried again once they have become shorter.
    """

    name: ClassVar[str] = "epoch_wait"
    version: ClassVar[int] = 3

    target: float
    used: float = 0.75
    """The part of the target that may be used up: epochs vary."""
    least_change: float = 0.1
    """Smaller changes than this part of the target are not made."""
    kept: int = 12
    """Epochs that are looked at."""
    worth: float = 1.5
    """How many times an epoch's length a wait must be to begin with; it is kept while it is no shorter than one."""
    _: KW_ONLY
    longer: float = 1.5
    """How many times as long a wait must be to take the place of another, once the run is settled."""
    shorter: float = 0.7
    """Which part of what they took epochs must take for waiting to be tried again that was given up."""
    calm: Calm = field(default_factory=Calm)
    looks: int = 0
    """So many epochs in a row must ask for a longer wait, once the run is settled: few may be short by luck."""

    def start(self) -> PaceState:
        return PaceState()

    def step(self, state: PaceState, statistics: PaceStatistics) -> tuple[PaceState, Actions]:
        at, backlog = statistics.at, statistics.backlog
        recent = (*state.recent, statistics.seconds)[-self.kept :]
        seconds = sorted(recent, reverse=True)[min(len(recent) - 1, 1 + len(recent) // 6)]
        calm = self.calm.begin(state.calm, at)
        every = max(0.0, self.used * self.target - seconds)
        if every <= seconds * (1.0 if state.every else self.worth) or (backlog > 0 and state.every == 0):
            every = 0.0  # an epoch takes longer than the wait would
        if every > 0 == state.every and state.failed is not None and seconds > self.shorter * state.failed:
            every = 0.0
        change = abs(every - state.every)
        small = change < self.least_change * self.target and (every > 0 or state.every == 0)
        asked = 0
        if not self.calm.young(calm, at) and every > state.every:
            small = small or not self.calm.quiet(calm, at) or every < self.longer * state.every
            asked = 0 if small else state.asked + 1
            small = small or asked < self.looks
        elif not self.calm.young(calm, at) and every > 0:
            small = change < 2 * self.least_change * self.target  # each single wait is shorter anyway
        actions: Actions = ()
        begun, failed = state.begun, state.failed
        if small:
            every = state.every
        else:
            begun, failed = (seconds, failed) if state.every == 0 else (begun, begun if every == 0 else failed)
            calm = self.calm.change(calm, at)
            actions = (self._action(state.every, every, seconds, statistics),)
        wait = 0.0 if backlog > 0 else min(every, max(0.0, self.used * self.target - statistics.seconds))
        return PaceState(every, wait, recent, calm, begun, failed, asked=asked if small else 0), actions

    def _action(self, before: float, every: float, seconds: float, statistics: PaceStatistics) -> Action:
        took, target = time_text(seconds), time_text(self.target)
        if every == 0:
            why = (
                f"the next epoch begins at once instead of {time_text(before)} after the last: one takes {took}, and "
                f"the target is {target}"
            )
        else:
            why = (
                f"an epoch begins {time_text(every)} after the last instead of {time_text(before)}: it takes {took}, "
                f"and the target of {target} leaves the rest for rows to gather"
            )
        left = statistics.backlog
        figures = (("epoch_seconds", seconds), ("rows_left", left), ("target_seconds", self.target))
        return Action("every", "", before, every, why, figures)


_WEIGHT = 0.5
"""How much the latest epoch counts for the cost of a row."""
_RECENT = 9
"""Of so many epochs the rows are looked at: one that was slow once has more rows after it, and so has the next."""


@dataclass(frozen=True, slots=True)
class WorkStatistics:
    """Report one epoch, and the rows that the next one is to have."""

    rows: int
    cpu_seconds: float
    """Of all its tasks together."""
    expected_rows: int
    cores: int
    at: float = 0.0
    """When the rows of the next one were taken, in seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class OneTaskState:
    """Hold what a row costs, whether one task runs the epochs, and what that has cost more than it saved."""

    row_seconds: float
    one: bool = False
    calm: CalmState = field(default_factory=CalmState)
    taken: float | None = None
    """When rows were taken last."""
    recent: tuple[int, ...] = ()
    """The rows of the last epochs."""
    spans: tuple[float, ...] = ()
    """The seconds in which they came."""


@dataclass(frozen=True, slots=True)
class OneTask:
    """Hold the settings.

    Stages that share an epoch's work pay for the shuffles between them. Where the work that further tasks would take
    over is less than that, one task runs all stages one after the other and there is no shuffle at all. What a row
    costs is learned from epochs that are large enough to tell; a prior stands in for it before. A small one tells only
    what a row costs at the most: else an epoch that was slow once would count for ever where all are small.

    An epoch that was slow once also has more rows after it, and that is no reason to change: what staying costs must
    add up to what a change costs (`Calm`). But where rows come faster than one task computes them, nothing waits.
    """

    name: ClassVar[str] = "one_task"
    version: ClassVar[int] = 3

    shuffle_seconds: float = 0.025
    """What an epoch saves without its shuffles. Measured on two cores: 10,000 rows of W1 take as long either way."""
    row_seconds: float = 5e-6
    """What a row costs, until it is known."""
    _: KW_ONLY
    least_rows: int = 1000
    """An epoch of fewer rows says little of what a row costs, unless it takes longer than the shuffles."""
    band: float = 1.5
    """By how much the work must exceed the shuffles before one task is given up."""
    full: float = 0.9
    """Rows come faster than one task computes them where it would be busy for more than this part of the time."""
    long: float = 3.0
    """How many times as long as others an epoch must have taken to account for rows that are left over."""
    surprise: float = 2.0
    """How many times as much as before a row may seem to cost, for what one epoch counts."""
    calm: Calm = field(default_factory=Calm)

    def start(self) -> OneTaskState:
        return OneTaskState(self.row_seconds)

    def step(self, state: OneTaskState, statistics: WorkStatistics) -> tuple[OneTaskState, Actions]:
        """Learn what a row costs, then compare the work of the next epoch with its shuffles."""
        state = self._learn(state, statistics)
        at, first = statistics.at, state.calm.began is None
        expected = statistics.expected_rows
        work = expected * state.row_seconds
        recent = (*state.recent, expected)[-_RECENT:]
        since = None if state.taken is None else at - state.taken
        spans = state.spans if since is None else (*state.spans, since)[-_RECENT:]
        # What is left over from an epoch that took several times as long came in that time, not since the last one.
        span = max(spans, default=0.0)
        span = span if span > self.long * median(spans or (0.0,)) else since or 0.0
        behind = state.one and 0 < self.full * span < work
        counted = work if behind or not since else min(work, 2 * median(recent) * state.row_seconds)
        shared = counted * (1 - 1 / statistics.cores)
        regret = shared - self.band * self.shuffle_seconds if state.one else self.shuffle_seconds - shared
        calm = self.calm.weigh(state.calm, at, regret)
        due = regret >= 0 and (first or behind or self.calm.due(calm, at, more=state.one))
        state = replace(state, calm=calm, taken=at, recent=recent, spans=spans)
        if not due:
            return state, ()
        calm = calm if first else self.calm.change(calm, at)
        after = replace(state, one=not state.one, calm=calm)
        return after, (self._action(after, statistics, behind, since or 0.0),)

    def _learn(self, state: OneTaskState, statistics: WorkStatistics) -> OneTaskState:
        rows, seconds = statistics.rows, statistics.cpu_seconds
        if rows >= self.least_rows or (rows and seconds > self.shuffle_seconds):
            known = state.row_seconds != self.row_seconds
            cost = min(seconds / rows, self.surprise * state.row_seconds) if known else seconds / rows
            return replace(state, row_seconds=cost + (state.row_seconds - cost) * (1 - _WEIGHT) * known)
        if rows and state.row_seconds > self.row_seconds:
            most = max(self.row_seconds, seconds / rows)
            return replace(state, row_seconds=min(state.row_seconds, most))
        return state

    def _action(self, state: OneTaskState, statistics: WorkStatistics, behind: bool, since: float) -> Action:
        cores, rows, row_seconds = statistics.cores, statistics.expected_rows, state.row_seconds
        work = rows * row_seconds
        several = Costs(self.shuffle_seconds, per_row=row_seconds).seconds(cores, rows, cores)
        alone, shared, epoch = time_text(work), time_text(several), f"an epoch of {things(rows, 'row')} would take"
        if state.one:
            why = (
                f"one task instead of {in_words(cores)}: {epoch} {alone} beside what is fixed, "
                f"instead of {shared} with shuffles"
            )
        elif behind:
            why = (
                f"{things(cores, 'task')} instead of one: {things(rows, 'row')} came in {time_text(since)} and are "
                f"{alone} of work, too much for one task"
            )
        else:
            why = (
                f"{things(cores, 'task')} instead of one: {epoch} {shared} with shuffles, "
                f"instead of {alone}, beside what is fixed"
            )
        figures = (("rows", rows), ("work_seconds", work), ("shuffle_seconds", self.shuffle_seconds))
        return Action("one_task", "", not state.one, state.one, why, figures)


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
        each = statistics.cores_each
        costs = split(statistics.seconds, statistics.work_seconds, each * statistics.executors)
        return costs.seconds(each * executors, 1, each * executors)

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
        goal = "" if self.target is None else f"; half of the target is {time_text(self.target / 2)}"
        why = (
            f"{instead(wanted, now, 'executor')}: an epoch would take {time_text(self.seconds(statistics, wanted))} "
            f"instead of {time_text(statistics.seconds)}, by {in_words(votes)} epochs in a row{goal}"
        )
        figures = (("seconds", statistics.seconds), ("work_seconds", statistics.work_seconds))
        what = "advise_executors" if self.advise else "executors"
        return ExecutorState(), (Action(what, "", now, wanted, why, figures),)

    def _wanted(self, statistics: ExecutorStatistics) -> int:
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
