"""Find how many rows the first batches should take, where nobody has said it, until a flow is steered by its periods.

Looks come soon after the start and then more and more seldom. They are logged like all other decisions.
"""

from __future__ import annotations

from collections.abc import Container

from penstock.elastic.batch_size import BatchWork, WorkDone
from penstock.statistics import FlowStats

FIRST_ROWS = 32
"""Rows of the first batches: so few that expensive ones are soon known to be expensive."""
FEWEST_ROWS = 16
"""What a batch costs beside its rows is then little for each, even where what rows take was measured far too high."""
MOST_ROWS = 16_384
"""So many batches may be in the flow at once that larger ones would take more memory than they save time."""
WORK_SECONDS = 0.04
"""The work that a batch should be, by the clock, and so with the time in which its workers wait for each other."""
PIECES = 32
"""Batches that are made of one while the flow keeps up: about a millisecond of work each, or a row."""
CALM_POLLS = 4
"""How often sources may have rows, one time after the other, before the flow counts as one that does not keep up: rows
that came together after a hiccup need not wait for each other either."""
FIRST_LOOK = 4
"""Batches before the first look; then it is twice as many each time."""


class Sizing:
    """Say when to look at the size of batches, and what a controller is to see; rows that wait are no work."""

    name = "first batches"

    def __init__(self, waiting: Container[str] = ()) -> None:
        self.controller = BatchWork(FEWEST_ROWS, MOST_ROWS, FIRST_ROWS, WORK_SECONDS)
        self._waiting, self._next, self._last = waiting, FIRST_LOOK, FlowStats()

    def is_due(self, batches: int) -> bool:
        """Tell whether it is time for another look."""
        return batches >= self._next

    def looked(self, seen: FlowStats) -> None:
        """Note what was seen at a look that was taken."""
        self._next, self._last = 2 * seen.batches_in, seen

    def measure(self, seen: FlowStats) -> WorkDone:
        """Tell what was done since the last look."""
        done = seen.since(self._last).operators
        return WorkDone(
            max((each.rows_in for each in done.values()), default=0),
            sum(each.wall for name, each in done.items() if name not in self._waiting),
        )
