"""Move few shards between tasks until the busiest is near the mean (Elasticutor, section 3.1).

The imbalance is the busiest task's load over the mean. While it exceeds the threshold, one shard goes from
the busiest task to the least busy: of all its shards the one that lowers the imbalance most. The mapping is
mended, never made anew, because every move costs a pause and the shard's state.

A shard that alone is more than the threshold allows a task cannot be helped by moving it. It is reported as
hot, with its hottest keys, once it is alone on its task; the others are then balanced among themselves. When
the number of tasks has changed, the shards of tasks that are gone go first, the heaviest to the least busy.
"""

import heapq
import math
from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions


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


@dataclass(frozen=True, slots=True)
class ShardState:
    """Remember which shards were hot, so that each is reported once."""

    hot: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Send one shard to another task; `why` has the imbalance before and after."""

    shard: int
    before: int
    after: int
    why: str


@dataclass(frozen=True, slots=True)
class ShardBalance:
    """Hold the settings: run every 0.5 s in the paper, between epochs on Spark."""

    name: ClassVar[str] = "shard_balance"

    threshold: float = 1.2
    least_gain: float = 0.0
    """Seconds that the busiest task must exceed the mean by: less is not worth a move, and may be noise."""
    most_moves: int = 1 << 30
    reported_keys: int = 3

    def start(self) -> ShardState:
        return ShardState()

    def step(self, state: ShardState, statistics: ShardStatistics) -> tuple[ShardState, Actions]:
        """Return the moves that bring the busiest task within the threshold, and the hot shards."""
        plan = _Plan(statistics)
        moves = plan.evacuate()
        if plan.gain() > self.least_gain or not all(plan.shards):
            moves += plan.balance(self.threshold, self.most_moves - len(moves))
        actions = [Action("shard", str(move.shard), move.before, move.after, move.why) for move in _net(moves)]
        actions += [self._report(statistics, shard, plan) for shard in plan.hot if shard not in state.hot]
        return ShardState(tuple(sorted(plan.hot))), tuple(actions)

    def _report(self, statistics: ShardStatistics, shard: int, plan: "_Plan") -> Action:
        share = statistics.loads[shard] / plan.mean
        keys = next((each.keys for each in statistics.hot_keys if each.shard == shard), ())
        named = ", ".join(f"{each.key} ({each.share:.0%})" for each in keys[: self.reported_keys])
        why = (
            f"shard {shard} alone is {share:.3g} of the mean task, more than {self.threshold:.3g}: "
            f"no table can balance it; hottest keys: {named or 'not measured'}"
        )
        task = plan.table[shard]
        return Action("hot_shard", str(shard), task, task, why)


def imbalance(loads: tuple[float, ...], table: tuple[int, ...], tasks: int) -> float:
    """Return the busiest task's load over the mean of all tasks; 1 if nothing is loaded."""
    sums = [0.0] * tasks
    for load, task in zip(loads, table, strict=True):
        sums[task] += load
    mean = sum(sums) / tasks
    return max(sums) / mean if mean > 0 else 1.0


def _net(moves: list[Move]) -> list[Move]:
    """Join the moves of each shard into one: where it came from, where it ends, and why it left each task between."""
    joined: dict[int, Move] = {}
    for move in moves:
        first = joined.get(move.shard)
        joined[move.shard] = (
            Move(move.shard, first.before, move.after, f"{first.why}; after that {move.why}") if first else move
        )
    return [move for move in joined.values() if move.before != move.after]


class _Plan:
    """Work on a copy of the table within one step."""

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

    def evacuate(self) -> list[Move]:
        """Place the shards of tasks that are gone, the heaviest first."""
        least = [(load, task) for task, load in enumerate(self.sums)]
        heapq.heapify(least)
        moves = []
        for shard in sorted(self.homeless, key=lambda each: (-self.loads[each], each)):
            load, task = heapq.heappop(least)
            why = f"task {self.table[shard]} is gone; task {task} is the least busy, {load:.3g} s"
            moves.append(Move(shard, self.table[shard], task, why))
            self._place(shard, task)
            heapq.heappush(least, (self.sums[task], task))
        return moves

    def gain(self) -> float:
        """Return the seconds by which the busiest task exceeds the mean."""
        return max(self.sums) - self.mean

    def balance(self, threshold: float, most: int) -> list[Move]:
        """Move shards from the busiest task to the least busy until the busiest is within the threshold."""
        moves: list[Move] = []
        active = set(range(self.tasks))
        while len(moves) < most and active:
            busiest = max(active, key=lambda task: (self.sums[task], -task))
            least = min(active, key=lambda task: (self.sums[task], task))
            mean = sum(self.sums[task] for task in active) / len(active)
            heavy, light = self.sums[busiest], self.sums[least]
            if mean <= 0 or heavy <= threshold * mean:
                break
            shard = self._best_shard(busiest, light)
            if shard is None:
                # Nothing on it can go: it holds one shard too big for a task, or nothing that helps.
                biggest = max(self.shards[busiest], key=lambda each: (self.loads[each], -each))
                if self.loads[biggest] > threshold * self.mean:
                    self.hot.append(biggest)
                active.remove(busiest)
                continue
            load = self.loads[shard]
            why = (
                f"task {busiest} has {heavy / mean:.3g} of the mean, limit {threshold:.3g}, and task {least} "
                f"{light / mean:.3g}: {(heavy - load) / mean:.3g} and {(light + load) / mean:.3g} then"
            )
            moves.append(Move(shard, busiest, least, why))
            self.shards[busiest].discard(shard)
            self._sum(busiest)
            self._place(shard, least)
        return moves

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
