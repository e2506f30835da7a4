"""Move operators between workers, but only where the busiest worker gets lighter.

The published greedy policy (`greedy_rebinding`) moves the smallest operators away from every worker above the
mean, also where the mean cannot be reached, and so changes its mapping in every round on loads that stand
still. Here a move must lower the load of the busiest worker by a stated gain, and goes to the least busy one;
when no move does, the mapping stays. On unchanged loads a second step therefore never moves anything.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.elastic.base import Action, Actions, Controller, ShardTable, time_text
from penstock.elastic.costs import Calm, CalmState

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
    at: float = 0.0
    """Seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class RebindingState:
    """Hold what each operator usually has to do in a period, and what leaving them where they are has cost."""

    usual: tuple[tuple[str, float], ...] = ()
    periods: int = 0
    calm: CalmState = field(default_factory=CalmState)


@dataclass(frozen=True, slots=True)
class Rebinding:
    """Hold the settings: the policy runs every 2 s in the paper.

    With a `calm` the loads are the means of the last periods, all moves of one moment are one decision, and once the
    run is settled leaving operators where they are must have cost as much as a change does.
    """

    name: ClassVar[str] = "rebinding"

    gain: float = 0.05
    """The least part of the busiest worker's load that a move must take off it."""
    most_moves: int = 64
    calm: Calm | None = None
    kept: int = 16
    """Periods that a mean is of, about."""

    def start(self) -> RebindingState:
        return RebindingState()

    def step(self, state: RebindingState, statistics: BindingStatistics) -> tuple[RebindingState, Actions]:
        if self.calm is None:
            moved, _ = self._choose({each.name: each.work for each in statistics.operators}, statistics)
            return state, tuple(Action("binding", name, *where) for name, where in moved.items())
        at, weight, before = statistics.at, 1 / min(state.periods + 1, self.kept), dict(state.usual)
        usual = {}
        for each in statistics.operators:
            known = before.get(each.name, each.work)
            usual[each.name] = known + (each.work - known) * weight
        moved, loads = self._choose(usual, statistics)
        gained = loads[0] - loads[1] if moved else -self.calm.change_seconds
        calm = self.calm.weigh(state.calm, at, gained)
        actions: Actions = ()
        if moved and (self.calm.young(calm, at) or self.calm.due(calm, at)):
            calm = self.calm.change(calm, at)
            why = "; ".join(why for *_, why in moved.values())
            tables = tuple(ShardTable(name, (to,)) for name, (_, to, _) in moved.items())
            figures = (("busiest_seconds", loads[0]), ("then", loads[1]))
            actions = (Action("bindings", "", *loads, why, figures, tables=tables),)
        return RebindingState(tuple(usual.items()), state.periods + 1, calm), actions

    def _choose(
        self, work: dict[str, float], statistics: BindingStatistics
    ) -> tuple[dict[str, tuple[int, int, str]], tuple[float, float]]:
        """Return from where to where operators should go, and why; and the busiest worker's load now and then."""
        loads = [0.0] * statistics.workers
        bound: list[list[str]] = [[] for _ in range(statistics.workers)]
        for operator in statistics.operators:
            loads[operator.worker] += work[operator.name]
            bound[operator.worker].append(operator.name)
        before, moved = max(loads, default=0.0), dict[str, tuple[int, str]]()
        for _ in range(self.most_moves):
            busiest = max(range(len(loads)), key=lambda worker: (loads[worker], -worker))
            least = min(range(len(loads)), key=lambda worker: (loads[worker], worker))
            heavy, light = loads[busiest], loads[least]
            # The best operator to move leaves the two workers closest to each other.
            chosen = min(
                (each for each in bound[busiest] if work[each] > 0),
                key=lambda each: max(heavy - work[each], light + work[each]),
                default=None,
            )
            if chosen is None:
                break
            left = max(heavy - work[chosen], light + work[chosen])
            if left > heavy * (1 - self.gain):
                break
            why = (
                f"{chosen} goes from worker {busiest}, which has {time_text(heavy)} of work, to worker {least}, "
                f"which has {time_text(light)}: the busier of the two then has {time_text(left)}"
            )
            if chosen in moved:
                # It moves on: the action is from where it is now, so what took it from there belongs to the reason.
                why = f"{moved[chosen][1]}; after that {why}"
            moved[chosen] = (least, why)
            bound[busiest].remove(chosen)
            bound[least].append(chosen)
            loads[busiest], loads[least] = heavy - work[chosen], light + work[chosen]
        here = {each.name: each.worker for each in statistics.operators}
        gone = {name: (here[name], to, why) for name, (to, why) in moved.items() if to != here[name]}
        return gone, (before, max(loads, default=0.0))


def new_places(action: Action) -> list[tuple[str, int]]:
    """Return the operators that a decision moves, and their workers."""
    if action.what == "binding" and isinstance(action.after, int):
        return [(action.target, action.after)]
    return [(table.operator, table.tasks[0]) for table in action.tables] if action.what == "bindings" else []


def own_rebinding() -> Rebinding:
    return Rebinding(gain=GAIN, calm=Calm(change_seconds=1.0))


@dataclass(frozen=True)
class Binding:
    """How operators are bound to workers in the bound model."""

    controller: Controller[Any, BindingStatistics] | None = field(default_factory=own_rebinding)
    """What rebinds them while the flow runs; None for nothing."""
    barrier: bool = False
    """Whether everybody stands still for it."""
