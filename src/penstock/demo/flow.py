"""Compose the demonstration's flow: running statistics of each sensor, and a count in windows.

This is what a user of Penstock writes: functions of rows, and how they are joined.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from penstock.workloads.scatter import scatter

SENSORS = 2_000
HOT = 8
"""How many sensors are hot at a time: together they send half of all readings."""
HOT_SECONDS = 5
"""How long they stay hot, in the time of the stream."""
WINDOW = "5 s"
FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = {"at": pa.timestamp("us", "UTC"), "sensor": pa.int64(), "value": pa.float64()}

State = tuple[int, float, float]
"""How many readings, their mean, and the sum of squared distances from it."""


class Tracked(NamedTuple):
    """A reading beside what is usual for its sensor."""

    at: dt.datetime
    sensor: int
    value: float
    mean: float
    spread: float
    unusual: bool


def track(state: State, reading: ps.Record) -> tuple[State, Tracked]:
    """Keep the running mean and spread of a sensor, and tell whether this reading is far off."""
    at, sensor, value = reading
    count, mean, squares = state
    spread = (squares / count) ** 0.5 if count else 0.0
    unusual = count >= 10 and abs(value - mean) > 3 * spread
    count += 1
    distance = value - mean
    mean += distance / count
    squares += distance * (value - mean)
    return (count, mean, squares), Tracked(at, sensor, value, mean, spread, unusual)


@dataclass(frozen=True)
class Readings:
    """Make readings: a function of the row numbers alone, so that any task can make any of them again."""

    rows_per_second: int

    def __call__(self, start: int, stop: int) -> pa.Table:
        number = np.arange(start, stop, dtype=np.uint64)
        micros = number.astype(np.int64) * 1_000_000 // self.rows_per_second
        noise = scatter(number)
        value = 20.0 + (scatter(noise) % np.uint64(2_000)).astype(np.float64) / 1_000
        value[noise % np.uint64(500) == 0] += 9.0  # now and then one is far off
        first = np.datetime64(FIRST.replace(tzinfo=None), "us").astype(np.int64)
        return pa.table(
            {"at": pa.array(micros + first, SCHEMA["at"]), "sensor": self.sensors(start, stop), "value": value}
        )

    def sensors(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the sensors of a range of rows: every other row is one of the sensors that are hot then."""
        number = np.arange(start, stop, dtype=np.uint64)
        turn = number // np.uint64(self.rows_per_second * HOT_SECONDS)
        noise = scatter(number)
        hot = scatter(turn * np.uint64(HOT) + noise % np.uint64(HOT)) % np.uint64(SENSORS)
        any_other = (noise >> np.uint64(20)) % np.uint64(SENSORS)
        return np.where((noise >> np.uint64(10)) % np.uint64(2) == 0, hot, any_other).astype(np.int64)


def make_flow(readings: Readings, rows: int, out: Path) -> ps.Flow:
    """Compose the flow; it ends behind `rows` readings."""
    flow = ps.Flow("demo")
    source = ps.read.generate(readings, schema=SCHEMA, rows_per_second=readings.rows_per_second, rows=rows)
    tracked = flow.source("readings", source, time="at").key_by("sensor").scan(track, (0, 0.0, 0.0))
    tracked.sink("tracked", ps.write.parquet(str(out / "tracked")))
    unusual = tracked.filter(lambda reading: reading.unusual, name="unusual")
    return unusual.window(WINDOW).count(name="per_window").sink("counts", ps.write.parquet(str(out / "counts")))
