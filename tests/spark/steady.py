"""A made-up machine that runs epochs back to back, of rows that come at a given rate, steered by the pilot of Spark.

An epoch takes a fixed time, a time for each task, and its work shared out over the tasks; one task alone needs no
shuffles. All of it is noisy, and now and then an epoch takes several times as long, as where a collector runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from penstock.elastic.decisions import HOLD, START, Decision
from penstock.plan.plan import make_plan
from penstock.rows.keys import SHARDS
from penstock.spark.pilot import EpochPilot, UserLimits
from penstock.spark.stages import Stages
from penstock.statistics import FlowStats, OperatorStats

from .piloting import scanned

NOT_CHANGES = (START, HOLD, "hot_shard", "latency_target", "advise_executors")
"""What is logged and changes nothing."""


@dataclass(frozen=True)
class Costs:
    """Seconds of a made-up machine."""

    fixed: float = 0.08
    per_task: float = 0.02
    shuffle: float = 0.025
    per_row: float = 5e-6


@dataclass
class Steady:
    """Run epochs of the rows that came since the last one."""

    rate: Callable[[float], float]
    """Rows that come in a second, at a time."""
    costs: Costs = field(default_factory=Costs)
    noise: float = 0.2
    """The standard deviation of an epoch's time, as a part of it."""
    hiccups: float = 0.002
    """The part of the epochs that take ten times as long."""
    cores: int = 2
    seed: int = 0
    limits: UserLimits = field(default_factory=UserLimits)
    skew: float = 0.5

    def __post_init__(self) -> None:
        self.stages = Stages(make_plan(scanned()))
        self.chance = random.Random(self.seed)
        self.pilot = EpochPilot(self.stages, self.limits, cores=self.cores, executors=None, tables={}, epoch=0)
        self.at, self.epoch, self.waiting = 0.0, 0, 0.0
        self.tasks: list[tuple[float, int]] = []
        """When each epoch began, and how many tasks it had; 0 is one task without shuffles."""
        self.seconds: list[float] = []
        weights = [1 / (rank + 1) ** self.skew for rank in range(SHARDS)]
        self.chance.shuffle(weights)
        self.weights = np.array(weights) / sum(weights)
        self.log: dict[int, Decision] = {}
        self._known = 0

    def run(self, until: float) -> Steady:
        """Run epochs until that time."""
        while self.at < until:
            self._epoch()
        return self

    def changes(self, since: float = 0.0) -> list[tuple[float, Decision]]:
        """Return what was changed after a time, with the time."""
        began = [at for at, _ in self.tasks]
        found = [(began[(line.epoch or 1) - 1], line) for line in self.log.values() if line.what not in NOT_CHANGES]
        return [(at, line) for at, line in found if at >= since]

    def _noisy(self) -> float:
        return max(0.3, self.chance.gauss(1, self.noise)) * (10 if self.chance.random() < self.hiccups else 1)

    def _epoch(self) -> None:
        rows = max(1, min(int(self.waiting), self.pilot.epoch_rows))
        self.waiting = left = max(0.0, self.waiting - rows)
        setup = self.pilot.choose(self.limits, rows, self.cores, self.epoch + 1, at=self.at)
        self.epoch += 1
        self.tasks.append((self.at, 0 if setup.solo else setup.tasks[1]))
        slow = self._noisy()
        shares = np.round(self.weights * rows).astype(int)
        noise = np.array([self.chance.gauss(1, self.noise) for _ in range(8)]).clip(0.3)
        spent = shares * self.costs.per_row * np.resize(noise, SHARDS) * slow
        loads = {shard: (int(shares[shard]), float(spent[shard])) for shard in np.flatnonzero(shares)}
        tasks = setup.tasks[1]
        table = np.array(setup.tables.get("counted", [0] * SHARDS))
        sums = [float(spent[table == task].sum()) for task in range(tasks)]
        busy = max(*sums, sum(sums) / self.cores) if tasks > 1 else sums[0]
        costs = self.costs
        if setup.solo:
            stage = {0: 0.0, 1: slow * costs.fixed + busy, 2: 0.0}
        else:
            shuffles = (costs.fixed + costs.shuffle + costs.per_task * (tasks - 1)) * slow
            stage = {0: 0.3 * shuffles, 1: 0.4 * shuffles + busy, 2: 0.3 * shuffles}
        seconds = sum(stage.values())
        operators = {
            name: OperatorStats(1, rows, rows, name=name, shards=loads if name == "counted" else {})
            for name in self.stages.plan.nodes
        }
        before, self.at = self.at, self.at + max(seconds, self.pilot.every)
        self.waiting += self.rate(before) * (self.at - before)
        self.seconds.append(seconds)
        stats = FlowStats(
            before + seconds,
            seconds,
            rows,
            operators=operators,
            backlog=int(left),
            knows_backlog=True,
            computed=sum(sums),
            tasks=max(setup.tasks),
            job_seconds=seconds,
            attempts=1,
            epoch=self.epoch,
            solo=setup.solo,
            stage_tasks=setup.tasks,
            stage_times={0: [(1e-3, 1e-3)], 1: [(each, each) for each in sums], 2: [(1e-3, 1e-3)]},
            stage_seconds=stage,
        )
        self.pilot.observe(stats)
        lines, self._known = self.pilot.journal.decisions_since(self._known)
        self.log.update(enumerate(lines, len(self.log)))
