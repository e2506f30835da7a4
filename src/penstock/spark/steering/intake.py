"""Steer how much an epoch takes in, and how long it waits, against the latency target."""

from __future__ import annotations

from penstock.elastic.batch_size import BatchSize, BatchStatistics
from penstock.elastic.epoch_wait import EpochWait, PaceStatistics
from penstock.elastic.journal import Journal
from penstock.statistics import FlowStats

FIRST_ROWS = 100_000
"""What the first epoch takes in, at most: some tenths of a second."""
LEAST_ROWS = 100


class Intake:
    """The rows of an epoch and the time from one to the next; fixed where there is no target.

    The user bounds what each source gives, but a target is for the whole epoch: what that may take in is shared by as
    many sources as give rows.
    """

    def __init__(
        self,
        sources: list[str],
        journal: Journal,
        epoch: int,
        *,
        most_rows: int,
        every: float,
        sized: float | None,
        paced: float | None,
    ) -> None:
        """Steer the rows against the target `sized`, and the time against `paced`; what has none is left alone."""
        self._sources, self._journal, self._most_rows, self.every = sources, journal, most_rows, every
        self._sized, self._paced = sized is not None, paced is not None and every == 0
        self._last: tuple[float, int] | None = None
        self._width = float(len(sources))
        """How many times the rows of the source with the most rows an epoch has."""
        if sized is not None:
            low, high = min(LEAST_ROWS, most_rows), most_rows * len(sources)
            first = min(FIRST_ROWS, high)
            journal.begin("epoch/rows", BatchSize(low=low, high=high, initial=first, target=sized), epoch)
        if paced is not None and self._paced:
            journal.begin("epoch/every", EpochWait(paced), epoch)

    @property
    def rows(self) -> int:
        """Return how many rows the next epoch may take from each source."""
        if not self._sized:
            return self._most_rows
        size: int = self._journal.state("epoch/rows").size
        return max(1, min(self._most_rows, round(size / self._width)))

    def took(self, done: FlowStats) -> None:
        """See an epoch, and choose for the next."""
        if done.rows_in == 0:
            return
        # What is not sized takes all that there is.
        backlog = self._resize(done) if self._sized else 0
        if self._paced:
            seen = PaceStatistics(done.seconds + done.between, backlog)
            for action in self._journal.step("epoch/every", seen, done.epoch):
                if isinstance(action.after, float):
                    self.every = action.after

    def _resize(self, done: FlowStats) -> int:
        """Choose the rows of the next epoch; return how many are left over."""
        rows, seconds = done.rows_in, done.seconds
        most = max(done.operators[name].rows_in for name in self._sources)
        # Where nobody counts what waits, a source that gave all it might has some left.
        left: int = 2 * self._journal.state("epoch/rows").size if most >= self.rows else 0
        known, at = (done.backlog or 0) if done.knows_backlog else None, done.at
        backlog = left if known is None else known
        # Sources that join in count at once, those that pause by and by: they may be back with the next epoch.
        self._width = max(rows / most, 0.8 * self._width + 0.2 * rows / most)
        before, self._last = self._last, (at, backlog)
        arrivals = 0.0
        # The first epoch says nothing of how fast rows come. Where nobody knows what waits, a source may give as
        # much as is asked for: that is no rate to keep up with.
        if known is not None and before is not None and at > before[0]:
            arrivals = max(0, rows + backlog - before[1]) / (at - before[0])
        self._journal.step("epoch/rows", BatchStatistics(rows, seconds, arrivals, backlog), done.epoch)
        return backlog
