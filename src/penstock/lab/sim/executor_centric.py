"""Steer the cluster by elastic executors, at two levels, with the shipped controllers.

Every second cores are allocated to executors by the queueing model, and the assignment says which cores;
every half a second each executor balances its shards over the cores that it has. A shard that moves waits for
about 2 ms, and for its state if that crosses nodes; nothing else waits for it.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation, ExecutorLoad
from penstock.elastic.decisions import Decision, Recorded
from penstock.elastic.shard_balance import ShardBalance, ShardStatistics, moves
from penstock.lab.assignment import Assignment, AssignmentStatistics, ExecutorPlace
from penstock.lab.baselines import NaiveAssignment
from penstock.lab.sim.cluster import Cluster, ClusterSettings
from penstock.lab.sim.keys import Vector, sum_by

BALANCE_SECONDS = 0.5
"""How often shards are balanced (Elasticutor, section 3.1)."""
SCHEDULE_SECONDS = 1.0
"""How often cores are allocated; the paper gives no period, its measurements are over one second."""


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
        self._balancers: list[Recorded[Any, ShardStatistics]] = []
        for executor in range(self.executors):
            balancer, line = Recorded.begin(f"calculator/{executor}/shard_balance", ShardBalance(self.threshold))
            self._balancers.append(balancer)
            self.log.append(line)
        self._allocator, line = Recorded.begin("calculator/core_allocation", CoreAllocation(self.target))
        self.log.append(line)
        assigning: Any = NaiveAssignment() if self.naive else Assignment()
        self._assigner: Recorded[Any, AssignmentStatistics]
        self._assigner, line = Recorded.begin(f"calculator/{assigning.name}", assigning)
        self.log.append(line)

    def _balance(self, cluster: Cluster) -> None:
        if not cluster.measured:
            return
        loads = cluster.loads()
        for executor in range(self.executors):
            self._balance_one(cluster, executor, loads)

    def _balance_one(self, cluster: Cluster, executor: int, loads: Vector) -> None:
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
        tables = [table.tasks for action in actions for table in action.tables]
        moving = [(int(own[shard]), staying[task]) for table in tables for shard, task in moves(seen.table, table)]
        if moving:
            self._moving[executor] = deque(moving)
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
        arrivals = sum_by(self._executor_of, cluster.demand(), self.executors)
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

    def _assign(self, cluster: Cluster, wanted: list[int], arrivals: Vector) -> None:
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
