"""What bare Python loops do that keep the state of a keyed operator in a dict: one for each kind of operator.

Each takes the columns of the rows (time, key, value), times rising by one, and returns the outputs in order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

SIZE, EVERY, GAP, COUNT = 20_000, 10_000, 700, 10

Columns = tuple[Sequence[int], Sequence[int], Sequence[int]]


class Row(NamedTuple):
    """A row of the stream."""

    at: int
    k: int
    v: int


def one(total: int, row: Row) -> tuple[int, Row]:
    """Add up, and give the sum so far."""
    total += row.v
    return total, Row(row.at, row.k, total)


def many(total: int, row: Row) -> tuple[int, list[Row]]:
    """Add up, and give the sum so far in a list."""
    total += row.v
    return total, [Row(row.at, row.k, total)]


def none(total: int, row: Row) -> tuple[int, list[Row]]:
    """Add up, and give nothing."""
    return total + row.v, []


def combine(held: Row, row: Row) -> Row:
    """Add up rows."""
    return Row(row.at, row.k, held.v + row.v)


def rows_of(columns: Columns) -> Iterator[Row]:
    """Make rows for the user's functions."""
    return map(Row, *columns)


def scan(columns: Columns) -> list[Any]:
    """Call a function that returns one row."""
    states: dict[int, int] = {}
    out = []
    for row in rows_of(columns):
        states[row.k], output = one(states.get(row.k, 0), row)
        out.append(output)
    return out


def flat_scan(function: Callable[[int, Row], tuple[int, list[Row]]], columns: Columns) -> list[Any]:
    """Call a function that returns any number of rows."""
    states: dict[int, int] = {}
    out: list[Row] = []
    for row in rows_of(columns):
        states[row.k], outputs = function(states.get(row.k, 0), row)
        out.extend(outputs)
    return out


def reduce(columns: Columns) -> list[Any]:
    """Combine the rows of each key."""
    states: dict[int, Row] = {}
    out = []
    for row in rows_of(columns):
        states[row.k] = state = combine(states[row.k], row) if row.k in states else row
        out.append(state)
    return out


def running(columns: Columns) -> list[Any]:
    """Give the sum of the key behind each row."""
    states: dict[int, int] = {}
    out = []
    for _, key, value in zip(*columns, strict=True):
        states[key] = total = states.get(key, 0) + value
        out.append((key, total))
    return out


def tumbling(columns: Columns) -> list[Any]:
    """Give the sums of each window when it closes."""
    states: dict[int, int] = {}
    out = []
    start = 0
    for at, key, value in zip(*columns, strict=True):
        if at >= start + SIZE:
            out += [(held, start, start + SIZE, total) for held, total in states.items()]
            states, start = {}, at - at % SIZE
        states[key] = states.get(key, 0) + value
    return out + [(held, start, start + SIZE, total) for held, total in states.items()]


def tumbling_six(columns: Columns) -> list[Any]:
    """Give six aggregates of each window when it closes."""
    states: dict[int, list[int]] = {}
    out = []
    start = 0
    for at, key, value in zip(*columns, strict=True):
        if at >= start + SIZE:
            out += [(held, start, start + SIZE, *state) for held, state in states.items()]
            states, start = {}, at - at % SIZE
        state = states.get(key)
        if state is None:
            states[key] = [value, value, value, value, value, 1]
            continue
        state[1] = value
        state[2] = min(state[2], value)
        state[3] = max(state[3], value)
        state[4] += value
        state[5] += 1
    return out + [(held, start, start + SIZE, *state) for held, state in states.items()]


def sliding(columns: Columns) -> list[Any]:
    """Give the sums of windows that overlap."""
    windows: dict[int, dict[int, int]] = {}
    out = []

    def close(start: int) -> None:
        out.extend([(held, start, start + SIZE, total) for held, total in windows.pop(start).items()])

    for at, key, value in zip(*columns, strict=True):
        last = at - at % EVERY
        while windows and next(iter(windows)) + SIZE <= at:
            close(next(iter(windows)))
        for start in range(last - SIZE + EVERY, last + 1, EVERY):
            states = windows.setdefault(start, {})
            states[key] = states.get(key, 0) + value
    for start in list(windows):
        close(start)
    return out


def session(columns: Columns) -> list[Any]:
    """Give the sums of rows that follow one another within a gap."""
    open_: dict[int, tuple[int, int, int]] = {}  # the one that ends first comes first
    out = []
    for at, key, value in zip(*columns, strict=True):
        while open_ and open_[oldest := next(iter(open_))][1] <= at:
            start, end, total = open_.pop(oldest)
            out.append((oldest, start, end, total))
        start, _, total = open_.pop(key, (at, 0, 0))
        open_[key] = (start, at + GAP, total + value)
    return out + [(key, start, end, total) for key, (start, end, total) in open_.items()]


def count(columns: Columns) -> list[Any]:
    """Give the sums of so many rows of a key."""
    open_: dict[int, tuple[int, int]] = {}  # the one that was opened first comes first
    numbers: dict[int, int] = {}
    out = []
    for _, key, value in zip(*columns, strict=True):
        total, held = open_.get(key, (0, 0))
        total, held = total + value, held + 1
        if held < COUNT:
            open_[key] = (total, held)
            continue
        open_.pop(key, None)
        numbers[key] = number = numbers.get(key, -1) + 1
        out.append((key, number, total))
    return out + [(key, numbers.get(key, -1) + 1, total) for key, (total, _) in open_.items()]
