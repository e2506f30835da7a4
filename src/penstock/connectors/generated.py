"""Rows made by a function of their numbers, at a rate or as fast as they are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors.reader import BATCH_ROWS, Feed, Json, Piece, Reader, Slice, Split, cast_table
from penstock.errors import SourceError, operator_error
from penstock.rows.records import RowType
from penstock.rows.row_types import RowT_co, Schema, row_type


@dataclass(frozen=True)
class Generated(Reader[RowT_co]):
    """Rows made by `function(start, stop) -> table` for a growing range of row numbers."""

    function: Callable[[int, int], pa.Table]
    schema: Schema[RowT_co]
    rows_per_second: float | None = None
    rows: int | None = None
    by_columns = True

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return self.rows_per_second is not None or self.rows is None

    def row_type(self, source: str) -> RowType | None:
        return row_type(self.schema, source)

    def feed(self, source: str, clock: Callable[[], float], **_: Any) -> Feed:
        return GeneratedFeed(self, clock)

    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        assert row is not None
        for start in range(split.start, split.stop, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, split.stop)
            try:
                table = self.function(start, stop)
            except Exception as error:  # the user's function, whatever it reads
                raise operator_error(source, error, range(start, stop)) from None
            if table.num_rows != stop - start:
                raise SourceError(
                    f"source {source!r}: the generator gave {table.num_rows} rows for the row numbers "
                    f"{start} to {stop}; it must give {stop - start}"
                )
            at = start - split.start
            for batch in cast_table(row, table, source, split.path).to_batches():
                if batch.num_rows:
                    yield Piece(split.positions(at, batch.num_rows), batch, None)
                    at += batch.num_rows


@dataclass(frozen=True)
class Rate:
    """Makes rows (timestamp, value): value counts from 0."""

    rows_per_second: float

    def __call__(self, start: int, stop: int) -> pa.Table:
        value = np.arange(start, stop, dtype=np.int64)
        ticks = (value * (1e6 / self.rows_per_second)).astype(np.int64)
        return pa.table({"timestamp": pa.array(ticks, pa.timestamp("us", "UTC")), "value": value})


class GeneratedFeed(Feed):
    def __init__(self, reader: Generated, clock: Callable[[], float]) -> None:
        self._reader, self._clock, self._taken, self._before = reader, clock, 0, 0
        self._began: tuple[float, int] | None = None

    def poll(self, limit: int) -> Slice | None:
        stop, self._before = self._available(limit), self._taken
        if stop <= self._taken:
            return None
        self._taken = min(stop, self._taken + limit)
        backlog = stop - self._taken if self._reader.rows_per_second else None
        return self._slice(self._before, self._taken, backlog)

    def replay(self, logged: Json, offset: Json) -> Slice:
        self._taken = logged["stop"]
        return self._slice(logged["start"], logged["stop"], None)

    def restore(self, offset: Json) -> None:
        self._taken = offset["taken"]

    def undo(self) -> None:
        self._taken = self._before

    def exhausted(self) -> bool:
        return self._reader.rows is not None and self._taken >= self._reader.rows

    def close(self) -> None:
        self._began = None

    def _available(self, limit: int) -> int:
        most = self._taken + limit
        if self._reader.rows_per_second is not None:
            if self._began is None:
                self._began = (self._clock(), self._taken)
            began, first = self._began
            most = first + int((self._clock() - began) * self._reader.rows_per_second)
        return most if self._reader.rows is None else min(most, self._reader.rows)

    def _slice(self, start: int, stop: int, backlog: int | None) -> Slice:
        span = {"start": start, "stop": stop}
        return Slice((Split(0, start, stop),), {"taken": stop}, span, stop - start, backlog)
