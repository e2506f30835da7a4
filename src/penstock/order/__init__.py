"""Keep the order of a stream while many workers run it.

Order: `reorder` (outputs back into order), `parts` (a batch that is split by shard), `fanin` (several streams
into one). Partitioned operators: `queues` (the hybrid queue and its baselines), `elastic_executor` with
`shard_router` (its rival). Building blocks: `combiner` (many threads, one state machine), `parking` (idle
workers). What all of it stands on: `primitives` (the interface), `threads` (for real), and `stepped`,
`stepped_primitives`, `stepped_threads` (one step at a time, for the explorer).
"""

from penstock.order.elastic_executor import ElasticExecutor
from penstock.order.fanin import BatchFanIn, PositionFanIn
from penstock.order.parking import ParkingLot
from penstock.order.parts import SplitBatch, merge_order, split_by_shard
from penstock.order.primitives import EMPTY, Primitives
from penstock.order.queues import HybridQueue, PartitionedQueue, ShardQueue, SharedQueue
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
    "PositionFanIn",
    "Primitives",
    "RealThreads",
    "Reorder",
    "ReorderBuffer",
    "ShardQueue",
    "SharedQueue",
    "SplitBatch",
    "merge_order",
    "split_by_shard",
]
