"""Pull rows towards the exit: Ordered's LP (section 6.2), its best for latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView


@dataclass(frozen=True, slots=True)
class LastInPipeline:
    """Pick the latest operator in topological order that has something to do."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the latest operator."""
        return max(range(len(ready)), key=lambda index: ready[index].order)
