"""Run the operator whose oldest waiting row has been in the flow longest: C-Stream's MinLatency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView, smallest


@dataclass(frozen=True, slots=True)
class MinLatency:
    """Pick the smallest time stamp at the front of a queue; a source counts as from when it last ran."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the operator with the oldest row."""
        return smallest(ready, _age_mark)


def _age_mark(view: OperatorView) -> float:
    if view.is_source:
        return view.last_run
    return math.inf if view.front_time is None else view.front_time
