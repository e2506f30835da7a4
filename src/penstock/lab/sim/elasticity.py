"""Drive the cluster by each of Elasticutor's four approaches, with the shipped controllers.

- *static*: one executor a core, keys hashed to them for ever;
- *resource-centric*: one executor a core, keys repartitioned over all of them, each time with the operator
  stopped: upstream executors stop, what is in flight drains, state moves, routing is updated, upstream
  executors go on;
- *executor-centric*: few executors with fixed keys, each with as many cores as it needs, and its own balance
  of shards over them; a shard that moves waits for about 2 ms, and for its state if that crosses nodes;
- *naive executor-centric*: the same, with cores assigned without regard for state and locality.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from penstock.elastic.decisions import Decision, Recorded
from penstock.elastic.shard_balance import ShardStatistics, moves
from penstock.lab.baselines import ResourceCentric
from penstock.lab.sim.cluster import Cluster, ClusterSettings
from penstock.lab.sim.executor_centric import BALANCE_SECONDS
from penstock.lab.sim.keys import KeySpace, ShardPopularity


class Approach(Protocol):
    """Place the shards at the start, and steer the cluster from then on."""

    name: str
    log: list[Decision]

    def homes(self, settings: ClusterSettings) -> list[int]:
        """Return the node of each executor."""
        ...

    def start(self, cluster: Cluster) -> None:
        """Start the tasks, give them shards, and schedule the controllers."""
        ...


def _one_executor_a_core(cluster: Cluster) -> None:
    for executor, node in enumerate(cluster.homes):
        cluster.start_task(executor, node)
    cluster.task_of[:] = np.arange(len(cluster.task_of)) % len(cluster.homes)


@dataclass
class StaticApproach:
    """Leave everything as it was placed."""

    name: str = "static"
    log: list[Decision] = field(default_factory=list)

    def homes(self, settings: ClusterSettings) -> list[int]:
        """Return one executor for each core, round the nodes."""
        return [core % settings.nodes for core in range(settings.cores)]

    def start(self, cluster: Cluster) -> None:
        _one_executor_a_core(cluster)


@dataclass
class ResourceCentricApproach(StaticApproach):
    """Repartition the operator's keys over its single-core executors."""

    name: str = "resource_centric"
    threshold: float = 1.2

    def start(self, cluster: Cluster) -> None:
        """Place the shards and look for imbalance at every balance period."""
        _one_executor_a_core(cluster)
        pilot, line = Recorded.begin("calculator/resource_centric", ResourceCentric(self.threshold))
        self._pilot: Recorded[Any, ShardStatistics] = pilot
        self.log.append(line)
        cluster.events.every(BALANCE_SECONDS, lambda: self._balance(cluster))

    def _balance(self, cluster: Cluster) -> None:
        if cluster.stopped or not cluster.measured:
            return
        loads = tuple(float(load) for load in cluster.loads())
        seen = ShardStatistics(loads, tuple(int(task) for task in cluster.task_of), len(cluster.tasks))
        self._pilot, actions, lines = self._pilot.step(seen, time=cluster.events.now)
        self.log += lines
        tables = [table.tasks for action in actions for table in action.tables]
        moving = [move for table in tables for move in moves(seen.table, table)]
        if moving:
            cluster.stopped = True
            sync = cluster.settings.costs.global_sync(cluster.settings.upstream)
            cluster.events.after(sync, lambda _: self._migrate(cluster, moving))

    def _migrate(self, cluster: Cluster, moving: list[tuple[int, int]]) -> None:
        """Move the shards, all at once; the busiest link decides how long that takes."""
        load = [0.0] * cluster.settings.nodes
        for shard, target in moving:
            nodes = cluster.tasks[int(cluster.task_of[shard])].node, cluster.tasks[target].node
            moved = cluster.move(shard, target)
            for node in nodes:
                load[node] += moved
        seconds = max(load) / cluster.settings.costs.bandwidth
        cluster.events.after(seconds, lambda _: self._resume(cluster))

    def _resume(self, cluster: Cluster) -> None:
        cluster.stopped = False
        # What was processed while the operator stopped says little about the load.
        cluster.window.clear()


@dataclass(frozen=True, slots=True)
class Outcome:
    approach: str
    shuffles_per_minute: float
    throughput: float
    mean_latency: float
    state_moved_rate: float
    remote_rate: float
    decisions: int
    series: tuple[tuple[float, float], ...]


def run_approach(
    approach: Approach,
    *,
    shuffles_per_minute: float,
    seconds: float,
    warmup: float,
    seed: int,
    settings: ClusterSettings | None = None,
    space: KeySpace | None = None,
) -> tuple[Outcome, Cluster]:
    """Run one approach and measure it after its warm-up; the same seed gives the same keys and shuffles."""
    used = settings or ClusterSettings()
    popularity = ShardPopularity(space or KeySpace(), seed)
    cluster = Cluster(used, popularity, approach.homes(used), seed + 1)
    approach.start(cluster)
    shuffle: Callable[[], None] = popularity.shuffle
    if shuffles_per_minute > 0:
        cluster.events.every(60 / shuffles_per_minute, shuffle)
    cluster.run(warmup)
    before = cluster.processed, cluster.arrived, cluster.waited, cluster.state_moved, cluster.remote_bytes
    cluster.run(seconds)
    processed, arrived, waited, moved, remote = (
        after - old
        for after, old in zip(
            (cluster.processed, cluster.arrived, cluster.waited, cluster.state_moved, cluster.remote_bytes),
            before,
            strict=True,
        )
    )
    latency = waited / arrived + used.seconds_per_tuple if arrived else float("inf")
    decisions = sum(line.what not in ("start", "hold") for line in approach.log)
    series = tuple((when, rate) for when, rate in cluster.series if when > warmup)
    outcome = Outcome(
        approach.name,
        shuffles_per_minute,
        processed / seconds,
        latency,
        moved / seconds,
        remote / seconds,
        decisions,
        series,
    )
    return outcome, cluster
