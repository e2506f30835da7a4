"""Measure event time in whole ticks: microseconds for timestamps, the user's own unit for integers."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import FlowError

Ticks = int
Unit = Literal["timestamp", "integer"]
"""What durations are given in: microseconds, or whatever an integer field counts."""
TimeKind = Literal["timestamp", "naive timestamp", "integer"]
"""What an event time is for the user: a moment in UTC, a date and time of day without a zone, or a number."""


class Arrival:
    """Stands for the time of day at which rows arrive, where the name of a field would."""

    def __repr__(self) -> str:
        return "ps.arrival"


arrival = Arrival()
"""The time of rows is when they arrive: `flow.source(..., time=ps.arrival)`."""
FOREVER: Ticks = 1 << 62
"""The mark at the end of a source: later than every time."""
BEFORE: Ticks = -(1 << 62)
"""The mark before the first row."""

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NAIVE_EPOCH = dt.datetime(1970, 1, 1)

Duration = str | int | dt.timedelta


def ticks(duration: Duration, operator: str, option: str = "size") -> tuple[Ticks, Unit]:
    """Read a duration: "10 min", a timedelta, or an integer in the time field's own unit."""
    if isinstance(duration, bool) or not isinstance(duration, (str, int, dt.timedelta)):
        raise FlowError(
            f'operator {operator!r}: {option}={duration!r} is no duration; write "10 min", a timedelta, '
            f"or an integer in the unit of the time field"
        )
    if isinstance(duration, int):
        return duration, "integer"
    if isinstance(duration, dt.timedelta):
        return duration // dt.timedelta(microseconds=1), "timestamp"
    total, position = 0.0, 0
    for match in _DURATION.finditer(duration):
        unit = match[2].lower()
        unit = unit if unit in _UNITS else unit.removesuffix("s")
        if match.start() != position or unit not in _UNITS:
            break
        total += float(match[1]) * _UNITS[unit]
        position = match.end()
    if position != len(duration) or position == 0:
        raise FlowError(
            f'operator {operator!r}: {option}={duration!r} is no duration; write for example "500 ms", '
            f'"30 s", "10 min", "1 hour"'
        )
    return round(total), "timestamp"


def signed_ticks(duration: Duration, operator: str, option: str) -> tuple[Ticks, Unit]:
    """Read a duration that may be negative, such as "-5 min"."""
    if isinstance(duration, str) and duration.lstrip().startswith("-"):
        amount, unit = ticks(duration.lstrip()[1:], operator, option)
        return -amount, unit
    return ticks(duration, operator, option)


def same_unit(duration: Duration, kind: Unit, operator: str, option: str) -> Ticks:
    """Read a duration that must have the unit of another; 0 fits every unit."""
    amount, unit = ticks(duration, operator, option)
    if unit != kind and amount != 0:
        raise FlowError(
            f"operator {operator!r}: {option}={duration!r} and the size have different units; give both as "
            f"integers, or both as durations"
        )
    return amount


def seconds(duration: str | float | dt.timedelta, option: str, operator: str = "run") -> float:
    """Read a wall-clock duration in seconds: "500 ms", a timedelta, or a number of seconds."""
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        return float(duration)
    return ticks(duration, operator, option)[0] / 1e6


def time_to_ticks(value: Any) -> Ticks:
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (aware - EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return time_to_ticks(dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC))
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise TypeError(f"a time must be a datetime or an integer, not {value!r}")


def ticks_to_time(value: Ticks, kind: TimeKind) -> Any:
    if kind == "integer":
        return value
    epoch = EPOCH if kind == "timestamp" else _NAIVE_EPOCH
    return (
        dt.datetime.max.replace(tzinfo=epoch.tzinfo) if value == FOREVER else epoch + dt.timedelta(microseconds=value)
    )


def unit_of(kind: TimeKind | None) -> Unit | None:
    """Tell what durations beside times of a kind are given in."""
    return "timestamp" if kind == "naive timestamp" else kind


def column_ticks(column: pa.Array) -> npt.NDArray[np.int64]:
    """Read a column of event times; a null is 0."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"))
    values: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return values


def kind_of(data_type: pa.DataType) -> TimeKind | None:
    """Return what the times in a field are; None where it can hold none."""
    if pa.types.is_timestamp(data_type):
        return "naive timestamp" if data_type.tz is None else "timestamp"
    if pa.types.is_date(data_type):
        return "timestamp"  # the day in UTC
    return "integer" if pa.types.is_integer(data_type) else None


def time_type(kind: TimeKind) -> pa.DataType:
    """Return the Arrow type of a time in rows that Penstock makes."""
    if kind == "integer":
        return pa.int64()
    return pa.timestamp("us", "UTC" if kind == "timestamp" else None)
