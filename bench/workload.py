"""Define workload W1: keyed running count and sum, one output for every event."""

from typing import NamedTuple


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
