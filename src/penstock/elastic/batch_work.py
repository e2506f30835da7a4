"""Choose how many rows the first batches of a flow take, from what rows have taken so far.

A batch costs some tenths of a millisecond beside its rows, so cheap rows should go together in large ones. Rows that
are expensive should not: a large batch would keep its worker, and everything after it, for seconds. So a batch is to be
a given amount of work, by the rows of late: what is imported and compiled once is no work of rows.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Report what was done since the last step."""

    rows: int
    """Rows of the operator that got most."""
    seconds: float
    """Seconds that workers spent in operators, but for those whose rows wait."""


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Hold the bounds, and the work that a batch should be."""

    name: ClassVar[str] = "batch_work"

    low: int = 64
    high: int = 16_384
    initial: int = 256
    seconds: float = 0.04

    def start(self) -> int:
        return clamp(self.initial, self.low, self.high)

    def step(self, state: int, statistics: WorkDone) -> tuple[int, Actions]:
        rows, seconds, size = statistics.rows, statistics.seconds, state
        if rows <= 0:
            return size, ()
        wanted = clamp(int(self.seconds * rows / seconds), self.low, self.high) if seconds > 0 else self.high
        while size >= 2 * wanted:
            size //= 2
        while 2 * size <= wanted:
            size *= 2
        if size == state:
            return size, ()
        why = f"{rows:,} rows took {seconds:.3g} s of work: {size:,} rows are about {size * seconds / rows:.3g} s"
        return size, (Action("batch_rows", "", state, size, why),)
