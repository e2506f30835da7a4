"""Assign cores on nodes to executors with little state moved and little data sent (Elasticutor, algorithm 1).

Executors that lack cores are served in descending order of data intensity. One whose intensity exceeds the
threshold takes cores of its own node only; another takes any core, the one that moves the least state. A core
comes from those that are idle, or from an executor that has more than it was allocated: one that is exactly
provisioned is never robbed. If a data-intensive executor finds no local core, the threshold doubles and
everything is tried again.

The paper's line 4 says non-descending, its text descending: the text is followed. Its line 7 would also take
cores from executors that need them, and nowhere counts the idle ones.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.elastic.base import Action, Actions, NoState

Matrix = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExecutorPlace:
    """Report one executor: its node, the cores it is to have, and what moving or feeding it costs."""

    name: str
    home: int
    allocated: int
    state_bytes: float
    data_rate: float
    """Bytes per second, in and out."""
    cores: tuple[int, ...]
    """Cores held on each node."""

    @property
    def intensity(self) -> float:
        return self.data_rate / max(1, self.allocated)


@dataclass(frozen=True, slots=True)
class AssignmentStatistics:
    """Report the executors, and the cores that each node has."""

    executors: tuple[ExecutorPlace, ...]
    node_cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CoreStep:
    """Give one core of a node to an executor; `donor` is None if the core was idle."""

    node: int
    donor: int | None
    taker: int
    cost: float


@dataclass(frozen=True, slots=True)
class CorePlan:
    """Hold the steps, the threshold they needed, and the executors that still lack cores."""

    steps: tuple[CoreStep, ...]
    threshold: float
    lacking: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """Hold the threshold at which locality begins to matter: 512 KB/s for each core."""

    name: ClassVar[str] = "assignment"

    threshold: float = 512 * 1024.0

    def start(self) -> NoState:
        return NoState()

    def step(self, state: NoState, statistics: AssignmentStatistics) -> tuple[NoState, Actions]:
        plan = assign(statistics, self.threshold)
        moved = moved_bytes(statistics, plan)
        why = f"locality above {plan.threshold / 1024:.4g} KB/s a core; state moved {moved:.3g} B"
        return state, as_actions(statistics, plan, why)


def as_actions(statistics: AssignmentStatistics, plan: CorePlan, why: str) -> Actions:
    """Write a plan as an action for each executor and node that changes, and for each that lacks cores."""
    before, after = _held(statistics), apply(statistics, plan)
    executors = statistics.executors
    actions = []
    for j, i in np.argwhere(before.T != after.T):
        own = executors[j]
        reason = f"{own.name} is to have {own.allocated} cores and has {sum(own.cores)}; {why}"
        actions.append(Action("node_cores", f"{own.name}@{i}", int(before[i, j]), int(after[i, j]), reason))
    for j in plan.lacking:
        held, wanted = int(after[:, j].sum()), executors[j].allocated
        reason = f"no core is idle and no executor has more than it was allocated: {held} of {wanted}"
        actions.append(Action("lacks_cores", executors[j].name, held, wanted, reason))
    return tuple(actions)


def apply(statistics: AssignmentStatistics, plan: CorePlan) -> Matrix:
    """Return the cores held on each node (rows) by each executor (columns) after a plan."""
    held = _held(statistics)
    for step in plan.steps:
        if step.donor is not None:
            held[step.node, step.donor] -= 1
        held[step.node, step.taker] += 1
    return held


def moved_bytes(statistics: AssignmentStatistics, plan: CorePlan) -> float:
    """Return the state that leaves its node, with each executor's shards spread evenly over its cores."""
    before, after = _held(statistics).astype(float), apply(statistics, plan).astype(float)
    state = np.array([executor.state_bytes for executor in statistics.executors])
    shares = [part / np.maximum(part.sum(axis=0), 1) for part in (before, after)]
    return float((np.maximum(0.0, shares[0] - shares[1]) * state).sum())


def assign(statistics: AssignmentStatistics, threshold: float) -> CorePlan:
    """Return a plan at the lowest threshold, doubled as often as needed, that gives every executor its cores.

    If the cores do not suffice at any threshold, the plan without locality is returned, with those that lack
    some.
    """
    highest = max((executor.intensity for executor in statistics.executors), default=0.0)
    while True:
        plan = _try(statistics, threshold)
        if not plan.lacking or threshold > highest:
            return plan
        threshold *= 2


def _held(statistics: AssignmentStatistics) -> Matrix:
    shape = (len(statistics.executors), len(statistics.node_cores))
    return np.array([executor.cores for executor in statistics.executors], dtype=np.int64).reshape(shape).T.copy()


def _try(statistics: AssignmentStatistics, threshold: float) -> CorePlan:
    """Serve the executors that lack cores, one core at a time."""
    executors = statistics.executors
    cluster = _Cluster(statistics)
    steps: list[CoreStep] = []
    lacking = []
    order = sorted(range(len(executors)), key=lambda j: (-executors[j].intensity, j))
    for j in (each for each in order if cluster.total[each] < cluster.wanted[each]):
        local = executors[j].intensity > threshold
        nodes = (executors[j].home,) if local else tuple(range(len(statistics.node_cores)))
        while cluster.total[j] < cluster.wanted[j]:
            found = cluster.cheapest(nodes, j)
            if found is None:
                lacking.append(j)
                break
            steps.append(found)
            cluster.take(found)
    return CorePlan(tuple(steps), threshold, tuple(lacking))


class _Cluster:
    """Work on a copy of the assignment within one step."""

    def __init__(self, statistics: AssignmentStatistics) -> None:
        executors = statistics.executors
        self.held = _held(statistics)
        self.idle = np.array(statistics.node_cores, dtype=np.int64) - self.held.sum(axis=1)
        self.wanted = np.array([executor.allocated for executor in executors])
        self.state = np.array([executor.state_bytes for executor in executors])
        self.total = self.held.sum(axis=0)

    def cheapest(self, nodes: tuple[int, ...], taker: int) -> CoreStep | None:
        """Return the core that moves the least state; of equals, an idle one on the lowest node."""
        donors = np.flatnonzero(self.total > self.wanted)
        best: CoreStep | None = None
        have = self.total[taker]
        for node in nodes:
            # Taking a core on this node draws in the share of the state that is elsewhere.
            elsewhere = have - self.held[node, taker]
            take = float(self.state[taker] * elsewhere / (have * (have + 1))) if have else 0.0
            if best is not None and take >= best.cost:
                continue
            if self.idle[node] > 0:
                best = CoreStep(node, None, taker, take)
                continue
            here = donors[self.held[node, donors] > 0]
            if here.size:
                # Giving one up pushes the donor's share on it out to its other cores.
                total, held = self.total[here], self.held[node, here]
                give = self.state[here] * (total - held) / (total * np.maximum(1, total - 1))
                cheapest = int(np.argmin(give))
                cost = take + float(give[cheapest])
                if best is None or cost < best.cost:
                    best = CoreStep(node, int(here[cheapest]), taker, cost)
        return best

    def take(self, step: CoreStep) -> None:
        if step.donor is None:
            self.idle[step.node] -= 1
        else:
            self.held[step.node, step.donor] -= 1
            self.total[step.donor] -= 1
        self.held[step.node, step.taker] += 1
        self.total[step.taker] += 1
