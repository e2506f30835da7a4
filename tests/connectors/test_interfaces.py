"""Engines know readers and writers by two interfaces alone: kinds that nobody has heard of work on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.interfaces import Delivery, Feed, Json, Piece, Reader, Slice, Split, Writer
from penstock.rows.records import RowType
from penstock.rows.row_types import row_type

from ..spark.running import run_inline


@dataclass(frozen=True)
class Squares(Reader[Any]):
    """The squares of the first numbers, which any process can make."""

    count: int

    def row_type(self, source: str) -> RowType | None:
        return row_type({"n": int}, source)

    def feed(self, source: str, clock: Callable[[], float], **_: Any) -> Feed:
        return SquareFeed(self.count)

    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        assert row is not None
        numbers = pa.array([n * n for n in range(split.start, split.stop)], pa.int64())
        batch = pa.RecordBatch.from_arrays([numbers], schema=row.schema)
        yield Piece(split.positions(0, len(numbers)), batch, None)


class SquareFeed(Feed):
    def __init__(self, count: int) -> None:
        self._count, self._taken, self._before = count, 0, 0

    def poll(self, limit: int) -> Slice | None:
        self._before, self._taken = self._taken, min(self._taken + limit, self._count)
        return self._slice(self._before, self._taken) if self._taken > self._before else None

    def _slice(self, start: int, stop: int) -> Slice:
        return Slice((Split(0, start, stop),), {"taken": stop}, {"start": start, "stop": stop}, stop - start)

    def replay(self, logged: Json, offset: Json) -> Slice:
        return self._slice(logged["start"], logged["stop"])

    def restore(self, offset: Json) -> None:
        self._taken = offset["taken"]

    def undo(self) -> None:
        self._taken = self._before

    def exhausted(self) -> bool:
        return self._taken >= self._count


class Told(Writer):
    """Remembers what it was given; workers get another that knows nothing."""

    def __init__(self) -> None:
        self.given: list[tuple[int, list[int]]] = []

    def deliver(self, given: Delivery) -> None:
        self.given.append((given.number, [row.n for row in given.rows()]))

    def for_workers(self) -> Writer:
        return Writer()


def flow_to(told: Told) -> ps.Flow:
    stream = ps.Flow("own connectors").source("squares", Squares(50))
    return stream.map(lambda row: {"n": row.n + 1}, schema={"n": int}).sink("out", told)


WANTED = [n * n + 1 for n in range(50)]


@pytest.mark.parametrize("on", [ps.Threads(), ps.Sequential()], ids=["threads", "sequential"])
def test_in_this_process(on):
    told = Told()
    ps.run(flow_to(told), on=on)
    assert [n for _, rows in told.given for n in rows] == WANTED


def test_in_epochs_after_a_restart(tmp_path):
    told = Told()
    for _ in range(2):
        run_inline(flow_to(told), tmp_path, epoch_rows=20)
    assert [number for number, _ in told.given] == [1, 2, 3]
    assert [n for _, rows in told.given for n in rows] == WANTED
