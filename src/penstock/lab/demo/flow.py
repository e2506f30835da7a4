"""Compose the demonstration's flow: each sensor's running statistics and a score, and a count in windows.

This is what a user of Penstock writes: functions of rows, and how they are joined.
"""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from penstock.lab.workloads.scatter import scatter

SENSORS = 2_000
HOT = 8
"""How many sensors are hot at a time: together they send half of all readings."""
HOT_ROWS = 40_000
"""For how many readings they stay hot."""
SPACING = dt.timedelta(microseconds=100)
"""From one reading to the next, by their own time."""
WINDOW = "2 s"
FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = {"at": pa.timestamp("us", "UTC"), "sensor": pa.int64(), "value": pa.float64()}
# A model of two inputs and some hidden units: enough plain Python for one core to be too little.
UNITS = [(math.sin(n), math.cos(3 * n), math.sin(7 * n) / 2, math.cos(11 * n) / 8) for n in range(1, 65)]

State = tuple[int, float, float]
"""How many readings, their mean, and the sum of squared distances from it."""


class Tracked(NamedTuple):
    """A reading beside what is usual for its sensor."""

    at: dt.datetime
    sensor: int
    value: float
    mean: float
    score: float
    unusual: bool


def track(state: State, reading: ps.Record) -> tuple[State, Tracked]:
    """Keep the running mean and spread of a sensor, and score how far off this reading is."""
    at, sensor, value = reading
    count, mean, squares = state
    spread = (squares / count) ** 0.5 if count else 0.0
    distance = value - mean
    score = sum(out * math.tanh(a * distance + b * spread + c) for a, b, c, out in UNITS)
    unusual = count >= 10 and abs(distance) > 3 * spread
    count += 1
    mean += distance / count
    squares += distance * (value - mean)
    return (count, mean, squares), Tracked(at, sensor, value, mean, score, unusual)


def readings(start: int, stop: int) -> pa.Table:
    """Make readings: a function of the row numbers alone, so that the check can make all of them again."""
    number = np.arange(start, stop, dtype=np.uint64)
    micros = number.astype(np.int64) * (SPACING // dt.timedelta(microseconds=1))
    noise = scatter(number)
    value = 20.0 + (scatter(noise) % np.uint64(2_000)).astype(np.float64) / 1_000
    value[noise % np.uint64(500) == 0] += 9.0  # now and then one is far off
    first = np.datetime64(FIRST.replace(tzinfo=None), "us").astype(np.int64)
    return pa.table({"at": pa.array(micros + first, SCHEMA["at"]), "sensor": sensors(start, stop), "value": value})


def sensors(start: int, stop: int) -> npt.NDArray[np.int64]:
    """Return the sensors of a range of readings: every other one is of the sensors that are hot then."""
    number = np.arange(start, stop, dtype=np.uint64)
    turn = number // np.uint64(HOT_ROWS)
    noise = scatter(number)
    hot = scatter(turn * np.uint64(HOT) + noise % np.uint64(HOT)) % np.uint64(SENSORS)
    any_other = (noise >> np.uint64(20)) % np.uint64(SENSORS)
    return np.where((noise >> np.uint64(10)) % np.uint64(2) == 0, hot, any_other).astype(np.int64)


def make_flow(source: Path, out: Path) -> ps.Flow:
    """Compose the flow over a directory that files are put into."""
    flow = ps.Flow("demo")
    reader = ps.read.parquet(str(source), schema=SCHEMA, follow=True)
    tracked = flow.source("readings", reader, time="at").key_by("sensor").scan(track, (0, 0.0, 0.0))
    tracked.sink("tracked", ps.write.parquet(str(out / "tracked")))
    unusual = tracked.filter(lambda reading: reading.unusual, name="unusual")
    return unusual.window(WINDOW).count(name="per_window").sink("counts", ps.write.parquet(str(out / "counts")))
