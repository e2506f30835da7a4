"""Serve batches in the order of their numbers, whatever operator they wait for: Rebinding's single queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """Pick the smallest batch number at the front of a queue: one priority queue for all workers.

    The number is the flow's virtual time. Of two operators at the same time, the later one in topological
    order goes first, so that a batch is finished rather than spread.
    """

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the operator with the earliest batch."""
        return min(range(len(ready)), key=lambda index: _virtual_time(ready[index]))


def _virtual_time(view: OperatorView) -> tuple[float, int]:
    return (math.inf if view.front_number is None else view.front_number, -view.order)
