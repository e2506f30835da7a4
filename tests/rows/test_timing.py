"""Durations and event times in whole ticks."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FlowError
from penstock.rows.timing import (
    BEFORE,
    FOREVER,
    column_ticks,
    kind_of,
    same_unit,
    seconds,
    ticks,
    ticks_to_time,
    time_to_ticks,
    time_type,
)

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("1 us", 1),
        ("500 ms", SECOND // 2),
        ("30 s", 30 * SECOND),
        ("30s", 30 * SECOND),
        ("1 sec", SECOND),
        ("2 seconds", 2 * SECOND),
        ("10 min", 600 * SECOND),
        ("10 minutes", 600 * SECOND),
        ("1.5 h", 5400 * SECOND),
        ("1 h 30 min", 5400 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1 DAY", 86400 * SECOND),
        ("2 weeks", 14 * 86400 * SECOND),
        (" 1 s ", SECOND),
        (dt.timedelta(minutes=1, microseconds=1), 60 * SECOND + 1),
    ],
)
def test_durations(duration, expected):
    assert ticks(duration, "op") == (expected, "timestamp")


def test_integers_are_in_the_unit_of_the_field():
    assert ticks(10, "op") == (10, "integer")


@pytest.mark.parametrize("duration", ["", "ten", "10", "10 parsecs", "-5 s", "5 s!", "s 5", 1.5, True, None, [1]])
def test_what_is_no_duration(duration):
    with pytest.raises(FlowError, match=r"operator 'op': gap=.* is no duration; write"):
        ticks(duration, "op", "gap")


def test_same_unit():
    assert same_unit(5, "integer", "op", "every") == 5
    assert same_unit("5 s", "timestamp", "op", "every") == 5 * SECOND
    assert same_unit(0, "timestamp", "op", "offset") == 0
    with pytest.raises(FlowError, match="operator 'op': every=5 and the size have different units"):
        same_unit(5, "timestamp", "op", "every")


def test_wall_clock_durations():
    assert (seconds("500 ms", "every"), seconds(2, "every"), seconds(dt.timedelta(minutes=1), "every")) == (
        0.5,
        2,
        60,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (-7, -7),
        (np.int32(7), 7),
        (dt.datetime(1970, 1, 1, 0, 0, 1), SECOND),
        (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), SECOND),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), -1),
        (dt.date(1970, 1, 2), 86400 * SECOND),
    ],
)
def test_event_times(value, expected):
    assert time_to_ticks(value) == expected


@pytest.mark.parametrize("value", [None, 1.5, "now", True])
def test_what_is_no_time(value):
    with pytest.raises(TypeError, match="a time must be a datetime or an integer, not"):
        time_to_ticks(value)


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_timestamps_come_back(moment):
    assert ticks_to_time(time_to_ticks(moment), "timestamp") == moment


def test_integers_are_shown_as_they_are():
    assert ticks_to_time(-3, "integer") == -3


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [3, -4]),
        (pa.int32(), [3, -4]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
        (pa.timestamp("us"), [dt.datetime(1969, 1, 1)]),
        (pa.timestamp("ms"), [dt.datetime(2024, 1, 1, 1, 2, 3)]),
        (pa.date32(), [dt.date(2024, 1, 1), dt.date(1960, 1, 1)]),
    ],
)
def test_a_column_of_times_reads_as_its_values(kind, values):
    found = column_ticks(pa.array(values, kind))
    assert found.dtype == np.int64
    assert found.tolist() == [time_to_ticks(value) for value in values]


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_a_null_in_a_column_of_times_is_nothing(kind):
    """Whoever reads such a column looks for nulls itself: they have no time."""
    assert column_ticks(pa.array([None, None], kind)).tolist() == [0, 0]


def test_kinds():
    kinds = (pa.timestamp("ns", "UTC"), pa.timestamp("ns"), pa.date32(), pa.int16(), pa.float64(), pa.string())
    assert [kind_of(kind) for kind in kinds] == [
        "timestamp",
        "naive timestamp",
        "timestamp",
        "integer",
        None,
        None,
    ]
    assert time_type("naive timestamp") == pa.timestamp("us")
    assert time_type("timestamp") == pa.timestamp("us", "UTC")
    assert time_type("integer") == pa.int64()


def test_ends_fit_in_64_bits_with_room():
    """Engines keep marks in int64 columns, and add window sizes to them."""
    assert 2 * FOREVER <= 2**63
    assert BEFORE == -FOREVER
