"""Run the operator whose queue would take longest to work off: Ordered's ET (section 6.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView, largest


@dataclass(frozen=True, slots=True)
class EstimatedTime:
    """Pick the highest priority, which is the time to empty the queue with one worker more."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the operator with the longest backlog."""
        return largest(ready, priority)


def priority(view: OperatorView) -> float:
    """Return equation 2: I_i * c_i / (w_i + 1), or nothing if the operator admits no further worker.

    An operator that has never run has no cost yet; it goes first, and then has one.
    """
    if view.is_full:
        return 0.0
    if view.cost is None:
        return math.inf
    return view.rows_waiting * view.cost / (view.workers + 1)
