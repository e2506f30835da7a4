"""Assign cores without regard for state and locality: Elasticutor's naive executor-centric baseline.

The paper disables both optimizations and does not say what is left. Here an executor that lacks a core takes
the next one in turn round the cluster that is idle or held beyond what its holder was allocated.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.elastic.assignment import AssignmentStatistics, Plan, Step, as_actions, moved_bytes
from penstock.elastic.base import Actions


@dataclass(frozen=True, slots=True)
class TurnState:
    """Remember the node whose turn it is."""

    node: int = 0


@dataclass(frozen=True, slots=True)
class NaiveAssignment:
    """Hold no settings."""

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
                steps.append(Step(node, donor, j, 0.0))
                turn = (node + 1) % nodes
        plan = Plan(tuple(steps), 0.0, tuple(lacking))
        why = f"the next free core in turn; state moved {moved_bytes(statistics, plan):.3g} B"
        return TurnState(turn), as_actions(statistics, plan, why)
