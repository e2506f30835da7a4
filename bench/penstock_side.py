"""Penstock as a side: a flow over a feed, idle until its next epochs are released."""

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import penstock as ps
from bench.sides import Epoch
from bench.stream import Feed


class PenstockSide:
    """Run a flow over a feed.

    An epoch takes the time from the moment that the engine looks for new rows to the committed manifest. With `spacing`
    it is the distance from one commit to the next, and the first of the epochs released together has none.
    """

    def __init__(
        self, feed: Feed, flow: Callable[[Feed], ps.Flow], checkpoint: Path, on: ps.Spark, spacing: bool = False
    ) -> None:
        self._feed, self._flow, self._checkpoint, self._on, self._spacing = feed, flow, checkpoint, on, spacing
        self._arrived = threading.Condition()
        self._epochs: list[tuple[int, float, float]] = []
        self._run: ps.Run | None = None

    def start(self, session: Any = None) -> None:
        """Start the flow, on another session where one is given; its directory is still empty."""
        on = self._on if session is None else replace(self._on, session=session)
        self._run = ps.start(self._flow(self._feed), on=on, checkpoint=str(self._checkpoint), on_epoch=self._took)

    @property
    def run(self) -> ps.Run:
        """Return the run, once the side is started."""
        assert self._run is not None, "start the side first"
        return self._run

    def run_epochs(self, n: int) -> list[Epoch]:
        """Release `n` epochs and return rows and seconds of each."""
        assert self._run is not None, "start the side first"
        self._epochs.clear()
        self._feed.release(n)
        with self._arrived:
            while len(self._epochs) < n:
                if not self._arrived.wait(timeout=1) and not self._run.running:
                    self._run.await_end()
                    raise RuntimeError("the flow ended before its input did")
        if not self._spacing:
            return [(rows, seconds) for rows, seconds, _ in self._epochs]
        return [(b[0], b[2] - a[2]) for a, b in pairwise(self._epochs)]

    def stop(self) -> None:
        """Stop the flow."""
        if self._run is not None:
            self._run.stop()
            self._run.await_end()
            self._run = None

    def _took(self, stats: Any) -> None:
        if stats.rows_in:
            with self._arrived:
                self._epochs.append((stats.rows_in, stats.seconds, perf_counter()))
                self._arrived.notify()
