"""Bind operators to workers in turn at the start and never again (Rebinding's static baseline)."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions
from penstock.elastic.rebinding import BindingStatistics


@dataclass(frozen=True, slots=True)
class RoundRobinState:
    """Say whether the one binding has been made."""

    bound: bool = False


@dataclass(frozen=True, slots=True)
class RoundRobinBinding:
    """Hold no settings."""

    name: ClassVar[str] = "round_robin_binding"

    def start(self) -> RoundRobinState:
        return RoundRobinState()

    def step(self, state: RoundRobinState, statistics: BindingStatistics) -> tuple[RoundRobinState, Actions]:
        if state.bound:
            return state, ()
        actions = tuple(
            Action("binding", operator.name, operator.worker, i % statistics.workers, f"operator {i} in turn")
            for i, operator in enumerate(statistics.operators)
            if operator.worker != i % statistics.workers
        )
        return RoundRobinState(bound=True), actions
