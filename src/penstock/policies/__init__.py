"""Choose which operator a worker runs next: one policy a file, all pure, over one interface.

`view.py` has the interface (`Policy`, `OperatorView`, `Moment`), `flow_equations.py` the selectivities on a
graph; every other file is one policy. `by_name` is how an engine finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.policies.current_throughput import CurrentThroughput
from penstock.policies.estimated_time import EstimatedTime
from penstock.policies.flow_equations import OperatorFlow, solve_flow
from penstock.policies.last_in_pipeline import LastInPipeline
from penstock.policies.least_recent import LeastRecent
from penstock.policies.longest_queue import LongestQueue
from penstock.policies.max_running_time import MaxRunningTime
from penstock.policies.min_latency import MinLatency
from penstock.policies.queue_size_throttling import QueueSizeThrottling
from penstock.policies.random_choice import RandomChoice
from penstock.policies.view import Moment, OperatorView, Policy, rows_for_slice
from penstock.policies.virtual_time import VirtualTime

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "least-recent": LeastRecent,
        "random": RandomChoice,
        "longest-queue": LongestQueue,
        "min-latency": MinLatency,
        "max-running-time": MaxRunningTime,
        "qst": QueueSizeThrottling,
        "lp": LastInPipeline,
        "et": EstimatedTime,
        "ct": CurrentThroughput,
        "virtual-time": VirtualTime,
    }
)


def by_name(name: str) -> Policy:
    """Make the policy of that name with its usual parameters."""
    if name not in POLICIES:
        raise ValueError(f"no scheduling policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]()


__all__ = [
    "POLICIES",
    "CurrentThroughput",
    "EstimatedTime",
    "LastInPipeline",
    "LeastRecent",
    "LongestQueue",
    "MaxRunningTime",
    "MinLatency",
    "Moment",
    "OperatorFlow",
    "OperatorView",
    "Policy",
    "QueueSizeThrottling",
    "RandomChoice",
    "VirtualTime",
    "by_name",
    "rows_for_slice",
    "solve_flow",
]
