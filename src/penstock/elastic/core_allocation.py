"""Share cores out to executors for a latency target: a Jackson network of M/M/k queues (Elasticutor)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions, NoState, in_words, things, time_text


def stable_minimum(arrivals: float, service: float) -> int:
    """Return the fewest servers that keep a queue finite: floor(lambda / mu) + 1.

    The published ceiling plus one asks for one too many unless lambda / mu is a whole number.
    """
    servers = math.floor(arrivals / service) + 1
    # The quotient is rounded: it may be just below a number of servers that serve no more than what arrives.
    return servers + 1 if arrivals >= servers * service else servers


def erlang_b(load: float, servers: int) -> float:
    """Return the part of arrivals that find all servers busy and leave, for a load of lambda / mu."""
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    return blocked


def erlang_c(load: float, servers: int) -> float:
    """Return the part of arrivals that must wait."""
    if load >= servers:
        return 1.0
    blocked = erlang_b(load, servers)
    return servers * blocked / (servers - load * (1 - blocked))


def response_time(arrivals: float, service: float, servers: int) -> float:
    """Return the mean time from arrival to departure; infinite if the servers cannot keep up."""
    if arrivals >= servers * service:
        return math.inf
    return 1 / service + erlang_c(arrivals / service, servers) / (servers * service - arrivals)


def network_time(external: float, arrivals: Sequence[float], service: Sequence[float], servers: Sequence[int]) -> float:
    """Return the mean time that an input of the network causes: the sum of lambda_j T_j over lambda_0."""
    if external <= 0:
        return 0.0
    times = zip(arrivals, service, servers, strict=True)
    return sum(rate * response_time(rate, mu, k) for rate, mu, k in times if rate > 0) / external


# Waiting that is less than this part of service is not worth a core when no number of cores meets the target.
_NEGLIGIBLE_WAIT = 0.05


@dataclass(frozen=True, slots=True)
class ExecutorLoad:
    """Report one executor: rows per second that arrive, rows per second that one core serves, cores in force."""

    name: str
    arrivals: float
    service: float
    cores: int = 0

    def __post_init__(self) -> None:
        """Refuse a core that serves nothing: what was not measured yet has no place in the network."""
        if self.service <= 0 or self.arrivals < 0:
            raise ValueError(f"{self.name}: service must be positive and arrivals not negative")

    @property
    def work(self) -> float:
        """Return the cores' worth of work that arrives."""
        return self.arrivals / self.service


