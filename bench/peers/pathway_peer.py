"""Pathway: a Python connector, groupby and reduce, apply and filter, an asynchronous UDF."""

from collections.abc import Iterable
from typing import Any

import pathway as pw

from bench.peers.apart import Outcome, Task
from bench.workload import Event, amount, large, look_up_later, lower, small


class Events(pw.Schema):
    """The fields of an event."""

    serial: int
    key: int
    value: float


class Serials(pw.Schema):
    """The fields of a row of W3."""

    serial: int


class Source(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """Give rows to Pathway."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        super().__init__()
        self._rows = rows

    def run(self) -> None:
        """Give all rows, one after the other."""
        for row in self._rows:
            self.next(**row)


def read(task: Task) -> Any:
    """Read the events as a table that grows."""
    return pw.io.python.read(Source(row._asdict() for row in task.events()), schema=Events)


def w1(task: Task) -> Outcome:
    """Group by key; Pathway gives the count and sum of a key once for each of its own mini-batches."""
    outputs: list[tuple[int, int, int, float]] = []
    events = read(task)
    totals = events.groupby(events.key).reduce(
        events.key, count=pw.reducers.count(), total=pw.reducers.sum(events.value)
    )

    def take(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            outputs.append((0, row["key"], row["count"], row["total"]))

    pw.io.subscribe(totals, on_change=take)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return Outcome(outputs, per_event=False, note="one output a key and mini-batch, not an event")


def w2(task: Task) -> Outcome:
    """Apply and filter, and count."""
    counts: list[int] = [0]
    events = read(task)
    amounts = events.select(amount=pw.apply_with_type(lambda value: amount(Event(0, 0, value)), float, events.value))
    kept = amounts.filter(pw.apply_with_type(large, bool, amounts.amount))
    lowered = kept.select(amount=pw.apply_with_type(lower, float, kept.amount))
    smaller = lowered.filter(pw.apply_with_type(small, bool, lowered.amount))

    def take(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            counts.append(row["count"])

    pw.io.subscribe(smaller.reduce(count=pw.reducers.count()), on_change=take)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return Outcome(counts[-1])


def w3(task: Task) -> Outcome:
    """Ask in an asynchronous UDF."""
    outputs: list[int] = []

    @pw.udf(executor=pw.udfs.async_executor(capacity=task.in_flight))  # type: ignore[untyped-decorator]
    async def ask(serial: int) -> int:
        return await look_up_later(serial, task.wait)

    rows = pw.io.python.read(Source({"serial": serial} for serial in range(task.rows)), schema=Serials)

    def take(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        outputs.append(row["serial"])

    pw.io.subscribe(rows.select(serial=ask(rows.serial)), on_change=take)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return Outcome(outputs)


PACKAGE = "pathway"
WORKLOADS = {"w1": w1, "w2": w2, "w3": w3}
