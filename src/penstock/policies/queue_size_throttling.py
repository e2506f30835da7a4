"""Push rows from the entry towards the exit, one operator after the other: Ordered's QST (section 6.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView, smallest


@dataclass(frozen=True, slots=True)
class QueueSizeThrottling:
    """Pick the earliest operator whose outputs have not piled up beyond its threshold.

    Equation 1: the threshold T_i is C * cs_i / sum(cs), the operator's share of `capacity` rows by how many
    rows it emits for a row of input. With several ports below, the fullest one counts. If everything is
    above its threshold, the paper runs nothing; here the operator runs whose outputs have piled up least,
    since queues are bounded anyway and an idle worker helps nobody.
    """

    capacity: float = 10_000.0

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the earliest operator below its threshold."""
        below = [index for index, view in enumerate(ready) if self.fullness(view) < 1.0]
        if below:
            return min(below, key=lambda index: ready[index].order)
        return smallest(ready, self.fullness)

    def threshold(self, view: OperatorView) -> float:
        """Return the number of output rows at which an operator is throttled."""
        return self.capacity * view.outflow_share

    def fullness(self, view: OperatorView) -> float:
        """Return the output rows waiting in the fullest port below, as a share of the threshold."""
        waiting = max(view.downstream_queued, default=0)
        if waiting == 0:
            return 0.0
        threshold = self.threshold(view)
        return waiting / threshold if threshold > 0.0 else math.inf
