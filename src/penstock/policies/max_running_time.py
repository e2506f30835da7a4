"""Run the operator that can go on longest without being blocked: C-Stream's MaxRunningTime."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView, largest


@dataclass(frozen=True, slots=True)
class MaxRunningTime:
    """Pick by how long an operator can read from its queues and write to those below."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the operator with the longest estimated run."""
        return largest(ready, running_time)


def running_time(view: OperatorView) -> float:
    """Return the time until the first input port is empty or the first port below is full.

    A port that the operator has not been seen to use does not limit it. One that has never run has no
    limit at all, so it runs, and is measured.
    """
    reading = _spans(view.queued, view.read_rates)
    writing = _spans(view.downstream_room, view.write_rates)
    return min([*reading, *writing], default=math.inf)


def _spans(rows: Sequence[int], rates: Sequence[float]) -> Iterable[float]:
    return (count / rate for count, rate in zip(rows, rates, strict=False) if rate > 0.0)
