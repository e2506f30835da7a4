"""Find how many rows the first batches should take, where nobody has said it, until a flow is steered by its periods.

Looks come soon after the start and then more and more seldom. They are logged like all other decisions.
"""

from __future__ import annotations

from collections.abc import Container

from penstock.elastic.batch_work import BatchWork, WorkDone
from penstock.statistics import FlowStats

FIRST_ROWS = 256
"""Rows of the first batches: so few that expensive ones are soon known to be expensive."""
FEWEST_ROWS = 64
MOST_ROWS = 16_384
"""So many batches may be in the flow at once that larger ones would take more memory than they save time."""
WORK_SECONDS = 0.04
"""The work that a batch should be, by the clock, and so with the time in which its workers wait for each other."""
FIRST_LOOK = 4
"""Batches before the first look; then it is twice as many each time."""


class Sizing:
    """Say when to look at the size of batches, and what a controller is to see; rows that wait are no work."""

    name = "first batches"

    def __init__(self, waiting: Container[str] = ()) -> None:
        self.controller = BatchWork(FEWEST_ROWS, MOST_ROWS, FIRST_ROWS, WORK_SECONDS)
        self._waiting, self._next = waiting, FIRST_LOOK

    def is_due(self, batches: int) -> bool:
        """Tell whether it is time for another look."""
        return batches >= self._next

    def looked(self, batches: int) -> None:
        """Note that a look was taken after so many batches."""
        self._next = 2 * batches

    def measure(self, seen: FlowStats) -> WorkDone:
        """Tell what was done since the start."""
        return WorkDone(
            max((each.rows_in for each in seen.operators.values()), default=0),
            sum(each.wall for name, each in seen.operators.items() if name not in self._waiting),
        )
