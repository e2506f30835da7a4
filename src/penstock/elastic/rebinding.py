"""Move operators between workers, but only where the busiest worker gets lighter.

The published greedy policy (`greedy_rebinding`) moves the smallest operators away from every worker above the
mean, also where the mean cannot be reached, and so changes its mapping in every round on loads that stand
still. Here a move must lower the load of the busiest worker by a stated gain, and goes to the least busy one;
when no move does, the mapping stays. On unchanged loads a second step therefore never moves anything.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.elastic.base import Action, Actions, Controller, NoState, time_text

GAIN = 0.1
"""What a move must take off the busiest worker: loads that are measured in two seconds differ by less for no reason."""


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """Report one operator: where it is bound, what waits for it and what a tuple costs."""

    name: str
    worker: int
    pending: int
    """Tuples received and not yet processed."""
    seconds: float
    """Mean processing time over the last tuples."""
    arrived: int = 0
    """Tuples received in the last period; an operator that keeps up has no queue, yet it is a load."""

    @property
    def backlog(self) -> float:
        """Return the seconds of work that wait, the published measure of load."""
        return self.seconds * self.pending

    @property
    def work(self) -> float:
        """Return the seconds of work that wait or came in during the period."""
        return self.seconds * (self.pending + self.arrived)


@dataclass(frozen=True, slots=True)
class BindingStatistics:
    """Report all operators, and how many workers there are."""

    workers: int
    operators: tuple[OperatorLoad, ...]


@dataclass(frozen=True, slots=True)
class Rebinding:
    """Hold the settings: the policy runs every 2 s in the paper."""

    name: ClassVar[str] = "rebinding"

    gain: float = 0.05
    """The least part of the busiest worker's load that a move must take off it."""
    most_moves: int = 64

    def start(self) -> NoState:
        return NoState()

    def step(self, state: NoState, statistics: BindingStatistics) -> tuple[NoState, Actions]:
        """Move operators from the busiest worker to the least busy one while the busiest gets lighter."""
        loads = [0.0] * statistics.workers
        bound: list[list[OperatorLoad]] = [[] for _ in range(statistics.workers)]
        for operator in statistics.operators:
            loads[operator.worker] += operator.work
            bound[operator.worker].append(operator)
        moved: dict[str, tuple[OperatorLoad, int, str]] = {}
        for _ in range(self.most_moves):
            busiest = max(range(len(loads)), key=lambda worker: (loads[worker], -worker))
            least = min(range(len(loads)), key=lambda worker: (loads[worker], worker))
            heavy, light = loads[busiest], loads[least]
            # The best operator to move leaves the two workers closest to each other.
            chosen = min(
                (each for each in bound[busiest] if each.work > 0),
                key=lambda each: max(heavy - each.work, light + each.work),
                default=None,
            )
            if chosen is None:
                break
            left = max(heavy - chosen.work, light + chosen.work)
            if left > heavy * (1 - self.gain):
                break
            why = (
                f"{chosen.name} goes from worker {busiest}, which has {time_text(heavy)} of work, to worker {least}, "
                f"which has {time_text(light)}: the busier of the two then has {time_text(left)}"
            )
            if chosen.name in moved:
                # It moves on: the action is from where it is now, so what took it from there belongs to the reason.
                why = f"{moved[chosen.name][2]}; after that {why}"
            moved[chosen.name] = (chosen, least, why)
            bound[busiest].remove(chosen)
            bound[least].append(chosen)
            loads[busiest], loads[least] = heavy - chosen.work, light + chosen.work
        actions = tuple(
            Action("binding", name, operator.worker, to, why)
            for name, (operator, to, why) in moved.items()
            if to != operator.worker
        )
        return state, actions


def own_rebinding() -> Rebinding:
    """Return Penstock's own controller."""
    return Rebinding(gain=GAIN)


@dataclass(frozen=True)
class Binding:
    """How operators are bound to workers in the bound model."""

    controller: Controller[Any, BindingStatistics] | None = field(default_factory=own_rebinding)
    """What rebinds them while the flow runs; None for nothing."""
    barrier: bool = False
    """Whether everybody stands still for it."""
