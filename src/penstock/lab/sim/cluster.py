"""Simulate one keyed operator on a cluster: nodes and their links, tasks, shards with state.

A task is one core at work for an executor. The input comes in batches, one event each: so many tuples for
every shard. A task serves its shards' queues; while a shard is being reassigned its tuples wait. The queue of
a task is bounded, and the source sends no faster than the fullest one allows, which is how back-pressure
makes one hot task slow down everything. What it may not send waits with it, and that time counts; but for a
source that offers more than the cluster can do, which makes a tuple when there is room for one. A task away
from its executor's home node gets its tuples through the home node's link, which also carries the state that
moves.

What a reassignment costs is an input, from the paper's figures 11 and 12.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.lab.sim.events import Events
from penstock.lab.sim.keys import Indices, ShardPopularity, Vector
from penstock.lab.sim.keys import sum_by as _sum_by


@dataclass(frozen=True, slots=True)
class ReassignmentCosts:
    """Hold what it takes to reassign a shard, in seconds."""

    local_sync: float = 0.002
    """Within an executor: about 2 ms however many executors are upstream (Elasticutor, figure 12a)."""
    global_sync_factor: tuple[float, float] = (100.0, 1000.0)
    """Across executors: two to three orders of magnitude more (figure 12a), growing with those upstream."""
    upstream_range: tuple[int, int] = (1, 256)
    """The upstream executors at which these hold; the text gives none, so one and the cluster's cores."""
    bandwidth: float = 125e6
    """Bytes per second of a node's link: 1 Gbps (section 5). Within a node state is shared and stays."""

    def global_sync(self, upstream: int) -> float:
        """Return the time to stop, drain and restart so many upstream executors: linear between the ends."""
        low, high = self.upstream_range
        part = min(1.0, max(0.0, (upstream - low) / (high - low)))
        smallest, largest = self.global_sync_factor
        return self.local_sync * (smallest + part * (largest - smallest))


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Hold the size of a cluster and of what it processes: Elasticutor's defaults (section 5)."""

    nodes: int = 32
    cores_per_node: int = 8
    seconds_per_tuple: float = 0.001
    tuple_bytes: int = 128
    shard_bytes: int = 32 * 1024
    rate: float = 300_000.0
    """Tuples per second offered; more than 256 cores can take at 1 ms each, so the queues are never empty."""
    batch_seconds: float = 0.05
    queue_tuples: float = 128.0
    """Tuples that may wait for one task before the source is held back."""
    upstream: int = 256
    """Executors that feed the operator: where an executor is one core, enough of them to use all cores."""
    costs: ReassignmentCosts = ReassignmentCosts()

    @property
    def cores(self) -> int:
        return self.nodes * self.cores_per_node

    @property
    def saturated(self) -> bool:
        """Say whether more is offered than all cores can do: then the source sends whatever there is room for."""
        return self.rate * self.seconds_per_tuple >= self.cores


@dataclass(slots=True)
class Task:
    """Place one core's worth of work: whose it is and where it runs."""

    executor: int
    node: int


