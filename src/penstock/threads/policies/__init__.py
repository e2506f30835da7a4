"""Choose which operator a worker runs next: the policies of the papers, all pure, over one measured view.

`view.py` has the interface (`Policy`, `OperatorView`, `Moment`), `rules.py` the policies, `measured.py` what engine and
simulator count and policies see, `flow_equations.py` the selectivities on a graph.
"""

from __future__ import annotations

from penstock.threads.policies.flow_equations import OperatorFlow, solve_flow
from penstock.threads.policies.measured import MeasuredFlow, MeasuredOperator, MeasuredPort
from penstock.threads.policies.rules import (
    POLICIES,
    CurrentThroughput,
    EstimatedTime,
    LastInPipeline,
    LeastRecent,
    LongestQueue,
    MaxRunningTime,
    MinLatency,
    QueueSizeThrottling,
    RandomChoice,
    VirtualTime,
    by_name,
)
from penstock.threads.policies.view import Moment, OperatorView, Policy, Preempting, Snapshot, take_snapshot

__all__ = [
    "POLICIES",
    "CurrentThroughput",
    "EstimatedTime",
    "LastInPipeline",
    "LeastRecent",
    "LongestQueue",
    "MaxRunningTime",
    "MeasuredFlow",
    "MeasuredOperator",
    "MeasuredPort",
    "MinLatency",
    "Moment",
    "OperatorFlow",
    "OperatorView",
    "Policy",
    "Preempting",
    "QueueSizeThrottling",
    "RandomChoice",
    "Snapshot",
    "VirtualTime",
    "by_name",
    "solve_flow",
    "take_snapshot",
]
