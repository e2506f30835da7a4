"""Move few shards between tasks until the busiest is near the mean (Elasticutor, section 3.1).

The imbalance is the busiest task's load over the mean. While it exceeds the goal, one shard goes from the busiest task
to the least busy: of all its shards the one that lowers the imbalance most. The table is changed, never made anew,
because every move costs a pause and the shard's state. All moves of one moment are one decision, with the table.

A shard that alone is more than the threshold allows a task cannot be helped by moving it. It is reported as
hot, with its hottest keys, once it is alone on its task; the others are then balanced among themselves. A table that
was made for another number of tasks is made even at once: the shards of tasks that are gone go first, the heaviest to
the least busy.
"""

import heapq
import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, Figures, ShardTable, in_words, things, time_text
from penstock.elastic.costs import Calm, CalmState

_MARGIN = 0.02
"""The part of a task's work by which moving must gain before it counts for anything."""


@dataclass(frozen=True, slots=True)
class HotKey:
    """Name a key and its part of its shard's load."""

    key: str
    share: float


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """Keep the hottest keys of one shard, the hottest first."""

    shard: int
    keys: tuple[HotKey, ...]


@dataclass(frozen=True, slots=True)
class ShardStatistics:
    """Report one period of an operator's shards."""

    loads: tuple[float, ...]
    """For each shard, the seconds it computed; over sliding windows of one second in the paper."""
    table: tuple[int, ...]
    """For each shard, its task."""
    tasks: int
    state_bytes: tuple[int, ...] = ()
    hot_keys: tuple[ShardKeys, ...] = ()
    _: KW_ONLY
    operator: str = ""
    at: float = 0.0
    """Seconds of a clock that never goes back."""
    even: int = 0
    """Periods since the last look that were even enough not to be looked at."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """Remember which shards were hot, so that each is reported once, and what leaving the table alone has cost."""

    hot: tuple[int, ...] = ()
    calm: CalmState = field(default_factory=CalmState)


@dataclass(frozen=True, slots=True)
class ShardBalance:
    """Hold the settings: run every 0.5 s in the paper, between epochs on Spark.

    As the paper has it, shards move as soon as the busiest task exceeds the threshold, until it no longer does. With a
    `goal` they move on until the busiest is that near to the mean; while a run is young that is also where moving
    begins. With a `calm` it must have cost as much to leave them where they are as a change costs.
    """

    name: ClassVar[str] = "shard_balance"
    version: ClassVar[int] = 2

    threshold: float = 1.2
    least_gain: float = 0.0
    """Seconds that the busiest task must exceed the mean by: less is not worth a move, and may be noise."""
    most_moves: int = 1 << 30
    reported_keys: int = 3
    _: KW_ONLY
    goal: float | None = None
    calm: Calm | None = None
    bytes_per_second: float = 50e6
    """How fast the state of shards follows them; it is counted as a part of what a change costs."""

    def start(self) -> ShardState:
        return ShardState()

    def limit(self, state: ShardState, at: float) -> float:
        """Return the imbalance up to which nothing is done."""
        if self.goal is None or self.calm is None:
            return self.threshold
        return self.goal if self.calm.young(state.calm, at) else (self.goal + self.threshold) / 2

    def step(self, state: ShardState, statistics: ShardStatistics) -> tuple[ShardState, Actions]:
        """Return the table that brings the busiest task near the mean as one action, and the hot shards."""
        at = statistics.at
        plan = _Plan(statistics)
        resized = bool(plan.homeless) or not all(plan.shards)
        limit, heavy, excess = self.limit(state, at), max(plan.sums), plan.gain()
        before = heavy / plan.mean if plan.mean > 0 else 1.0
        plan.evacuate()
        if resized or (excess > self.least_gain and before > limit):
            plan.balance(min(self.goal or self.threshold, self.threshold), self.threshold, self.most_moves)
        moved = [shard for shard, task in enumerate(statistics.table) if plan.table[shard] != task]
        calm, due = state.calm, True
        if self.calm is not None:
            slack = (limit - 1) * plan.mean
            calm = self.calm.weigh(calm, at, -statistics.even * slack)
            calm = self.calm.weigh(calm, at, heavy - max(plan.sums) - _MARGIN * plan.mean if moved else -slack)
            due = resized or self._due(calm, statistics, moved)
        actions = []
        if moved and due:
            actions.append(self._table(statistics, plan, moved, before, resized))
            calm = calm if self.calm is None else self.calm.change(calm, at)
        actions += [self._report(statistics, shard, plan) for shard in plan.hot if shard not in state.hot]
        return ShardState(tuple(sorted(plan.hot)), calm), tuple(actions)

    def _due(self, calm: CalmState, statistics: ShardStatistics, moved: list[int]) -> bool:
        assert self.calm is not None
        follows = sum(statistics.state_bytes[shard] for shard in moved) if statistics.state_bytes else 0
        charged = replace(self.calm, change_seconds=self.calm.change_seconds + follows / self.bytes_per_second)
        return charged.due(calm, statistics.at)

    def _table(
        self, statistics: ShardStatistics, plan: "_Plan", moved: list[int], before: float, resized: bool
    ) -> Action:
        after = max(plan.sums) / plan.mean if plan.mean > 0 else 1.0
        shards, tasks = things(len(moved), "shard"), in_words(statistics.tasks)
        if resized:
            why = f"{shards} {_move(moved)}, because the table was made for another number of tasks than {tasks}"
        else:
            then, now = (time_text(each * plan.mean) for each in (after, before))
            why = f"{shards} {_move(moved)}: the busiest of {tasks} tasks would work {then} instead of {now}"
        numbers: Figures = (
            ("busiest_of_mean", before),
            ("then", after),
            ("shards", len(moved)),
            ("state_bytes", sum(plan.bytes[shard] for shard in moved)),
        )
        table = ShardTable(statistics.operator, tuple(plan.table))
        return Action("table", statistics.operator, round(before, 3), round(after, 3), why, numbers, tables=(table,))

    def _report(self, statistics: ShardStatistics, shard: int, plan: "_Plan") -> Action:
        share = statistics.loads[shard] / plan.mean
        keys = next((each.keys for each in statistics.hot_keys if each.shard == shard), ())
        named = ", ".join(f"{each.key} ({each.share:.0%})" for each in keys[: self.reported_keys])
        why = (
            f"shard {shard} alone has {share:.3g} times the work of a task, more than {self.threshold:.3g}: "
            f"no table can balance it; hottest keys: {named or 'not measured'}"
        )
        task = plan.table[shard]
        return Action("hot_shard", str(shard), task, task, why, (("of_mean", share), ("limit", self.threshold)))


def calm_balance(least_gain: float = 0.0) -> ShardBalance:
    """Return the balance as both engines have it."""
    return ShardBalance(least_gain=least_gain, goal=1.05, calm=Calm())


def imbalance(loads: tuple[float, ...], table: tuple[int, ...], tasks: int) -> float:
    """Return the busiest task's load over the mean of all tasks; 1 if nothing is loaded."""
    sums = [0.0] * tasks
    for load, task in zip(loads, table, strict=True):
        sums[task] += load
    mean = sum(sums) / tasks
    return max(sums) / mean if mean > 0 else 1.0


