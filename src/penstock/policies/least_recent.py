"""Run the operator that has waited longest for its turn (Streams' free list; C-Stream's LeastRecentlyRun)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView, smallest


@dataclass(frozen=True, slots=True)
class LeastRecent:
    """Pick the operator that was last given to a worker longest ago."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the least recently run operator."""
        return smallest(ready, lambda view: view.last_run)
