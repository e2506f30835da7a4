"""Balance by moving keys between single-core executors of a whole operator: the resource-centric baseline.

Every executor is one core, so both skew and scaling are met by repartitioning the operator's key space. The
moves come from the same balance as the executor-centric approach, as the paper has it for fairness; what
differs is the price: each is preceded by a synchronization with every upstream executor, and its state
crosses nodes.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions
from penstock.elastic.shard_balance import ShardBalance, ShardState, ShardStatistics


@dataclass(frozen=True, slots=True)
class ResourceCentric:
    """Hold the balance threshold, shared with the executor-centric approach."""

    name: ClassVar[str] = "resource_centric"

    threshold: float = 1.2
    goal: float = 1.1
    """How far it goes once it moves: at the threshold itself, the noise of one second would stop it again."""

    def start(self) -> ShardState:
        return ShardState()

    def step(self, state: ShardState, statistics: ShardStatistics) -> tuple[ShardState, Actions]:
        """Return the shards that change executor, as repartitionings of the operator."""
        after, actions = ShardBalance(self.threshold).step(state, statistics)
        if any(each.what == "shard" for each in actions):
            after, actions = ShardBalance(min(self.goal, self.threshold)).step(state, statistics)
        return after, tuple(
            Action("repartition", each.target, each.before, each.after, each.why) if each.what == "shard" else each
            for each in actions
        )
