"""Find cloned phones: a phone that was in two places with no time to travel between them (Ordered, figure 1).

Each call tells where two phones were, and when. Calls from numbers of one area are kept (1) and become two sightings
(2); a phone's sightings, one after the other, give the speed at which it must have travelled (3); impossible speeds are
kept (4), and counted in windows (5). Steps 1, 2 and 4 have no memory and run anywhere in parallel; 3 runs in parallel
for different phones; 5 sees everything. All of them keep the order of the calls.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock.annotated import Amount, Count, checked
from penstock.errors import FlowError
from penstock.lab.workloads.outputs import writer
from penstock.lab.workloads.scatter import Floats, Ints, Numbers, scatter, unit

AREAS = {206: (47.61, -122.33), 212: (40.71, -74.01), 312: (41.88, -87.63), 415: (37.77, -122.42)}
"""Area codes, and latitude and longitude of their cities."""
LIMIT_KMH = 1_000.0
"""Faster than any airliner."""
WINDOW = "10 min"
EARTH_KM = 6_371.0
FIRST_MICROS, DAY_MICROS = 1_767_571_200_000_000, 86_400_000_000  # 2026-01-05

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("area", pa.int64()),
        ("seconds", pa.int64()),
        ("caller", pa.int64()),
        ("caller_lat", pa.float64()),
        ("caller_lon", pa.float64()),
        ("callee", pa.int64()),
        ("callee_lat", pa.float64()),
        ("callee_lon", pa.float64()),
    ]
)


class Sighting(NamedTuple):
    """Where a phone was."""

    at: dt.datetime
    phone: int
    lat: float
    lon: float


class Speed(NamedTuple):
    """How fast a phone must have travelled from its last sighting to this one."""

    at: dt.datetime
    phone: int
    km: float
    kmh: float


def sightings(call: ps.Record) -> Iterator[Sighting]:
    """Write down where both phones of a call were."""
    yield Sighting(call.at, call.caller, call.caller_lat, call.caller_lon)
    yield Sighting(call.at, call.callee, call.callee_lat, call.callee_lon)


def speed(last: Sighting | None, seen: Sighting) -> tuple[Sighting, Speed]:
    """Compare two sightings of one phone; the state is the last of them."""
    if last is None:
        return seen, Speed(seen.at, seen.phone, 0.0, 0.0)
    km = distance_km(last.lat, last.lon, seen.lat, seen.lon)
    seconds = (seen.at - last.at).total_seconds()
    # Two calls may begin in the same second: that is no time to travel either, and no reason to divide by nothing.
    return seen, Speed(seen.at, seen.phone, km, 3_600.0 * km / max(seconds, 1.0))


def distance_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Measure along the surface of the earth (the haversine formula)."""
    north, east = radians(other_lat - lat) / 2, radians(other_lon - lon) / 2
    chord = sin(north) ** 2 + cos(radians(lat)) * cos(radians(other_lat)) * sin(east) ** 2
    return 2 * EARTH_KM * asin(sqrt(min(1.0, chord)))


def detect(calls: ps.Stream, area: int, kmh: float = LIMIT_KMH) -> tuple[ps.Stream, ps.Stream]:
    """Hang the figure's five operators under a stream of calls; return the cases, and their counts."""
    local = calls.filter(pc.field("area") == area, name="area")  # (1)
    seen = local.flat_map(sightings)  # (2)
    speeds = seen.key_by("phone").scan(speed)  # (3)
    cases = speeds.filter(lambda each: each.kmh > kmh, name="too_fast")  # (4)
    return cases, cases.window(WINDOW).count(name="count")  # (5)


@checked
def mobile_fraud(
    *, calls: Amount = 200_000, phones: Count = 20_000, area: int = 206, seed: int = 0, out: str = ""
) -> ps.Flow:
    """Find phones that travel faster than any airliner.

    `out` is the directory that cases and counts are written to as Parquet; without it some of them are printed.
    """
    if area not in AREAS:
        raise FlowError(f"area={area}; the calls are of {', '.join(map(str, AREAS))}")
    flow = ps.Flow("mobile-fraud")
    source = ps.read.generate(Calls(phones, seed), schema=SCHEMA, rows=calls)
    cases, counts = detect(flow.source("calls", source, time="at"), area)
    cases.sink("cases", writer(out, "cases"))
    counts.sink("counts", writer(out, "counts"))
    return flow


def calls(rows: int, seed: int = 0) -> pa.Table:
    return Calls(seed=seed)(0, rows)


@dataclass(frozen=True)
class Calls:
    """Make call records: people stay about their city, and one phone in 200 has a twin in another."""

    phones: int = 20_000
    seed: int = 0

    def __call__(self, start: int, stop: int) -> pa.Table:
        number = np.arange(start, stop, dtype=np.int64)
        micros = number * 20_000  # fifty calls a second
        noise = scatter(number, self.seed, 1)
        caller = (noise % np.uint64(self.phones)).astype(np.int64)
        callee = ((noise >> np.uint64(20)) % np.uint64(self.phones)).astype(np.int64)
        area, *caller_at = self._place(caller, micros, (noise >> np.uint64(62)) & np.uint64(1))
        _, *callee_at = self._place(callee, micros, noise >> np.uint64(63))
        seconds = 1 + (600 * unit(noise, 40) ** 2).astype(np.int64)
        columns = [micros + FIRST_MICROS, area, seconds, caller, *caller_at, callee, *callee_at]
        return pa.table(columns, names=SCHEMA.names).cast(SCHEMA)

    def _place(self, phone: Ints, micros: Ints, which: Numbers) -> tuple[Ints, Floats, Floats]:
        """Find the area code of a phone, and where it is: it goes round a part of its city once a day."""
        codes, cities = np.array(list(AREAS)), np.array(list(AREAS.values()))
        noise = scatter(phone, self.seed, 2)
        home = (noise % np.uint64(len(codes))).astype(np.int64)
        city = np.where(phone % 200 == 0, home + which.astype(np.int64), home) % len(codes)
        angle = 2 * np.pi * (micros / DAY_MICROS + unit(noise, 40))
        lat = cities[city, 0] + 0.2 * unit(noise, 8) + 0.05 * np.sin(angle)
        lon = cities[city, 1] + 0.2 * unit(noise, 24) + 0.05 * np.cos(angle)
        return codes[home], lat, lon
