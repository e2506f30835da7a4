"""What the controllers see of an epoch on Spark, put together from what its tasks reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.keys import SHARDS
from penstock.reports import EpochStats
from penstock.spark.spec import EpochSpec
from penstock.spark.waits import Waited

_WEIGHT = 0.5
"""How much the latest epoch counts for what a row of a shard costs."""
_SURE_ROWS = 200
"""From as many rows on, a shard's own cost counts for more than its operator's."""


@dataclass(frozen=True)
class Measured:
    """One epoch."""

    spec: EpochSpec
    stats: EpochStats
    backlog: int | None = None
    """Rows that wait in all sources; None where one of them does not know."""
    level_seconds: dict[int, float] = field(default_factory=dict)
    """From the end of one level to the end of the next: together they are the time of the job."""
    waits: dict[str, Waited] = field(default_factory=dict)
    hot_keys: dict[str, dict[int, list[tuple[str, float]]]] = field(default_factory=dict)
    shard_bytes: dict[str, dict[int, int]] = field(default_factory=dict)
    between: float = 0.0
    """Seconds that a source takes to give the next epoch, beside those of the epoch: a query of Spark's does."""

    @property
    def telling(self) -> bool:
        """Tell whether the epoch's times can be compared with others: it had rows, and was not run twice."""
        return self.stats.rows_in > 0 and self.stats.attempts == 1 and bool(self.stats.levels)

    @property
    def cpu_seconds(self) -> float:
        """Return the processor seconds of all tasks."""
        if self.spec.solo:  # one task, which reports itself once for each level
            return max((cpu for tasks in self.stats.levels.values() for _, cpu in tasks), default=0.0)
        return sum(cpu for tasks in self.stats.levels.values() for _, cpu in tasks)

    @property
    def wall_seconds(self) -> float:
        """Return the seconds of all tasks, waiting included."""
        if self.spec.solo:
            return max((wall for tasks in self.stats.levels.values() for wall, _ in tasks), default=0.0)
        return sum(wall for tasks in self.stats.levels.values() for wall, _ in tasks)


def level_seconds(timings: Iterable[dict[str, Any]], started: float, seconds: float) -> dict[int, float]:
    """Divide the time of a job that began at `started` among its levels, by when the last task of each was done.

    The clocks of a cluster differ a little: no level ends before the one above, or after the job.
    """
    ends: dict[int, float] = {}
    for timing in timings:
        ends[timing["level"]] = max(timing.get("ended", 0.0), ends.get(timing["level"], 0.0))
    found, before = {}, started
    for level in sorted(ends):
        end = min(max(ends[level], before), started + seconds)
        found[level], before = end - before, end
    return found


def add_waits(timings: Iterable[dict[str, Any]]) -> dict[str, Waited]:
    """Add up what the tasks measured of each operator that waits."""
    found: dict[str, Waited] = {}
    for timing in timings:
        for name, (rows, wall, flight, cpu) in timing.get("waits", {}).items():
            a, b, c, d = found.get(name, (0, 0.0, 0.0, 0.0))
            found[name] = (a + rows, b + wall, c + flight, d + cpu)
    return found


def join_hot_keys(timings: Iterable[dict[str, Any]]) -> dict[str, dict[int, list[tuple[str, float]]]]:
    """Gather the hottest keys of each operator's shards."""
    found: dict[str, dict[int, list[tuple[str, float]]]] = {}
    for timing in timings:
        for name, keys in timing.get("hot_keys", {}).items():
            found.setdefault(name, {}).update(keys)
    return found


class ShardLoads:
    """Estimate the load of each shard of an operator from epoch to epoch.

    Rows are counted exactly and change with the keys at once; what a row of a shard costs is noisy and changes slowly.
    So the load is the rows of the last epoch times a cost that is smoothed.
    """

    def __init__(self, shards: int = SHARDS) -> None:
        self._cost: dict[int, float] = {}
        self.loads: tuple[float, ...] = (0.0,) * shards

    def add(self, measured: dict[int, tuple[int, float]]) -> None:
        """Take in the rows and seconds of each shard in an epoch."""
        total = sum(rows for rows, _ in measured.values())
        if not total:
            return
        mean = sum(spent for _, spent in measured.values()) / total
        loads = [0.0] * len(self.loads)
        for shard, (rows, spent) in measured.items():
            sure = rows / (rows + _SURE_ROWS)
            cost = mean + (spent / rows - mean) * sure
            known = self._cost.get(shard, cost)
            self._cost[shard] = known + (cost - known) * _WEIGHT
            loads[shard] = rows * self._cost[shard]
        self.loads = tuple(loads)
