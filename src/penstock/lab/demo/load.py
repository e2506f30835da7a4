"""Put files of readings into a directory as time goes by: the load doubles, doubles again, and falls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

from penstock.lab.demo.flow import SCHEMA, State, readings, track
from penstock.rows.row_types import row_type

SHARES = (0.3, 0.6, 1.2, 0.3)
"""The load in each quarter of the stream, in cores that the function needs."""
EVERY_SECONDS = 0.25
"""From file to file."""
_PROBED = 4_000


def one_core(clock: Callable[[], float] = time.process_time) -> float:
    """Return how many readings per second one core of this machine tracks."""
    kind = row_type(SCHEMA, "readings")
    assert kind is not None
    rows = kind.decode(readings(0, _PROBED).cast(kind.schema))
    states: dict[int, State] = {}
    began = clock()
    for row in rows:
        states[row.sensor], _ = track(states.get(row.sensor, (0, 0.0, 0.0)), row)
    return _PROBED / max(clock() - began, 1e-3)


def schedule(seconds: float, rate: float) -> Iterator[int]:
    """Return how many readings come in each file, for a machine of which one core tracks `rate` a second."""
    files = max(len(SHARES), round(seconds / EVERY_SECONDS))
    for number in range(files):
        yield max(1, round(SHARES[number * len(SHARES) // files] * rate * EVERY_SECONDS))


class Load(threading.Thread):
    """Writes the files, each under a hidden name first: a file appears whole."""

    def __init__(self, directory: Path, files: list[int]) -> None:
        super().__init__(daemon=True, name="penstock-demo-load")
        self.written = 0
        """Readings in files that are there."""
        self.total = sum(files)
        self._directory, self._files = directory, files
        self._stopped = threading.Event()
        directory.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        began = time.monotonic()
        for number, count in enumerate(self._files):
            if self._stopped.wait(max(0.0, began + number * EVERY_SECONDS - time.monotonic())):
                return
            hidden, shown = self._directory / ".next", self._directory / f"{number:05d}.parquet"
            pq.write_table(readings(self.written, self.written + count), hidden)
            os.replace(hidden, shown)
            self.written += count

    def stop(self) -> None:
        self._stopped.set()
        self.join()
