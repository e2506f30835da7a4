"""Drive the cluster by each of Elasticutor's four approaches, with the shipped controllers.

- *static*: one executor a core, keys hashed to them for ever;
- *resource-centric*: one executor a core, keys repartitioned over all of them, each time with the operator stopped:
  upstream executors stop, what is in flight drains, state moves, routing is updated, upstream executors go on;
- *executor-centric*: few executors with fixed keys, each with as many cores as it needs, and its own balance of shards
  over them; a shard that moves waits for about 2 ms, and for its state if that crosses nodes;
- *naive executor-centric*: the same, with cores assigned without regard for state and locality.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from penstock.elastic import (
    Action,
    AllocationStatistics,
    Assignment,
    AssignmentStatistics,
    CoreAllocation,
    Decision,
    ExecutorLoad,
    ExecutorPlace,
    NaiveAssignment,
    Pilot,
    ResourceCentric,
    ShardBalance,
    ShardStatistics,
)
from penstock.sim.cluster import Cluster, ClusterSettings
from penstock.sim.keys import KeySpace, ShardPopularity

BALANCE_SECONDS = 0.5
"""How often shards are balanced (Elasticutor, section 3.1)."""
SCHEDULE_SECONDS = 1.0
"""How often cores are allocated; the paper gives no period, its measurements are over one second."""


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
        """Place the shards."""
        _one_executor_a_core(cluster)


@dataclass
class ResourceCentricApproach(StaticApproach):
    """Repartition the operator's keys over its single-core executors."""

    name: str = "resource_centric"
    threshold: float = 1.2

    def start(self, cluster: Cluster) -> None:
        """Place the shards and look for imbalance at every balance period."""
        _one_executor_a_core(cluster)
        pilot, line = Pilot.begin("calculator/resource_centric", ResourceCentric(self.threshold))
        self._pilot: Pilot[Any, ShardStatistics] = pilot
        self.log.append(line)
        cluster.events.every(BALANCE_SECONDS, lambda: self._balance(cluster))

    def _balance(self, cluster: Cluster) -> None:
        if cluster.stopped or not cluster.measured:
            return
        loads = tuple(float(load) for load in cluster.loads())
        seen = ShardStatistics(loads, tuple(int(task) for task in cluster.task_of), len(cluster.tasks))
        self._pilot, actions, lines = self._pilot.step(seen, time=cluster.events.now)
        self.log += lines
        moves = [action for action in actions if action.what == "repartition"]
        if moves:
            cluster.stopped = True
            sync = cluster.settings.costs.global_sync(cluster.settings.upstream)
            cluster.events.after(sync, lambda _: self._migrate(cluster, moves))

    def _migrate(self, cluster: Cluster, moves: list[Action]) -> None:
        """Move the shards, all at once; the busiest link decides how long that takes."""
        load = [0.0] * cluster.settings.nodes
        for action in moves:
            shard, target = int(action.target), int(action.after or 0)
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


