"""Run the operator with the most rows waiting: C-Stream's MaxQueueLength."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView


@dataclass(frozen=True, slots=True)
class LongestQueue:
    """Pick a source if one is ready, else the operator with the most rows waiting at all its ports.

    A source has no queue and would never be picked by length; equals are told apart at random.
    """

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of a ready source, or of the longest queue."""
        best = [index for index, view in enumerate(ready) if view.is_source]
        if not best:
            longest = max(view.rows_waiting for view in ready)
            best = [index for index, view in enumerate(ready) if view.rows_waiting == longest]
        return moment.random.choice(best)
