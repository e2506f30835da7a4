"""Read a simulated PE once a period, as the statistics that the controllers take.

The simulator itself measures without error. Real measurements do not: a reading's throughput is multiplied by
noise of a given size, from a seeded source.
"""

import math
import random

from penstock.elastic.batch_size import BatchStatistics
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad
from penstock.elastic.replicas import OperatorStatistics, ReplicaStatistics
from penstock.elastic.thread_level import ThreadStatistics
from penstock.elastic.utilization_pool import PoolStatistics
from penstock.elastic.waiting import WaitingStatistics
from penstock.lab.sim.graphs import Operator
from penstock.lab.sim.pe import PE
from penstock.statistics import OperatorStats


class Meter:
    """Measure a PE over one period after another."""

    def __init__(self, pe: PE, noise: float = 0.0, seed: int = 0) -> None:
        """Begin the first period now; `noise` is the standard deviation of a measured throughput."""
        self.pe = pe
        self._noise = noise
        self._random = random.Random(seed)
        self._now = self.done = pe.statistics()
        """What was done in the last period."""
        self._factor = 1.0

    def read(self) -> None:
        """End a period and begin the next."""
        before, self._now = self._now, self.pe.statistics()
        self.done = self._now.since(before)
        self._factor = math.exp(self._noise * self._random.gauss(0, 1)) if self._noise else 1.0

    @property
    def throughput(self) -> float:
        """Return the tuples a second of all operators together."""
        return self._factor * self.done.rate

    def threads(self) -> ThreadStatistics:
        """Return what the thread level needs: throughput, and how busy the machine is."""
        return ThreadStatistics(self.throughput, min(1.0, self._busy / (self.done.seconds * self.pe.machine.cores)))

    @property
    def _busy(self) -> float:
        return sum(worker.busy_seconds for worker in self.done.workers)

    def pool(self) -> PoolStatistics:
        """Return the utilization of each worker that may work."""
        working = [worker.busy_seconds for worker in self.done.workers if worker.state != "suspended"]
        return PoolStatistics(tuple(min(1.0, seconds / self.done.seconds) for seconds in working))

    def replicas(self) -> ReplicaStatistics:
        """Return congestion and throughput of every operator but sources; permits stand for replicas."""
        period, found = self.done.seconds, []
        for done, operator in self._operators():
            permits = done.permits or 1
            below = max((self.done.operators[str(to)].full[0] / period for to in operator.outputs), default=0.0)
            found.append(
                OperatorStatistics(
                    done.name,
                    (min(1.0, done.full[0] / period),) * permits,
                    min(1.0, below),
                    self._throughput(done),
                    min(1.0, done.wall / (period * permits)),
                    done.kind,
                )
            )
        return ReplicaStatistics(tuple(found), self.pool().mean > 0.95 and self.pe.level < self.pe.machine.cores)

    def waiting(self, operator: int) -> WaitingStatistics:
        """Return waiting against computing of one operator."""
        own = self.pe.operators[operator]
        return WaitingStatistics(self._throughput(self.done.operators[str(operator)]), own.wait, own.cost)

    def batches(self) -> BatchStatistics:
        """Return what a batch took of all workers, what the sources could send and what waits in the queues."""
        made, rows = self.done.batches_in, self.done.rows_in
        waiting = sum(each.rows_queued for each in self.done.operators.values())
        if not made:
            return BatchStatistics(0.0, 0.0, 0.0, waiting, self.pe.rows)
        work = self._busy / self.pe.level / made
        return BatchStatistics(rows / made, work, rows / self.done.seconds, waiting, self.pe.rows)

    def binding(self) -> BindingStatistics:
        """Return the load of every operator but sources, which run on threads of their own."""
        assert self.pe.binding is not None
        loads = []
        for done, operator in self._operators():
            seconds = done.wall / done.rows_in if done.rows_in else operator.cost
            bound = self.pe.binding[int(done.name)]
            loads.append(OperatorLoad(done.name, bound, round(done.rows_queued), seconds, round(done.came)))
        return BindingStatistics(self.pe.level, tuple(loads))

    def _operators(self) -> list[tuple[OperatorStats, Operator]]:
        """Return what each operator did that is no source."""
        pairs = zip(self.done.operators.values(), self.pe.operators, strict=True)
        return [(done, operator) for done, operator in pairs if not operator.source]

    def _throughput(self, done: OperatorStats) -> float:
        return self._factor * done.rows_in / self.done.seconds
