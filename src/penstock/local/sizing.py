"""Find how many rows a batch should take, from what the first ones took, where nobody has said it.

A batch costs some tenths of a millisecond beside its rows, so cheap rows should go together in large ones. Rows that
are dear should not: a large batch would keep its worker, and everything behind it, for seconds.
"""

from __future__ import annotations

from collections.abc import Container

from penstock.pe.statistics import ElementStats

FIRST_ROWS = 256
"""Rows of the first batches: so few that dear ones are soon known to be dear."""
FEWEST_ROWS = 64
MOST_ROWS = 16_384
"""So many batches may be in the flow at once that larger ones would take more memory than they save time."""
WORK_SECONDS = 0.04
"""The work that a batch should be, by the clock, and so with the time in which its workers wait for each other."""
FIRST_LOOK = 4
"""Batches before the first look; then it is twice as many each time."""


class Sizing:
    """Choose the size of batches by the work that rows were lately, but for operators whose rows wait."""

    def __init__(self, waiting: Container[str] = ()) -> None:
        self.rows = FIRST_ROWS
        self._waiting, self._next = waiting, FIRST_LOOK
        self._done, self._work = 0, 0.0

    def is_due(self, batches: int) -> bool:
        """Tell whether it is time for another look."""
        return batches >= self._next

    def look(self, seen: ElementStats) -> int:
        """Return the size of the next batches; it changes by a factor of two or more, or stays."""
        self._next = 2 * seen.batches_in
        # Since the last time: what is imported and compiled once is no work of rows.
        done, work = self._done, self._work
        self._done = max((each.rows_in for each in seen.operators), default=0)
        self._work = sum(each.wall for each in seen.operators if each.name not in self._waiting)
        done, work = self._done - done, self._work - work
        if done <= 0:
            return self.rows
        wanted = min(MOST_ROWS, max(FEWEST_ROWS, int(WORK_SECONDS * done / work))) if work > 0 else MOST_ROWS
        while self.rows >= 2 * wanted:
            self.rows //= 2
        while 2 * self.rows <= wanted:
            self.rows *= 2
        return self.rows
