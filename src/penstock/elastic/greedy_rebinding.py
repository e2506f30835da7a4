"""Rebind by the published greedy policy (Rebinding, algorithm 1), verbatim: the baseline of `rebinding`.

Operators in ascending order of load; one whose worker is above the mean goes to the worker with the least. On
loads that stand still it changes its mapping in every round, because the order of the operators, not the
gain, decides what moves.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions, NoState
from penstock.elastic.rebinding import BindingStatistics


@dataclass(frozen=True, slots=True)
class GreedyRebinding:
    """Hold no settings: the policy has none but its period of 2 s."""

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
