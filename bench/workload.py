"""Define the workloads that every side runs: the records, and the functions of a row that all of them call.

W1 is a keyed running count and sum, one output for every event; W2 four cheap operators, then a count; W3 a lookup
that waits.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One row of the input."""

    serial: int
    key: int
    value: float


class Running(NamedTuple):
    """One row of the output."""

    serial: int
    key: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    total: float


State = tuple[int, float]

OUTPUT_DDL = "serial long, key long, count long, total double"
STATE_DDL = "count long, total double"


def running(state: State, row: Event) -> tuple[State, Running]:
    """Take one event into its key's state: the user's per-row function, which every side calls."""
    count, total = state
    count += 1
    total += row.value
    return (count, total), Running(row.serial, row.key, count, total)


@dataclass
class RunningData:
    """The output as a dataclass."""

    serial: int
    key: int
    count: int
    total: float


def running_tuple(state: State, row: Event) -> Any:
    """Do the same, with a bare tuple as output."""
    count, total = state
    count += 1
    total += row.value
    return (count, total), (row.serial, row.key, count, total)


def running_dict(state: State, row: Event) -> Any:
    """Do the same, with a dict as output."""
    count, total = state
    count += 1
    total += row.value
    return (count, total), {"serial": row.serial, "key": row.key, "count": count, "total": total}


def running_data(state: State, row: Event) -> Any:
    """Do the same, with a dataclass as output."""
    count, total = state
    count += 1
    total += row.value
    return (count, total), RunningData(row.serial, row.key, count, total)


OUTPUT = {"serial": int, "key": int, "count": int, "total": float}
FORMS: dict[str, tuple[Callable[[State, Event], Any], Any]] = {
    "records": (running, None),
    "tuples": (running_tuple, OUTPUT),
    "dicts": (running_dict, OUTPUT),
    "dataclasses": (running_data, OUTPUT),
}
"""The function of W1 for each form of its output, and the schema where no annotation tells it."""


def amount(row: Event) -> float:
    """Take the value of an event, in hundredths."""
    return row.value * 100


def large(amount: float) -> bool:
    """Keep nine in ten."""
    return amount >= 10


def lower(amount: float) -> float:
    """Take off what all that are left have."""
    return amount - 10


def small(amount: float) -> bool:
    """Keep eight of the nine."""
    return amount < 80


def look_up(serial: int, seconds: float) -> int:
    """Ask somebody who answers after a while."""
    time.sleep(seconds)
    return serial


async def look_up_later(serial: int, seconds: float) -> int:
    """Ask somebody who answers after a while, without standing in the way meanwhile."""
    await asyncio.sleep(seconds)
    return serial