class Cluster:
    """Hold the shards, the tasks that serve them, and what was measured."""

    def __init__(self, settings: ClusterSettings, popularity: ShardPopularity, homes: list[int], seed: int) -> None:
        """Set up without tasks; the approach that drives the cluster starts them. `homes` is each executor's node."""
        self.settings, self.popularity, self.homes = settings, popularity, homes
        self.events = Events()
        self._random = np.random.default_rng(seed)
        shards = len(popularity.shares)
        self.tasks: dict[int, Task] = {}
        self._next_task = 0
        self.task_of = np.zeros(shards, dtype=np.int64)
        self.queued = np.zeros(shards)
        self._held_back = np.zeros(shards)
        self.paused = np.zeros(shards, dtype=bool)
        self.stopped = False
        # Measured: tuples offered and tuples processed, by shard, for each batch of the last second.
        self.window: deque[tuple[Vector, Vector]] = deque(maxlen=max(1, round(1 / settings.batch_seconds)))
        self.processed = 0.0
        self.arrived = 0.0
        self.waited = 0.0
        self.state_moved = 0.0
        self.remote_bytes = 0.0
        self.series: list[tuple[float, float]] = []
        self._migrating: list[float] = [0.0] * settings.nodes
        self.events.every(settings.batch_seconds, self._batch)

    def start_task(self, executor: int, node: int) -> int:
        """Start a task of an executor on a node and return its number."""
        self.tasks[self._next_task] = Task(executor, node)
        self._next_task += 1
        return self._next_task - 1

    def stop_task(self, task: int) -> None:
        """Remove a task; its shards must have been reassigned."""
        if (self.task_of == task).any():
            raise ValueError(f"task {task} still has shards")
        del self.tasks[task]

    def move(self, shard: int, task: int) -> float:
        """Give a shard to another task at once and return the bytes that crossed a link."""
        source, target = self.tasks[int(self.task_of[shard])], self.tasks[task]
        self.task_of[shard] = task
        if source.node == target.node:
            return 0.0
        size = float(self.settings.shard_bytes)
        self.state_moved += size
        self._migrating[source.node] += size
        self._migrating[target.node] += size
        return size

    def loads(self) -> Vector:
        """Return the seconds of computing that each shard's tuples caused within the last second."""
        if not self.window:
            return np.zeros(len(self.queued))
        done = np.sum([processed for _, processed in self.window], axis=0)
        return np.asarray(done * self.settings.seconds_per_tuple)

    def demand(self) -> Vector:
        """Return the tuples per second offered for each shard within the last second.

        Back-pressure hides the load that it keeps out, but the source knows what it was kept from sending.
        """
        if not self.window:
            return np.zeros(len(self.queued))
        seconds = len(self.window) * self.settings.batch_seconds
        return np.asarray(np.sum([offered for offered, _ in self.window], axis=0) / seconds)

    @property
    def measured(self) -> bool:
        """Say whether the last second was one whole second of work, so that loads can be compared."""
        return len(self.window) == self.window.maxlen

    def run(self, seconds: float) -> None:
        self.events.run(self.events.now + seconds)

    def _batch(self) -> None:
        """Take in one batch and let every task work for as long as it lasts."""
        settings = self.settings
        offered = settings.rate * settings.batch_seconds * self.popularity.shares
        offered = self._random.poisson(offered).astype(np.float64)
        size = self._next_task
        queued = _sum_by(self.task_of, self.queued, size)
        sent = offered + self._held_back
        taken = sent * self._admitted(queued, _sum_by(self.task_of, sent, size))
        if not settings.saturated:
            self._held_back = sent - taken
            self.waited += float(self._held_back.sum()) * settings.batch_seconds
        # Half of a batch, on average, is ahead of a tuple that comes with it.
        ahead = queued[self.task_of] + _sum_by(self.task_of, taken, size)[self.task_of] / 2
        self.waited += float((taken * ahead).sum()) * settings.seconds_per_tuple
        self.arrived += float(taken.sum())
        self.queued += taken
        served = self._serve(size)
        self.queued -= served
        self.processed += float(served.sum())
        self.window.append((offered, served))
        self.series.append((self.events.now, float(served.sum()) / settings.batch_seconds))

    def _admitted(self, queued: Vector, coming: Vector) -> float:
        """Return the part of a batch that the fullest queue has room for by the time that it comes."""
        if self.stopped:
            return 0.0
        work = self.settings.batch_seconds / self.settings.seconds_per_tuple
        room = np.maximum(0.0, self.settings.queue_tuples + work - queued)
        some = coming > 0
        return float(min(1.0, (room[some] / coming[some]).min())) if some.any() else 1.0

    def _serve(self, size: int) -> Vector:
        """Return the tuples of each shard that its task gets through, and account for the links."""
        settings = self.settings
        ready = np.where(self.paused, 0.0, self.queued)
        waiting = _sum_by(self.task_of, ready, size)
        able = np.zeros(size)
        home = np.full(size, -1, dtype=np.int64)
        for number, task in self.tasks.items():
            able[number] = settings.batch_seconds / settings.seconds_per_tuple
            if task.node != self.homes[task.executor]:
                home[number] = self.homes[task.executor]
        remote = home >= 0
        wanted = np.minimum(waiting, able)
        if remote.any() or any(self._migrating):
            wanted = self._limit_by_links(wanted, remote, home)
        part = np.divide(wanted, waiting, out=np.zeros(size), where=waiting > 0)
        return np.asarray(ready * part[self.task_of])

    def _limit_by_links(self, wanted: Vector, remote: npt.NDArray[np.bool_], home: Indices) -> Vector:
        """Let state go first on each node's link, and share what is left among the remote tasks it feeds."""
        settings = self.settings
        capacity = settings.costs.bandwidth * settings.batch_seconds
        state = np.minimum(self._migrating, capacity)
        self._migrating = list(np.asarray(self._migrating) - state)
        # A tuple goes out to the remote task, and its result comes back through the same link.
        bytes_each = wanted * settings.tuple_bytes * 2
        demand = _sum_by(home[remote], bytes_each[remote], settings.nodes)
        share = np.minimum(1.0, np.divide(capacity - state, demand, out=np.ones(settings.nodes), where=demand > 0))
        limited = wanted.copy()
        limited[remote] *= share[home[remote]]
        self.remote_bytes += float((limited[remote] * settings.tuple_bytes * 2).sum())
        return limited
