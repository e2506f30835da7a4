"""Decide how many threads, replicas, shards, tasks and cores a flow uses: one pure controller a file.

`base` says what a controller is, `decisions` logs and replays what it does, `journal` keeps that of a run. The rest,
by what it decides:

    thread_level         threads of a PE, by trust and trends (`levels`, `search`, `memory`, `noise`)
    waiting              rows in flight of an operator that waits
    utilization_pool     threads of a pool, by how busy they are
    replicas             replicas of a bottleneck operator
    rebinding            which worker runs an operator
    shard_balance        which task owns a shard
    core_allocation      cores of each executor for a latency target (`queueing`)
    epoch_model          tasks of a Spark stage for a latency target
    one_task             whether one task runs a whole epoch
    epoch_wait           how long an epoch waits for rows
    executor_count       executors of a Spark application
    assignment           which node's cores an executor gets
    batch_size           rows of a batch

Baselines, to be measured beside them: `static`, `streams_rules`, `greedy_rebinding`, `round_robin_binding`,
`resource_centric`, `naive_assignment`.
"""

from penstock.elastic.assignment import Assignment, AssignmentStatistics, ExecutorPlace
from penstock.elastic.base import Action, Actions, Controller
from penstock.elastic.batch_size import BatchSize, BatchStatistics
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation, ExecutorLoad
from penstock.elastic.decisions import Decision, Pilot, Replay, from_json, replay, to_json
from penstock.elastic.epoch_model import EpochStatistics, EpochTasks
from penstock.elastic.epoch_wait import EpochWait, PaceStatistics
from penstock.elastic.executor_count import ExecutorCount, ExecutorStatistics
from penstock.elastic.greedy_rebinding import GreedyRebinding
from penstock.elastic.naive_assignment import NaiveAssignment
from penstock.elastic.one_task import OneTask, WorkStatistics
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, Rebinding
from penstock.elastic.replicas import OperatorStatistics, Replicas, ReplicaStatistics
from penstock.elastic.resource_centric import ResourceCentric
from penstock.elastic.round_robin_binding import RoundRobinBinding
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics
from penstock.elastic.static import Static
from penstock.elastic.streams_rules import StreamsRules
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool
from penstock.elastic.waiting import WaitingConcurrency, WaitingStatistics

__all__ = [
    "Action",
    "Actions",
    "AllocationStatistics",
    "Assignment",
    "AssignmentStatistics",
    "BatchSize",
    "BatchStatistics",
    "BindingStatistics",
    "Controller",
    "CoreAllocation",
    "Decision",
    "EpochStatistics",
    "EpochTasks",
    "EpochWait",
    "ExecutorCount",
    "ExecutorLoad",
    "ExecutorPlace",
    "ExecutorStatistics",
    "GreedyRebinding",
    "HotKey",
    "NaiveAssignment",
    "OneTask",
    "OperatorLoad",
    "OperatorStatistics",
    "PaceStatistics",
    "Pilot",
    "PoolStatistics",
    "Rebinding",
    "Replay",
    "ReplicaStatistics",
    "Replicas",
    "ResourceCentric",
    "RoundRobinBinding",
    "ShardBalance",
    "ShardKeys",
    "ShardStatistics",
    "Static",
    "StreamsRules",
    "ThreadLevel",
    "ThreadStatistics",
    "UtilizationPool",
    "WaitingConcurrency",
    "WaitingStatistics",
    "WorkStatistics",
    "from_json",
    "replay",
    "to_json",
]
