"""Run any operator: C-Stream's Random, robust on every topology and the baseline for the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView


@dataclass(frozen=True, slots=True)
class RandomChoice:
    """Pick uniformly at random."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return a random index."""
        return moment.random.randrange(len(ready))