@dataclass
class ExecutorCentricApproach:
    """Give elastic executors cores, and let each balance its own shards."""

    name: str = "executor_centric"
    executors: int = 32
    naive: bool = False
    target: float = 0.01
    threshold: float = 1.2
    log: list[Decision] = field(default_factory=list)

    def homes(self, settings: ClusterSettings) -> list[int]:
        """Return the executors' nodes, round the cluster."""
        return [executor % settings.nodes for executor in range(self.executors)]

    def start(self, cluster: Cluster) -> None:
        """Share the cores out evenly, place the shards, and schedule both levels of control."""
        settings = cluster.settings
        shards = len(cluster.task_of)
        self._executor_of = np.arange(shards) % self.executors
        self._tasks: list[list[int]] = [[] for _ in range(self.executors)]
        for core in range(settings.cores):
            node = core % settings.nodes
            self._tasks[core % self.executors].append(cluster.start_task(core % self.executors, node))
        for executor, tasks in enumerate(self._tasks):
            own = np.flatnonzero(self._executor_of == executor)
            cluster.task_of[own] = np.array(tasks)[np.arange(len(own)) % len(tasks)]
        self._moving: list[deque[tuple[int, int]]] = [deque() for _ in range(self.executors)]
        self._leaving: list[set[int]] = [set() for _ in range(self.executors)]
        self._starting: list[deque[int]] = [deque() for _ in range(settings.nodes)]
        self._begin_pilots()
        cluster.events.every(BALANCE_SECONDS, lambda: self._balance(cluster))
        cluster.events.every(SCHEDULE_SECONDS, lambda: self._schedule(cluster))

    def _begin_pilots(self) -> None:
        self._balancers: list[Pilot[Any, ShardStatistics]] = []
        for executor in range(self.executors):
            balancer, line = Pilot.begin(f"calculator/{executor}/shard_balance", ShardBalance(self.threshold))
            self._balancers.append(balancer)
            self.log.append(line)
        self._allocator, line = Pilot.begin("calculator/core_allocation", CoreAllocation(self.target))
        self.log.append(line)
        assigning: Any = NaiveAssignment() if self.naive else Assignment()
        self._assigner: Pilot[Any, AssignmentStatistics]
        self._assigner, line = Pilot.begin(f"calculator/{assigning.name}", assigning)
        self.log.append(line)

    def _balance(self, cluster: Cluster) -> None:
        if not cluster.measured:
            return
        loads = cluster.loads()
        for executor in range(self.executors):
            self._balance_one(cluster, executor, loads)

    def _balance_one(self, cluster: Cluster, executor: int, loads: Any) -> None:
        if self._moving[executor]:
            return
        own = np.flatnonzero(self._executor_of == executor)
        leaving = self._leaving[executor]
        staying = [task for task in self._tasks[executor] if task not in leaving]
        # Tasks that leave have the highest numbers: for the balance they are gone already.
        number = {task: i for i, task in enumerate([*staying, *sorted(leaving)])}
        seen = ShardStatistics(
            tuple(float(load) for load in loads[own]),
            tuple(number[int(task)] for task in cluster.task_of[own]),
            len(staying),
        )
        self._balancers[executor], actions, lines = self._balancers[executor].step(seen, time=cluster.events.now)
        self.log += lines
        moves = [(int(own[int(a.target)]), staying[int(a.after or 0)]) for a in actions if a.what == "shard"]
        if moves:
            self._moving[executor] = deque(moves)
            self._reassign_next(cluster, executor)
        else:
            self._finish_leaving(cluster, executor)

    def _reassign_next(self, cluster: Cluster, executor: int) -> None:
        """Reassign one shard of an executor: hold its tuples back, let the label through, move the state."""
        if not self._moving[executor]:
            self._finish_leaving(cluster, executor)
            return
        shard, target = self._moving[executor][0]
        cluster.paused[shard] = True
        costs = cluster.settings.costs
        crosses = cluster.tasks[int(cluster.task_of[shard])].node != cluster.tasks[target].node
        seconds = costs.local_sync + (cluster.settings.shard_bytes / costs.bandwidth if crosses else 0.0)

        def done(_: Any) -> None:
            cluster.move(shard, target)
            cluster.paused[shard] = False
            self._moving[executor].popleft()
            self._reassign_next(cluster, executor)

        cluster.events.after(seconds, done)

    def _finish_leaving(self, cluster: Cluster, executor: int) -> None:
        for task in list(self._leaving[executor]):
            if not (cluster.task_of == task).any():
                cluster.stop_task(task)
                self._tasks[executor].remove(task)
                self._leaving[executor].discard(task)
        self._start_tasks(cluster)

    def _start_tasks(self, cluster: Cluster) -> None:
        """Start tasks on the nodes that have a free core; one that is being given up is not free yet."""
        used = np.bincount([task.node for task in cluster.tasks.values()], minlength=cluster.settings.nodes)
        for node, executors in enumerate(self._starting):
            while executors and used[node] < cluster.settings.cores_per_node:
                executor = executors.popleft()
                self._tasks[executor].append(cluster.start_task(executor, node))
                used[node] += 1

    def _schedule(self, cluster: Cluster) -> None:
        """Allocate cores by the queueing model, then choose which cores, then start and end tasks."""
        if any(self._leaving) or any(self._starting) or not cluster.measured:
            return
        arrivals = np.bincount(self._executor_of, weights=cluster.demand(), minlength=self.executors)
        service = 1 / cluster.settings.seconds_per_tuple
        loads = tuple(
            ExecutorLoad(str(j), float(arrivals[j]), service, len(self._tasks[j])) for j in range(self.executors)
        )
        seen = AllocationStatistics(float(arrivals.sum()), loads, cluster.settings.cores)
        self._allocator, actions, lines = self._allocator.step(seen, time=cluster.events.now)
        self.log += lines
        wanted = [len(tasks) for tasks in self._tasks]
        for action in actions:
            if action.what == "cores":
                wanted[int(action.target)] = max(1, int(action.after or 0))
        if wanted != [len(tasks) for tasks in self._tasks]:
            self._assign(cluster, wanted, arrivals)

    def _assign(self, cluster: Cluster, wanted: list[int], arrivals: Any) -> None:
        settings = cluster.settings
        held = np.zeros((self.executors, settings.nodes), dtype=np.int64)
        for executor, tasks in enumerate(self._tasks):
            for task in tasks:
                held[executor, cluster.tasks[task].node] += 1
        state = settings.shard_bytes * len(cluster.task_of) / self.executors
        places = tuple(
            ExecutorPlace(
                str(j),
                cluster.homes[j],
                wanted[j],
                state,
                float(arrivals[j]) * settings.tuple_bytes * 2,
                tuple(int(cores) for cores in held[j]),
            )
            for j in range(self.executors)
        )
        seen = AssignmentStatistics(places, (settings.cores_per_node,) * settings.nodes)
        self._assigner, actions, lines = self._assigner.step(seen, time=cluster.events.now)
        self.log += lines
        for action in actions:
            if action.what != "node_cores":
                continue
            executor, node = (int(part) for part in action.target.split("@"))
            self._set_cores(cluster, executor, node, int(action.after or 0) - int(action.before or 0))
        self._start_tasks(cluster)
        loads = cluster.loads()
        for executor in range(self.executors):
            self._balance_one(cluster, executor, loads)

    def _set_cores(self, cluster: Cluster, executor: int, node: int, change: int) -> None:
        """Have tasks start on a node once it has room, or some leave once their shards are reassigned."""
        self._starting[node].extend([executor] * change)
        here = [task for task in self._tasks[executor] if cluster.tasks[task].node == node]
        self._leaving[executor] |= set(here[: max(0, -change)])


@dataclass(frozen=True, slots=True)
class Outcome:
    """Report one run."""

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
