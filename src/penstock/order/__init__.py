"""Keep the order of a stream while many workers run it.

Order: `reorder` (outputs back into order), `parts` (a batch that is split by shard), `fanin` (several streams
into one). Partitioned operators: `queues` (the hybrid queue and its baselines), `executor` (its rival). Idle workers:
`parking`. What all of it stands on: `primitives` (the interface) and `threads` (for real); `testing.stepped`
goes one step at a time, for the explorer.
"""

from penstock.order.executor import ElasticExecutor
from penstock.order.fanin import BatchFanIn
from penstock.order.parking import ParkingLot
from penstock.order.parts import SplitBatch, split_by_shard
from penstock.order.primitives import EMPTY, Primitives
from penstock.order.queues import HybridQueue, PartitionedQueue, ShardQueue, SharedQueue, Visitor
from penstock.order.reorder import LockedReorderBuffer, Reorder, ReorderBuffer
from penstock.order.threads import RealThreads

__all__ = [
    "EMPTY",
    "BatchFanIn",
    "ElasticExecutor",
    "HybridQueue",
    "LockedReorderBuffer",
    "ParkingLot",
    "PartitionedQueue",
    "Primitives",
    "RealThreads",
    "Reorder",
    "ReorderBuffer",
    "ShardQueue",
    "SharedQueue",
    "SplitBatch",
    "Visitor",
    "split_by_shard",
]