def even_out(statistics: ShardStatistics, tasks: int, goal: float) -> tuple[int, ...]:
    """Return the table for another number of tasks: even, with as few moves as that takes."""
    plan = _Plan(replace(statistics, tasks=tasks))
    plan.evacuate()
    plan.balance(goal, goal, 1 << 30)
    return tuple(plan.table)


def moves(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the shards that another table gives to another task, and that task."""
    return [(shard, task) for shard, (old, task) in enumerate(zip(before, after, strict=True)) if old != task]


def _move(moved: list[int]) -> str:
    return "moves" if len(moved) == 1 else "move"


class _Plan:
    def __init__(self, statistics: ShardStatistics) -> None:
        """Sum up the tasks that exist; shards of others wait for evacuation."""
        self.loads = statistics.loads
        self.table = list(statistics.table)
        self.tasks = statistics.tasks
        self.bytes = statistics.state_bytes or (0,) * len(self.loads)
        self.sums = [0.0] * self.tasks
        self.shards: list[set[int]] = [set() for _ in range(self.tasks)]
        self.homeless = []
        for shard, task in enumerate(self.table):
            if 0 <= task < self.tasks:
                self.shards[task].add(shard)
            else:
                self.homeless.append(shard)
        for task in range(self.tasks):
            self._sum(task)
        self.mean = sum(self.loads) / self.tasks
        self.hot: list[int] = []

    def evacuate(self) -> None:
        """Place the shards of tasks that are gone, the heaviest first."""
        least = [(load, task) for task, load in enumerate(self.sums)]
        heapq.heapify(least)
        for shard in sorted(self.homeless, key=lambda each: (-self.loads[each], each)):
            _, task = heapq.heappop(least)
            self._place(shard, task)
            heapq.heappush(least, (self.sums[task], task))

    def gain(self) -> float:
        return max(self.sums) - self.mean

    def balance(self, goal: float, threshold: float, most: int) -> None:
        """Move shards from the busiest task to the least busy until the busiest is within the goal.

        A shard that is more than the threshold allows a task, and that nothing can help, is hot.
        """
        moved = 0
        active = set(range(self.tasks))
        while active:
            busiest = max(active, key=lambda task: (self.sums[task], -task))
            least = min(active, key=lambda task: (self.sums[task], task))
            mean = sum(self.sums[task] for task in active) / len(active)
            heavy, light = self.sums[busiest], self.sums[least]
            if mean <= 0 or heavy <= goal * mean:
                break
            shard = self._best_shard(busiest, light)
            if shard is None:
                # Nothing on it can go: it holds one shard too big for a task, or nothing that helps.
                biggest = max(self.shards[busiest], key=lambda each: (self.loads[each], -each))
                if self.loads[biggest] > threshold * self.mean:
                    self.hot.append(biggest)
                active.remove(busiest)
                continue
            if moved >= most:
                break
            moved += 1
            self.shards[busiest].discard(shard)
            self._sum(busiest)
            self._place(shard, least)

    def _best_shard(self, busiest: int, light: float) -> int | None:
        """Return the shard whose move leaves the two tasks lowest; of equals, that with the least state."""
        heavy = self.sums[busiest]
        best, best_key = None, (heavy, 0, 0)
        for shard in self.shards[busiest]:
            load = self.loads[shard]
            key = (max(heavy - load, light + load), self.bytes[shard], shard)
            if load > 0 and key[0] < heavy and (best is None or key < best_key):
                best, best_key = shard, key
        return best

    def _place(self, shard: int, task: int) -> None:
        self.table[shard] = task
        self.shards[task].add(shard)
        self._sum(task)

    def _sum(self, task: int) -> None:
        """Sum a task's shards exactly: a rounding error left on an empty task would look like load."""
        self.sums[task] = math.fsum(self.loads[shard] for shard in self.shards[task])