@dataclass(frozen=True, slots=True)
class AllocationStatistics:
    """Report the network: rows per second from outside, its executors, and the cores there are."""

    external: float
    executors: tuple[ExecutorLoad, ...]
    cores: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Give each executor its cores; `problem` says why the target cannot be met, if so."""

    cores: tuple[int, ...]
    latency: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CoreAllocation:
    """Hold the target, in seconds; without one, cores are added while they shorten the wait.

    The executors form a Jackson network of M/M/k queues. Each begins with the fewest cores that keep it stable; then
    the core that lowers the mean latency most is added, again and again, until the target is met: for this sum of
    convex terms the greedy choice is the optimal one. Three cases in which the target cannot be met are told apart:

    - *overloaded*: the cores do not even keep the executors stable, so each gets its share of the work;
    - *too few cores*: the latency with all cores is what can be had;
    - *too slow*: service alone takes longer than the target, so cores are added only while they still shorten the
      wait.

    Measured rates waver. The allocation in force is kept while it meets the target (or is as good as the new one) and
    costs hardly more cores than the new one.
    """

    name: ClassVar[str] = "core_allocation"

    target: float | None = None
    hysteresis: float = 0.1
    """The part of the cores that may be held beyond the fewest."""
    tolerance: float = 0.05
    """How much worse the allocation in force may be before it is changed for a better one."""

    def start(self) -> NoState:
        return NoState()

    def step(self, state: NoState, statistics: AllocationStatistics) -> tuple[NoState, Actions]:
        """Return the executors whose number of cores changes, and a warning if the target cannot be met."""
        plan = allocate(statistics, self.target)
        actions: list[Action] = []
        if plan.problem is not None:
            actions.append(Action("latency_target", "", self.target, None, plan.problem))
        if self._keep(statistics, plan):
            return state, tuple(actions)
        goal = "" if self.target is None else f", the target is {time_text(self.target)}"
        for executor, cores in zip(statistics.executors, plan.cores, strict=True):
            if executor.cores != cores:
                why = (
                    f"{things(cores, 'core')} for {executor.name} instead of {in_words(executor.cores)}: "
                    f"{executor.arrivals:.4g} rows/s at {executor.service:.4g} a core need {executor.work:.3g}, and "
                    f"{sum(plan.cores)} of {statistics.cores} in all give {time_text(plan.latency)}{goal}"
                )
                figures = (("work", executor.work), ("latency_seconds", plan.latency))
                actions.append(Action("cores", executor.name, executor.cores, cores, why, figures))
        return state, tuple(actions)

    def _keep(self, statistics: AllocationStatistics, plan: Allocation) -> bool:
        """Say whether the allocation in force is good enough."""
        held = [executor.cores for executor in statistics.executors]
        if min(held, default=1) < 1 or sum(held) > statistics.cores:
            return False
        if math.isinf(plan.latency):
            # Overloaded: what counts is the executor with the most work for each of its cores.
            now, then = _fullest(statistics, held), _fullest(statistics, plan.cores)
            return now <= then * (1 + self.tolerance)
        latency = _latency(statistics, held)
        good = self.target if self.target is not None and plan.problem is None else plan.latency * (1 + self.tolerance)
        return latency <= good and sum(held) <= math.ceil(sum(plan.cores) * (1 + self.hysteresis))


def allocate(statistics: AllocationStatistics, target: float | None) -> Allocation:
    """Return the fewest cores for each executor that meet the target, or the best that can be had."""
    executors = statistics.executors
    cores = [stable_minimum(each.arrivals, each.service) for each in executors]
    if sum(cores) > statistics.cores:
        return _overloaded(statistics, sum(cores))
    external = statistics.external if statistics.external > 0 else math.inf
    gains = [(-_gain(each, k) / external, i) for i, (each, k) in enumerate(zip(executors, cores, strict=True))]
    heapq.heapify(gains)
    latency = _latency(statistics, cores)
    fastest = sum(each.work for each in executors) / external
    reachable = target is not None and target > fastest
    goal = target if target is not None and reachable else fastest * (1 + _NEGLIGIBLE_WAIT)
    spare = statistics.cores - sum(cores)
    while latency > goal and spare > 0 and gains:
        gain, i = heapq.heappop(gains)
        latency += gain
        cores[i] += 1
        spare -= 1
        heapq.heappush(gains, (-_gain(executors[i], cores[i]) / external, i))
    latency = _latency(statistics, cores)
    problem = None
    if target is not None and not reachable:
        problem = f"service alone takes {fastest:.3g} s, the target is {target:.3g} s: no number of cores meets it"
    elif target is not None and latency > target:
        problem = f"all {statistics.cores} cores give {latency:.3g} s, the target is {target:.3g} s"
    return Allocation(tuple(cores), latency, problem)


def _overloaded(statistics: AllocationStatistics, needed: int) -> Allocation:
    """Share the cores out by work, so that no executor is fuller than it must be."""
    work = [each.work for each in statistics.executors]
    cores = [0] * len(work)
    # An executor without a core cannot run at all, so it comes before any that has one.
    fullest = [(-math.inf, -load, i) for i, load in enumerate(work)]
    heapq.heapify(fullest)
    for _ in range(statistics.cores):
        _, _, i = heapq.heappop(fullest)
        cores[i] += 1
        heapq.heappush(fullest, (-work[i] / cores[i], -work[i], i))
    problem = f"{needed} cores are needed to keep up and there are {statistics.cores}: shared out by work"
    return Allocation(tuple(cores), math.inf, problem)


def _gain(executor: ExecutorLoad, cores: int) -> float:
    """Return how much one more core takes off the network's latency, up to the factor 1 / lambda_0."""
    now = response_time(executor.arrivals, executor.service, cores)
    return executor.arrivals * (now - response_time(executor.arrivals, executor.service, cores + 1))


def _latency(statistics: AllocationStatistics, cores: list[int] | tuple[int, ...]) -> float:
    return network_time(
        statistics.external,
        [each.arrivals for each in statistics.executors],
        [each.service for each in statistics.executors],
        cores,
    )


def _fullest(statistics: AllocationStatistics, cores: list[int] | tuple[int, ...]) -> float:
    loads = zip(statistics.executors, cores, strict=True)
    return max((each.work / k if k else math.inf for each, k in loads), default=0.0)
