"""Steer a simulated PE with the pilot of the engines: their levers where it answers as they do, its own where not.

The simulator itself measures without error. Real measurements do not: what was processed in a period is multiplied by
noise of a given size, from a seeded source.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.elastic.base import Action, Controller
from penstock.elastic.batch_size import BatchSize
from penstock.elastic.climb import WaitingConcurrency
from penstock.elastic.decisions import Decision
from penstock.elastic.levers import BatchLever, InFlightLever, PoolLever, WorkersLever, pooled
from penstock.elastic.pilot import Lever, Period, Pilot
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, new_places
from penstock.elastic.replicas import OperatorStatistics, ReplicaStatistics
from penstock.elastic.utilization_pool import UtilizationPool
from penstock.lab.sim.graphs import Operator
from penstock.lab.sim.pe import PE
from penstock.statistics import FlowStats, OperatorStats


@dataclass
class Journey:
    """Hold what happened: the decisions; and level, rows of a batch and throughput of each period."""

    log: list[Decision] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """Rows of a batch, in each period."""
    throughputs: list[float] = field(default_factory=list)
    """As measured, with the noise that the controllers saw."""


def steer(pe: PE, levers: list[Lever], *, period: float, periods: int, noise: float = 0.0, seed: int = 0) -> Journey:
    """Run a PE for so many periods under these controllers; each sees the same readings."""
    journey, statistics, known = Journey(), noisy(pe, noise, seed), 0
    pilot = Pilot(levers, statistics())
    for _ in range(periods):
        pe.run(period)
        before, now = pilot.before, statistics()
        journey.levels.append(pe.level)
        journey.rows.append(pe.rows)
        journey.throughputs.append(now.since(before).rate)
        pilot.step(now)
        lines, known = pilot.journal.decisions_since(known)
        journey.log += lines
    return journey


def noisy(pe: PE, noise: float, seed: int) -> Callable[[], FlowStats]:
    """Return what measures a PE with noise, the standard deviation of a throughput."""
    chance, last, error = random.Random(seed), pe.statistics(), dict[str, float]()

    def statistics() -> FlowStats:
        nonlocal last
        before, last = last, pe.statistics()
        if not noise or last.at == before.at:
            return last
        wrong = math.exp(noise * chance.gauss(0, 1)) - 1
        for name, each in last.since(before).operators.items():
            error[name] = error.get(name, 0.0) + wrong * each.rows_in
        # Parts of rows, as selectivities give them, too.
        operators = {
            name: replace(each, rows_in=each.rows_in + error[name])  # type: ignore[arg-type]
            for name, each in last.operators.items()
        }
        return replace(last, operators=operators)

    return statistics


def _busy(stats: FlowStats) -> float:
    return sum(worker.busy_seconds for worker in stats.workers)


def thread_lever(pe: PE, controller: Controller[Any, Any]) -> Lever:
    """Steer the number of workers by throughput."""
    last = pe.statistics()

    def usage() -> float:
        nonlocal last
        before, last = last, pe.statistics()
        return min(1.0, (_busy(last) - _busy(before)) / ((last.at - before.at) * pe.machine.cores))

    return WorkersLever(pe, controller, usage, pe.machine.cores)


def pool_lever(pe: PE, controller: UtilizationPool) -> Lever:
    return PoolLever(pe, controller)


def waiting_lever(pe: PE, controller: WaitingConcurrency, operator: int) -> Lever:
    return InFlightLever(str(operator), lambda rows: pe.set_in_flight(operator, rows), controller)


def batch_lever(pe: PE, controller: BatchSize) -> Lever:
    return BatchLever(pe.set_rows, lambda: pe.rows, controller)


class _OwnLever(Lever):
    """Steer what a PE has for each operator, under the operator's number."""

    def __init__(self, pe: PE, controller: Controller[Any, Any]) -> None:
        self.pe, self.controller = pe, controller

    def operators(self, done: FlowStats) -> Iterator[tuple[OperatorStats, Operator]]:
        """Yield what each operator did that is no source: those run on threads of their own."""
        pairs = zip(done.operators.values(), self.pe.operators, strict=True)
        return ((each, operator) for each, operator in pairs if not operator.source)


class PermitsLever(_OwnLever):
    """Steer how many workers may run each operator at once: permits stand for replicas."""

    name = "replicas"

    def read(self, period: Period) -> ReplicaStatistics:
        done, seconds, pe = period.done, period.seconds, self.pe
        found = []
        for each, operator in self.operators(done):
            permits = each.permits or 1
            below = max((done.operators[str(to)].full[0] / seconds for to in operator.outputs), default=0.0)
            found.append(
                OperatorStatistics(
                    each.name,
                    (min(1.0, each.full[0] / seconds),) * permits,
                    min(1.0, below),
                    each.rows_in / seconds,
                    min(1.0, each.wall / (seconds * permits)),
                    each.kind,
                )
            )
        busy = [worker.busy_seconds / seconds for worker in pooled(done)]
        return ReplicaStatistics(tuple(found), sum(busy) > 0.95 * len(busy) and pe.level < pe.machine.cores)

    def act(self, action: Action) -> None:
        if isinstance(action.after, int):
            self.pe.set_permits(int(action.target), action.after)


class BoundLever(_OwnLever):
    """Steer which worker runs each operator."""

    name = "rebinding"

    def read(self, period: Period) -> BindingStatistics:
        assert self.pe.binding is not None
        loads = []
        for each, operator in self.operators(period.done):
            seconds = each.wall / each.rows_in if each.rows_in else operator.cost
            bound = self.pe.binding[int(each.name)]
            loads.append(OperatorLoad(each.name, bound, round(each.rows_queued), seconds, round(each.came)))
        return BindingStatistics(self.pe.level, tuple(loads))

    def act(self, action: Action) -> None:
        for operator, worker in new_places(action):
            self.pe.bind(int(operator), worker)


def static_throughput(pe: PE, *, period: float, warmup: int, periods: int) -> float:
    """Return the throughput of a PE that is not steered, after a warm-up."""
    pe.run(warmup * period)
    before = sum(pe.processed)
    pe.run(periods * period)
    return (sum(pe.processed) - before) / (periods * period)
