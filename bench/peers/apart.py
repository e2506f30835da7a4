"""Say what a peer is asked to do, and check what it made of it.

Runs in the environments of the peers, which have not got Penstock: nothing here may import it.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.workload import Event, Running, amount, large, lower, small

make_event = partial(tuple.__new__, Event)


@dataclass(frozen=True)
class Task:
    """What a peer is to do."""

    paths: list[Path]
    """The Parquet files of events, in order."""
    rows: int
    wait: float
    """Seconds that a lookup of W3 waits."""
    in_flight: int
    """How many lookups a user of the peer would choose to have under way."""

    def events(self) -> Iterator[Event]:
        """Read the events row by row, for peers that read no Parquet themselves."""
        for path in self.paths:
            columns = [column.to_numpy().tolist() for column in pq.read_table(path, use_threads=False).columns]
            yield from map(make_event, zip(*columns, strict=True))


@dataclass(frozen=True)
class Outcome:
    """What a peer made of it."""

    outputs: Any
    """W1: the rows as they came out; W2: the count; W3: the serial numbers as they came out."""
    steady: tuple[int, float] | None = None
    """Rows and seconds without the start, for peers that start something large; else the whole call counts."""
    per_event: bool = True
    """Whether W1 gives one output for each event; otherwise the last ones of each key are checked."""
    note: str = ""


Workload = Callable[[Task], Outcome]


def check_w1(task: Task, outcome: Outcome) -> dict[str, Any]:
    """Check the running counts and sums against a loop, and count outputs that came before an earlier one's."""
    counts: dict[int, tuple[int, float]] = {}
    expected = {}
    for row in task.events():
        count, total = counts.get(row.key, (0, 0.0))
        counts[row.key] = count + 1, total + row.value
        expected[row.serial] = (row.key, *counts[row.key])
    found = [tuple(row) for row in outcome.outputs]
    if outcome.per_event:
        if len(found) != len(expected):
            raise AssertionError(f"{len(found)} outputs for {len(expected)} events")
        wrong = [row for row in found if not _close(row[1:], expected[row[0]])]
        if wrong:
            raise AssertionError(f"{len(wrong)} wrong outputs, the first is {wrong[0]}")
        inversions = _inversions([row[0] for row in found])
        return {"in_order": inversions == 0, "inversions": inversions, "outputs": len(found)}
    last = {row[1]: row[2:] for row in found}
    if last.keys() != counts.keys() or not all(_close((k, *last[k]), (k, *counts[k])) for k in last):
        raise AssertionError("the last counts and sums of the keys are wrong")
    return {"in_order": False, "inversions": None, "outputs": len(found)}


def check_w2(task: Task, outcome: Outcome) -> dict[str, Any]:
    """Check the count against a loop."""
    amounts = (amount(row) for row in task.events())
    expected = sum(1 for value in amounts if large(value) and small(lower(value)))
    if outcome.outputs != expected:
        raise AssertionError(f"the count is {outcome.outputs}, not {expected}")
    return {"in_order": None, "outputs": 1}


def check_w3(task: Task, outcome: Outcome) -> dict[str, Any]:
    """Check that every row was answered, and whether in order."""
    if sorted(outcome.outputs) != list(range(task.rows)):
        raise AssertionError("the answers are not complete")
    inversions = _inversions(outcome.outputs)
    return {"in_order": inversions == 0, "inversions": inversions, "outputs": len(outcome.outputs)}


CHECKS = {"w1": check_w1, "w2": check_w2, "w3": check_w3}


def _close(row: Sequence[Any], expected: tuple[int, int, float]) -> bool:
    """Compare with a tolerance for the sum: engines that merge partial sums add in another order."""
    key, count, total = row
    return key == expected[0] and count == expected[1] and abs(total - expected[2]) <= 1e-9 * max(1.0, abs(expected[2]))


def _inversions(serials: Sequence[int]) -> int:
    return sum(a > b for a, b in itertools.pairwise(serials))


def as_running(rows: Sequence[Any]) -> list[Running]:
    """Take rows with the fields of W1's output, whatever they are, to plain ones."""
    return [Running(row[0], row[1], row[2], row[3]) for row in rows]
