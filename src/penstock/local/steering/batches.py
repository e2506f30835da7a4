"""Steer how many rows a batch takes at most: more when the flow falls behind, fewer when that costs latency."""

from __future__ import annotations

from collections.abc import Callable

from penstock.elastic.base import Action
from penstock.elastic.batch_size import BatchSize, BatchStatistics
from penstock.local.sizing import FEWEST_ROWS, MOST_ROWS
from penstock.local.steering.base import Period

SETTLED_PERIODS = 4
SHORTEST_SECONDS = 0.01
"""What a batch should take, at least, where there is no target: rows that come seldom wait for no others anyway, and
when many come at once, the size must not have far to go."""
LONGEST_SECONDS = 0.25
"""What a batch may take, at most, when it is made larger to catch up: no batch has fixed costs that are worth more."""


class BatchSteering:
    """Set the size of batches, once the number of workers has settled; for a latency target at once."""

    name = "batches"

    def __init__(
        self,
        set_rows: Callable[[int], None],
        get_rows: Callable[[], int],
        initial: int,
        target: float | None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """With its first step the size is this controller's alone: `begin` tells who had it until then."""
        self._set_rows, self._get_rows, self._begin = set_rows, get_rows, begin
        longest = LONGEST_SECONDS if target is None else min(LONGEST_SECONDS, target / 2)
        self.controller = BatchSize(
            low=FEWEST_ROWS,
            high=MOST_ROWS,
            initial=initial,
            target=target,
            longest=longest,
            shortest=SHORTEST_SECONDS if target is None else 0.0,
        )

    def measure(self, period: Period) -> BatchStatistics | None:
        """Tell what a batch took, what came in and what waits; a source that gives less than a batch is no load."""
        done = period.done
        batches, came, rows = done.batches_out, done.batches_in, done.rows_in
        workers = max(1, len(period.now.workers))
        if min(batches, came, rows) <= 0 or period.seconds <= 0:
            return None
        wait = self.controller.target is None
        if wait and not all(period.settled(each, SETTLED_PERIODS) for each in ("threads", "pool")):
            return None
        self._begin()
        size = rows / came
        waiting = period.now.in_flight * size
        return BatchStatistics(size, done.worked / workers / batches, rows / done.seconds, waiting, self._get_rows())

    def act(self, action: Action) -> None:
        if action.what == "batch_rows" and isinstance(action.after, int):
            self._set_rows(action.after)
