"""Read a simulated PE once a period, as the statistics that the controllers take.

The simulator itself measures without error. Real measurements do not: a reading's throughput is multiplied by
noise of a given size, from a seeded source.
"""

import math
import random
from dataclasses import dataclass

from penstock.elastic import (
    BatchStatistics,
    BindingStatistics,
    OperatorLoad,
    OperatorStatistics,
    PoolStatistics,
    ReplicaStatistics,
    ThreadStatistics,
    WaitingStatistics,
)
from penstock.sim.graphs import Operator
from penstock.sim.pe import PE


@dataclass(frozen=True, slots=True)
class _Counters:
    """Keep what a PE had counted when it was last read."""

    now: float
    processed: tuple[float, ...]
    arrived: tuple[float, ...]
    seconds: tuple[float, ...]
    full: tuple[float, ...]
    busy: tuple[float, ...]
    level: int
    made: int
    made_rows: float


def _count(pe: PE) -> _Counters:
    full = tuple(pe.ports.full_seconds(operator) for operator in range(len(pe.operators)))
    return _Counters(
        pe.events.now,
        tuple(pe.processed),
        tuple(pe.ports.arrived),
        tuple(pe.seconds),
        full,
        tuple(pe.worker_busy),
        pe.level,
        pe.made,
        pe.made_rows,
    )


class Meter:
    """Measure a PE over one period after another."""

    def __init__(self, pe: PE, noise: float = 0.0, seed: int = 0) -> None:
        """Begin the first period now; `noise` is the standard deviation of a measured throughput."""
        self.pe = pe
        self._noise = noise
        self._random = random.Random(seed)
        self._before = self._after = _count(pe)
        self._factor = 1.0

    def read(self) -> None:
        """End a period and begin the next."""
        self._before, self._after = self._after, _count(self.pe)
        self._factor = math.exp(self._noise * self._random.gauss(0, 1)) if self._noise else 1.0

    @property
    def period(self) -> float:
        """Return the length of the last period."""
        return self._after.now - self._before.now

    @property
    def throughput(self) -> float:
        """Return the tuples a second of all operators together."""
        return self._factor * (sum(self._after.processed) - sum(self._before.processed)) / self.period

    def operator_throughput(self, operator: int) -> float:
        """Return the tuples a second of one operator."""
        return self._factor * self._difference("processed", operator) / self.period

    def threads(self) -> ThreadStatistics:
        """Return what the thread level needs: throughput, and how busy the machine is."""
        busy = sum(self._after.busy) - sum(self._before.busy)
        return ThreadStatistics(self.throughput, min(1.0, busy / (self.period * self.pe.machine.cores)))

    def pool(self) -> PoolStatistics:
        """Return the utilization of each worker that may work."""
        known = len(self._before.busy)
        busy = (
            self._after.busy[worker] - (self._before.busy[worker] if worker < known else 0.0)
            for worker in range(self._after.level)
        )
        return PoolStatistics(tuple(min(1.0, seconds / self.period) for seconds in busy))

    def replicas(self) -> ReplicaStatistics:
        """Return congestion and throughput of every operator but sources; permits stand for replicas."""
        found = []
        for number, operator in enumerate(self.pe.operators):
            if operator.source:
                continue
            permits = self.pe.permits[number] or 1
            blocked = min(1.0, self._difference("full", number) / self.period)
            below = max((self._difference("full", to) / self.period for to in operator.outputs), default=0.0)
            busy = self._difference("seconds", number) / (self.period * permits)
            found.append(
                OperatorStatistics(
                    str(number),
                    (blocked,) * permits,
                    min(1.0, below),
                    self.operator_throughput(number),
                    min(1.0, busy),
                    "stateless" if self._may_grow(operator) else "stateful",
                )
            )
        busy = self.pool().mean
        return ReplicaStatistics(tuple(found), busy > 0.95 and self._after.level < self.pe.machine.cores)

    def waiting(self, operator: int) -> WaitingStatistics:
        """Return waiting against computing of one operator."""
        own = self.pe.operators[operator]
        return WaitingStatistics(self.operator_throughput(operator), own.wait, own.cost)

    def batches(self) -> BatchStatistics:
        """Return what a batch took of all workers, what the sources could send and what waits in the queues."""
        made, rows = self._after.made - self._before.made, self._after.made_rows - self._before.made_rows
        waiting = sum(batch.rows for queue in self.pe.ports.queues for batch in queue)
        if not made:
            return BatchStatistics(0.0, 0.0, 0.0, waiting, self.pe.rows)
        busy = sum(self._after.busy) - sum(self._before.busy)
        return BatchStatistics(rows / made, busy / self._after.level / made, rows / self.period, waiting, self.pe.rows)

    def binding(self) -> BindingStatistics:
        """Return the load of every operator but sources, which run on threads of their own."""
        assert self.pe.binding is not None
        loads = []
        for number, operator in enumerate(self.pe.operators):
            if operator.source:
                continue
            rows = self._difference("processed", number)
            seconds = self._difference("seconds", number) / rows if rows else operator.cost
            pending = round(sum(batch.rows for batch in self.pe.ports.queues[number]))
            arrived = round(self._difference("arrived", number))
            loads.append(OperatorLoad(str(number), self.pe.binding[number], pending, seconds, arrived))
        return BindingStatistics(self.pe.level, tuple(loads))

    def _difference(self, what: str, index: int) -> float:
        after: float = getattr(self._after, what)[index]
        before: float = getattr(self._before, what)[index]
        return after - before

    def _may_grow(self, operator: Operator) -> bool:
        return operator.permits != 1
