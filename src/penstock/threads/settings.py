"""How an element works: what `ps.Threads` says, what only tests and benchmarks change, what needs Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from penstock.errors import FlowError
from penstock.order.reorder import MakeReorder, ReorderBuffer
from penstock.plan.plan import Plan
from penstock.threads.models.base import ModelName
from penstock.threads.policies import Policy
from penstock.threads.stations import Partitioned


@dataclass(frozen=True)
class Settings:
    """How an element works."""

    model: ModelName = "dynamic"
    workers: int = 1
    policy: Policy | None = None
    """Chooses operators in the dynamic model; None is the Streams scheduler: the port that has waited longest."""
    partitions: int | None = None
    """Into how many parts keyed operators are cut in the dynamic model. None is as many as the flow has shards where
    each belongs to a replica, which moves one after the other, and few where workers share them by a queue."""
    capacity: int = 16
    """Batches that an input port holds."""
    in_flight: int = 64
    """Batches that may be in the element at once."""
    _: KW_ONLY
    fuse: bool = True
    """Whether consecutive maps and filters are run as one, in the dynamic and the manual model, and sinks are run with
    what they read, in these and the bound one."""
    quantum: float = 0.05
    """Seconds that a worker stays with an operator while others have work; in the dynamic and the bound model."""
    partitioned: Partitioned = "hybrid"
    """How workers share the partitions of a keyed operator: by one of Ordered's queues, or by Elasticutor's table."""
    replicas: int | Mapping[str, int] = field(default_factory=dict)
    """Replicas of operators, by name; a number is for all that can have some."""
    reorder: MakeReorder = ReorderBuffer
    """Makes what puts batches back in order."""
    barrier: bool = False
    """Rebind with everybody standing still: the baseline of the bound model."""
    seed: int = 0
    keeps_frames: bool = True
    """Whether co-routines go on after their waits; where state is saved they begin again instead."""


def refuse_frames(plan: Plan, engine: str) -> None:
    """Refuse sources that only Spark can read."""
    for node in plan.sources:
        if node.operator.reader.needs_spark:
            raise FlowError(
                f"source {node.name!r} is a Spark DataFrame, which on={engine} cannot read; use "
                f"on=ps.Spark(...), or read the files with ps.read"
            )
