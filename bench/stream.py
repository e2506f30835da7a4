"""Pace a streaming query epoch by epoch, and read from its progress what each epoch took."""

import os
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from bench.sides import Epoch


class Feed:
    """A watched directory that receives prepared epochs of files, whole epochs at a time."""

    def __init__(self, root: Path, epochs: Sequence[Sequence[Path]]) -> None:
        self.watched = root / "watched"
        self._staging = root / "staging"
        self._epochs = epochs
        self._released = 0
        self.watched.mkdir(parents=True)
        self._staging.mkdir()

    def release(self, n: int) -> None:
        """Let the next `n` epochs appear, each by one rename so that no reader sees a part of it."""
        if self._released + n > len(self._epochs):
            raise ValueError(f"{len(self._epochs)} epochs are prepared: there are not {n} more")
        for number in range(self._released, self._released + n):
            staged = self._staging / f"{number:06d}"
            staged.mkdir()
            for path in self._epochs[number]:
                try:
                    os.link(path, staged / path.name)
                except OSError:  # another file system
                    shutil.copy2(path, staged / path.name)
            if len(self._epochs[number]) == 1:
                # Without a directory of its own: queries list the directories again at every look.
                (only,) = staged.iterdir()
                only.rename(self.watched / only.name)
            else:
                staged.rename(self.watched / staged.name)
        self._released += n

    @property
    def files_per_epoch(self) -> int:
        """Return how many files an epoch has."""
        return len(self._epochs[0])

    def read(self, session: SparkSession, schema: str) -> DataFrame:
        """Return the stream of the watched directory, one released epoch a micro-batch."""
        reader = session.readStream.schema(schema).option("maxFilesPerTrigger", self.files_per_epoch)
        return reader.option("recursiveFileLookup", "true").parquet(str(self.watched))


class StreamSide:
    """A streaming query over a feed, as a side: idle until its next epochs are released.

    With `spacing` an epoch's time is the distance from its trigger to the next one, and the last
    of the epochs released together has none; otherwise it is the trigger's own execution time.
    """

    def __init__(self, feed: Feed, query: Callable[[Feed], StreamingQuery], spacing: bool = False) -> None:
        self._feed = feed
        self._make = query
        self._spacing = spacing
        self._query: StreamingQuery | None = None
        self._last_batch = -1

    def start(self) -> None:
        """Start the query; its directory is still empty."""
        self._query = self._make(self._feed)

    def run_epochs(self, n: int) -> list[Epoch]:
        """Release `n` epochs, wait for the query to commit them, and return rows and seconds of each."""
        assert self._query is not None, "start the side first"
        self._feed.release(n)
        progress: list[StreamingQueryProgress] = []
        while len(progress) < n:
            # Returns at the first trigger that finds nothing new, which may have listed before the release.
            self._query.processAllAvailable()
            progress = [
                each for each in self._query.recentProgress if each.numInputRows > 0 and each.batchId > self._last_batch
            ]
        self._last_batch = progress[-1].batchId
        if self._spacing:
            starts = [datetime.fromisoformat(each.timestamp) for each in progress]
            seconds = [(b - a).total_seconds() for a, b in pairwise(starts)]
        else:
            seconds = [each.durationMs["triggerExecution"] / 1000 for each in progress]
        return [(each.numInputRows, taken) for each, taken in zip(progress, seconds, strict=False)]

    def stop(self) -> None:
        """Stop the query."""
        if self._query is not None:
            self._query.stop()
            self._query = None
