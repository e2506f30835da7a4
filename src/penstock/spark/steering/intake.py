"""Steer how much an epoch takes in, and how long it waits, against the latency target."""

from __future__ import annotations

from penstock.elastic.batch_size import BatchSize, BatchStatistics
from penstock.elastic.epoch_wait import EpochWait, PaceStatistics
from penstock.elastic.journal import Journal
from penstock.spark.steering.measured import Measured

FIRST_ROWS = 100_000
"""What the first epoch takes in, at most: some tenths of a second."""
LEAST_ROWS = 100


class Intake:
    """The rows of an epoch and the time from one to the next; fixed where there is no target."""

    def __init__(self, journal: Journal, epoch: int, *, most_rows: int, every: float, target: float | None) -> None:
        self._journal, self.rows, self.every = journal, most_rows, every
        self._sized = target is not None
        self._paced = target is not None and every == 0
        self._last: tuple[float, int] | None = None
        if target is not None:
            low, first = min(LEAST_ROWS, most_rows), min(FIRST_ROWS, most_rows)
            journal.begin("epoch/rows", BatchSize(low=low, high=most_rows, initial=first, target=target), epoch)
            self.rows = first
            if self._paced:
                journal.begin("epoch/every", EpochWait(target), epoch)

    def took(self, measured: Measured, at: float, epoch: int) -> None:
        """See an epoch that was done at a time, and choose for the next."""
        if not self._sized or measured.stats.rows_in == 0:
            return
        # Where nobody counts what waits, an epoch that took all it might has left some.
        full = measured.stats.rows_in >= self.rows
        backlog = (2 * self.rows if full else 0) if measured.backlog is None else measured.backlog
        before, self._last = self._last, (at, backlog)
        rows, seconds = measured.stats.rows_in, measured.stats.seconds
        arrivals = 0.0
        # The first epoch says nothing of how fast rows come. Where nobody knows what waits, a source may give as
        # much as is asked for: that is no rate to keep up with.
        if measured.backlog is not None and before is not None and at > before[0]:
            arrivals = max(0, rows + backlog - before[1]) / (at - before[0])
        for action in self._journal.step("epoch/rows", BatchStatistics(rows, seconds, arrivals, backlog), epoch):
            if action.what == "batch_rows" and isinstance(action.after, int):
                self.rows = action.after
        if self._paced:
            for action in self._journal.step("epoch/every", PaceStatistics(seconds, backlog), epoch):
                if isinstance(action.after, float):
                    self.every = action.after
