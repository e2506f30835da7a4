"""List every controller by name, with the types of its state and statistics, for whoever reads a log."""

from dataclasses import dataclass
from typing import Any

from penstock.elastic.assignment import Assignment, AssignmentStatistics
from penstock.elastic.base import NoState
from penstock.elastic.batch_size import BatchSize, BatchState, BatchStatistics
from penstock.elastic.batch_work import BatchWork, WorkDone
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation
from penstock.elastic.epoch_model import EpochState, EpochStatistics, EpochTasks
from penstock.elastic.epoch_wait import EpochWait, PaceState, PaceStatistics
from penstock.elastic.executor_count import ExecutorCount, ExecutorState, ExecutorStatistics
from penstock.elastic.greedy_rebinding import GreedyRebinding
from penstock.elastic.naive_assignment import NaiveAssignment, TurnState
from penstock.elastic.one_task import OneTask, OneTaskState, WorkStatistics
from penstock.elastic.rebinding import BindingStatistics, Rebinding
from penstock.elastic.replicas import Replicas, ReplicaState, ReplicaStatistics
from penstock.elastic.resource_centric import ResourceCentric
from penstock.elastic.round_robin_binding import RoundRobinBinding, RoundRobinState
from penstock.elastic.shard_balance import ShardBalance, ShardState, ShardStatistics
from penstock.elastic.streams_rules import RulesState, StreamsRules
from penstock.elastic.thread_level import ThreadLevel, ThreadState, ThreadStatistics
from penstock.elastic.utilization_pool import PoolState, PoolStatistics, UtilizationPool
from penstock.elastic.waiting import WaitingConcurrency, WaitingState, WaitingStatistics


@dataclass(frozen=True, slots=True)
class Entry:
    """Tie a controller to the types that its log holds."""

    controller: type[Any]
    state: type[Any]
    statistics: type[Any]


_ENTRIES = (
    Entry(Assignment, NoState, AssignmentStatistics),
    Entry(BatchSize, BatchState, BatchStatistics),
    Entry(BatchWork, int, WorkDone),
    Entry(CoreAllocation, NoState, AllocationStatistics),
    Entry(EpochTasks, EpochState, EpochStatistics),
    Entry(EpochWait, PaceState, PaceStatistics),
    Entry(ExecutorCount, ExecutorState, ExecutorStatistics),
    Entry(GreedyRebinding, NoState, BindingStatistics),
    Entry(NaiveAssignment, TurnState, AssignmentStatistics),
    Entry(OneTask, OneTaskState, WorkStatistics),
    Entry(Rebinding, NoState, BindingStatistics),
    Entry(Replicas, ReplicaState, ReplicaStatistics),
    Entry(ResourceCentric, ShardState, ShardStatistics),
    Entry(RoundRobinBinding, RoundRobinState, BindingStatistics),
    Entry(ShardBalance, ShardState, ShardStatistics),
    Entry(StreamsRules, RulesState, ThreadStatistics),
    Entry(ThreadLevel, ThreadState, ThreadStatistics),
    Entry(UtilizationPool, PoolState, PoolStatistics),
    Entry(WaitingConcurrency, WaitingState, WaitingStatistics),
)

CONTROLLERS: dict[str, Entry] = {entry.controller.name: entry for entry in _ENTRIES}
"""Every controller that may appear in a log. `Static` decides nothing, so it has nothing to log."""
