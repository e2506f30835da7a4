"""Say what vehicles emit: the paper's (time, id, x, y, speed, acceleration, lane), tick by tick."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import FlowError

TICK_MS = 40
"""Every vehicle emits a row 25 times a second."""
LANES = 8
"""Lanes are numbered through: that of a road's lane is `road * LANES + lane`."""
END = -1
"""The id of the rows that end a tick; the first of them has how many vehicles are on each road."""
SPEED_STEPS = 1024
"""Speeds are multiples of 1 / 1024 m/s, so that sums of them are exact in whatever order they are added up."""

VEHICLE = {"time": int, "id": int, "x": float, "y": float, "speed": float, "acceleration": float, "lane": int}
"""What a vehicle emits; `time` is in milliseconds."""
SCHEMA = {**VEHICLE, "roads": list[int], "agents": list[int]}
"""Roads and how many vehicles are on each: what the simulator knows without counting, null but where a tick ends."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Load = Literal["constant", "rush-hour"]


@dataclass(frozen=True)
class Frame:
    """What all vehicles emit at one tick."""

    time: int
    id: Ints
    x: Floats
    y: Floats
    speed: Floats
    acceleration: Floats
    lane: Ints

    def agents_per_road(self) -> tuple[Ints, Ints]:
        """Return the roads that have vehicles, ascending, and how many each has."""
        return np.unique(self.lane // LANES, return_counts=True)

    def table(self, multiple: int = 1) -> pa.Table:
        """Return the rows, and after them one that ends the tick: it has the time of the next.

        A window closes when a later row comes; the end row spares queries to wait for the next tick. With a
        `multiple` there are as many end rows as make the number of rows a multiple of it, so that batches of that
        size hold one tick each.
        """
        ends = multiple - len(self.id) % multiple
        nothing = np.zeros(ends)
        speed = np.rint(self.speed * SPEED_STEPS) / SPEED_STEPS
        roads, agents = (_lists(values, len(self.id), ends) for values in self.agents_per_road())
        return pa.table(
            {
                "time": np.concatenate([np.full(len(self.id), self.time), np.full(ends, self.time + TICK_MS)]),
                "id": np.concatenate([self.id, np.full(ends, END)]),
                "x": np.concatenate([self.x, nothing]),
                "y": np.concatenate([self.y, nothing]),
                "speed": np.concatenate([speed, nothing]),
                "acceleration": np.concatenate([self.acceleration, nothing]),
                "lane": np.concatenate([self.lane, np.full(ends, -1)]),
                "roads": roads,
                "agents": agents,
            }
        )


def active(load: Load, vehicles: int, tick: int, ticks: int) -> int:
    """Return how many vehicles are on the road at a tick.

    A rush hour is the paper's morning from 8 to 12: it begins with a third of the vehicles, has all of them after
    three tenths of the time, and ends with a third again.
    """
    if load == "constant":
        return vehicles
    if load != "rush-hour":
        raise FlowError(f"load={load!r}; there are constant and rush-hour")
    part = tick / max(1, ticks - 1)
    return max(1, round(vehicles * (1 / 3 + 2 / 3 * math.exp(-(((part - 0.3) / 0.16) ** 2)))))


def _lists(values: Ints, before: int, ends: int) -> pa.ListArray:
    """Return a column of lists that is null but for the first row that ends the tick."""
    offsets = np.zeros(before + ends + 1, dtype=np.int32)
    offsets[before + 1 :] = len(values)
    absent = np.ones(before + ends, dtype=bool)
    absent[before] = False
    return pa.ListArray.from_arrays(offsets, values.astype(np.int64), mask=pa.array(absent))


def record(frames: Iterable[Frame], multiple: int = 1) -> pa.Table:
    """Keep a trace in memory, in one piece."""
    return pa.concat_tables([frame.table(multiple) for frame in frames]).combine_chunks()


def write(frames: Iterable[Frame], directory: Path, rows: int = 250_000) -> None:
    """Write a trace as Parquet files of about so many rows, whose names are in order."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(_pieces(frames, rows)):
        pq.write_table(table, directory / f"{number:06d}.parquet")


def _pieces(frames: Iterable[Frame], rows: int) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for frame in frames:
        waiting.append(frame.table())
        if sum(map(len, waiting)) >= rows:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
