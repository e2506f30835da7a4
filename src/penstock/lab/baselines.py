"""The rules that the papers compare with, as published: for `penstock.lab`, the simulator and benches.

A log that one of them wrote is replayed only where `penstock.lab` was imported (`decisions.register`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from penstock.elastic.base import Action, Actions, NoState, clamp
from penstock.elastic.decisions import register
from penstock.elastic.noise import LevelRecord
from penstock.elastic.rebinding import BindingStatistics
from penstock.elastic.search import ordered
from penstock.elastic.shard_balance import ShardBalance, ShardState, ShardStatistics
from penstock.elastic.thread_level import ThreadStatistics
from penstock.lab.assignment import Assignment, AssignmentStatistics, CorePlan, CoreStep, as_actions, moved_bytes


@dataclass(frozen=True, slots=True)
class GreedyRebinding:
    """Hold no settings: the policy has none but its period of 2 s.

    Operators in ascending order of load; one whose worker is above the mean goes to the worker with the least. On loads
    that stand still it changes its mapping in every round, because the order of the operators, not the gain, decides
    what moves.
    """

    name: ClassVar[str] = "greedy_rebinding"

    def start(self) -> NoState:
        return NoState()

    def step(self, state: NoState, statistics: BindingStatistics) -> tuple[NoState, Actions]:
        loads = [0.0] * statistics.workers
        for operator in statistics.operators:
            loads[operator.worker] += operator.backlog
        mean = sum(loads) / statistics.workers
        actions = []
        for operator in sorted(statistics.operators, key=lambda each: each.backlog):
            here = operator.worker
            if loads[here] <= mean:
                continue
            least = loads.index(min(loads))
            why = f"worker {here} has {loads[here]:.3g} s of work, the mean is {mean:.3g} s; least has {least}"
            actions.append(Action("binding", operator.name, here, least, why))
            loads[least] += operator.backlog
            loads[here] -= operator.backlog
        return state, tuple(actions)


@dataclass(frozen=True, slots=True)
class ResourceCentric:
    """Hold the balance threshold, shared with the executor-centric approach.

    Every executor is one core, so both skew and scaling are met by repartitioning the operator's key space. The moves
    come from the same balance as the executor-centric approach, as the paper has it for fairness; what differs is the
    price: each is preceded by a synchronization with every upstream executor, and its state crosses nodes.
    """

    name: ClassVar[str] = "resource_centric"
    version: ClassVar[int] = 2

    threshold: float = 1.2
    goal: float = 1.1
    """How far it goes once it moves: at the threshold itself, the noise of one second would stop it again."""

    def start(self) -> ShardState:
        return ShardState()

    def step(self, state: ShardState, statistics: ShardStatistics) -> tuple[ShardState, Actions]:
        """Return the shards that change executor, as repartitionings of the operator."""
        balance = ShardBalance(self.threshold, goal=min(self.goal, self.threshold))
        after, actions = balance.step(state, statistics)
        return after, tuple(replace(each, what="repartition") if each.what == "table" else each for each in actions)


@dataclass(frozen=True, slots=True)
class TurnState:
    node: int = 0


@dataclass(frozen=True, slots=True)
class NaiveAssignment:
    """Hold no settings.

    The paper disables both optimizations and does not say what is left. Here an executor that lacks a core takes the
    next one in turn round the cluster that is idle or held beyond what its holder was allocated.
    """

    name: ClassVar[str] = "naive_assignment"

    def start(self) -> TurnState:
        return TurnState()

    def step(self, state: TurnState, statistics: AssignmentStatistics) -> tuple[TurnState, Actions]:
        executors = statistics.executors
        nodes = len(statistics.node_cores)
        held = np.array([executor.cores for executor in executors], dtype=np.int64).reshape(len(executors), nodes)
        idle = np.array(statistics.node_cores) - held.sum(axis=0)
        wanted = np.array([executor.allocated for executor in executors])
        turn, steps, lacking = state.node, [], []
        for j in range(len(executors)):
            while held[j].sum() < wanted[j]:
                over = held.sum(axis=1) > wanted
                free = idle + held[over].sum(axis=0)
                node = next((n % nodes for n in range(turn, turn + nodes) if free[n % nodes] > 0), None)
                if node is None:
                    lacking.append(j)
                    break
                donor = None
                if idle[node] > 0:
                    idle[node] -= 1
                else:
                    donor = int(np.flatnonzero(over & (held[:, node] > 0))[0])
                    held[donor, node] -= 1
                held[j, node] += 1
                steps.append(CoreStep(node, donor, j, 0.0))
                turn = (node + 1) % nodes
        plan = CorePlan(tuple(steps), 0.0, tuple(lacking))
        why = f"the next free core in turn; state moved {moved_bytes(statistics, plan):.3g} B"
        return TurnState(turn), as_actions(statistics, plan, why)


@dataclass(frozen=True, slots=True)
class RulesState:
    """Hold the level and what is trusted: a record's `first` and `mean` are its first and last throughput."""

    level: int
    trusted: tuple[LevelRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsRules:
    """Hold the published settings.

    Only the neighbouring levels are compared, one sample decides, and a sample that differs by the sensitivity from the
    first one at its level wipes out all that was learned. On noisy throughput this oscillates, as the paper reports; it
    is here to be measured beside the controller that does not.
    """

    name: ClassVar[str] = "streams_rules"

    low: int = 1
    high: int = 1
    initial: int = 1
    sensitivity: float = 0.05
    cpu_limit: float = 0.8

    def start(self) -> RulesState:
        return RulesState(clamp(self.initial, self.low, self.high))

    def step(self, state: RulesState, statistics: ThreadStatistics) -> tuple[RulesState, Actions]:
        if statistics.unsuspended:
            return state, ()
        throughput, known = statistics.throughput, {record.level: record for record in state.trusted}
        own = known.get(state.level)
        if own is not None and self._differs(throughput, own.first):
            known, own = {}, None
        first = own.first if own else throughput
        known[state.level] = LevelRecord(state.level, first, throughput)
        state = RulesState(state.level, ordered(known.values()))
        level, why = self._next(state, throughput, statistics.cpu_usage)
        if level == state.level:
            return state, ()
        return replace(state, level=level), (Action("thread_level", "", state.level, level, why),)

    def _next(self, state: RulesState, throughput: float, cpu_usage: float) -> tuple[int, str]:
        below = max((r for r in state.trusted if r.level < state.level), key=lambda r: r.level, default=None)
        above = min((r for r in state.trusted if r.level > state.level), key=lambda r: r.level, default=None)
        rising_to_here = below is not None and throughput > below.mean * (1 + self.sensitivity)
        rising_from_here = above is not None and above.mean > throughput * (1 + self.sensitivity)
        may_rise = cpu_usage <= self.cpu_limit and state.level < self.high
        if rising_to_here and above is None:
            why, up = f"{throughput:.4g}/s is more than below and nothing above is trusted", True
        elif rising_from_here:
            why, up = f"{throughput:.4g}/s is less than above", True
        elif state.level == self.low and above is None:
            why, up = "nothing above the lowest level is trusted", True
        else:
            why, up = "", False
        if up and may_rise:
            return (above.level if above else min(self.high, _power_above(state.level))), why
        if state.level == self.low or (below is not None and rising_to_here):
            return state.level, "between a level that gives less and one that gives no more"
        if below is None:
            return max(self.low, _power_below(state.level)), "nothing below is trusted"
        # Bisect towards the trusted level below.
        middle = (below.level + state.level) // 2
        return middle, f"{throughput:.4g}/s is not more than {below.mean:.4g}/s at {below.level}"

    def _differs(self, throughput: float, reference: float) -> bool:
        return abs(throughput - reference) > self.sensitivity * reference


def _power_above(level: int) -> int:
    return 1 << level.bit_length()


def _power_below(level: int) -> int:
    return 1 << ((level - 1).bit_length() - 1)


register(Assignment, GreedyRebinding, NaiveAssignment, ResourceCentric, StreamsRules)
