"""Mobile fraud against NumPy over all calls at once, on every engine."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.lab.workloads.mobile_fraud import SCHEMA, Calls, calls, detect, distance_km

PHONES, CALLS, AREA, LIMIT = 2_000, 80_000, 206, 1_000.0
START = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
MICROS = 600_000_000
"""Ten minutes."""


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Take the calls of every 40th phone: many are of cloned ones, and forty minutes fit in a small test."""
    made = Calls(PHONES, 3)(0, CALLS)
    return made.filter(made["caller"].to_numpy() % 40 == 0)


def impossible_travel(table: pa.Table) -> tuple[list[tuple[int, int, float, float]], list[tuple[int, int]]]:
    """Find the cases (micros, phone, km, km/h) and the counts (window, cases) by sorting, and by chords of a sphere."""
    local = table.filter(np.asarray(table["area"]) == AREA)
    both = [[f"{who}{field}" for who in ("caller", "callee")] for field in ("", "_lat", "_lon")]
    phone, lat, lon = (np.stack([local[name].to_numpy() for name in names], axis=1).ravel() for names in both)
    at = np.repeat(local["at"].cast(pa.int64()).to_numpy(), 2)
    order = np.argsort(phone, kind="stable")  # a phone's sightings one behind the other, in order
    north, east = np.radians(lat[order]), np.radians(lon[order])
    point = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1)
    chord = np.linalg.norm(np.diff(point, axis=0), axis=1)
    km = 2 * 6_371.0 * np.arcsin(chord / 2)
    hours = np.maximum(np.diff(at[order]) / 1e6, 1.0) / 3_600
    fast = np.flatnonzero((np.diff(phone[order]) == 0) & (km / hours > LIMIT))
    cases = sorted((order[i + 1], km[i], km[i] / hours[i]) for i in fast)
    windows, counts = np.unique([at[i] // MICROS for i, _, _ in cases], return_counts=True)
    return (
        [(at[i], phone[i], length, speed) for i, length, speed in cases],
        list(zip((windows * MICROS).tolist(), counts.tolist(), strict=True)),
    )


def test_cases_and_counts_as_by_numpy(table: pa.Table, results_of: Any):
    flow = ps.Flow("fraud")
    stream = flow.source("calls", ps.read.items(table.to_pylist(), schema=SCHEMA), time="at")
    cases, counts = detect(stream, AREA, LIMIT)
    cases.sink("cases")
    counts.sink("counts")
    found = results_of(flow, 800)
    expected_cases, expected_counts = impossible_travel(table)
    assert len(expected_cases) > 20
    assert len(expected_counts) > 2
    assert [(micros(case.at), case.phone) for case in found["cases"]] == [case[:2] for case in expected_cases]
    # Another formula for the distance, so the last digits differ.
    measured = [(case.km, case.kmh) for case in found["cases"]]
    np.testing.assert_allclose(measured, [case[2:] for case in expected_cases], rtol=1e-9)
    assert [(micros(row.window_start), row["count"]) for row in found["counts"]] == expected_counts


def micros(at: dt.datetime) -> int:
    return (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


class TestCalls:
    def test_only_cloned_phones_are_too_fast(self, table: pa.Table):
        cases, _ = impossible_travel(table)
        assert {phone % 200 for _, phone, _, _ in cases} == {0}

    def test_any_piece_is_the_same_as_in_the_whole(self):
        made = Calls(100, 5)
        assert pa.concat_tables([made(0, 7), made(7, 50)]) == made(0, 50)
        assert calls(50, seed=1) != calls(50, seed=2)
        assert calls(50)["at"][0].as_py() == START


def test_distances_that_are_known():
    assert distance_km(0.0, 0.0, 0.0, 180.0) == pytest.approx(np.pi * 6_371.0)
    assert distance_km(52.52, 13.405, 52.52, 13.405) == 0.0
    assert distance_km(40.71, -74.01, 51.51, -0.13) == pytest.approx(5_570, rel=0.01)  # New York to London
