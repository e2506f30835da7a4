"""What happens inside a window, whatever its kind: rows go in one by one, and something comes out at its close.

The n rows with the largest values are one such fold, which can also be reported row by row as they change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from penstock.operators.aggregate_values import TakenValues
from penstock.operators.aggregation import Aggregation
from penstock.operators.base import Key
from penstock.operators.scan import aggregate_type, combined
from penstock.operators.windows import Window
from penstock.rows.records import Row, RowType, record_class, record_type
from penstock.rows.values import PickledFields


class Fold:
    """What happens inside a window: rows go in one by one, one row (or several) comes out at the close."""

    def add(self, state: Any, row: Row) -> Any:
        """Take a row in; `state` is None for the first."""
        raise NotImplementedError

    def close(self, state: Any, window: Window) -> list[Row]:
        raise NotImplementedError

    def result_type(self, row: RowType | None, bounds: Sequence[pa.Field]) -> RowType | None:
        raise NotImplementedError

    def taken(self) -> list[TakenValues]:
        """List what is computed of each row by expressions."""
        return []


def named(names: Sequence[str], fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Return the fields of the bounds of a window under the names that they have in its rows."""
    return [field.with_name(name) for name, field in zip(names, fields, strict=True)]


@dataclass(frozen=True)
class AggregateFold(Fold):
    """Emit (key, window bounds, aggregates)."""

    aggregation: Aggregation
    key: Key | None
    bounds: tuple[str, ...]

    def add(self, state: Any, row: Row) -> Any:
        return self.aggregation.step(state, row)

    def close(self, state: Any, window: Window) -> list[Row]:
        names = self.key.names if self.key else ()
        values = self.key.values(window.key) if self.key else ()
        bounds = (window.start, window.end)[: len(self.bounds)]
        cls = record_class((*names, *self.bounds, *self.aggregation.names))
        return [tuple.__new__(cls, (*values, *bounds, *self.aggregation.results(state)))]

    def result_type(self, row: RowType | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return aggregate_type(self.aggregation, self.key, row, named(self.bounds, bounds))

    def taken(self) -> list[Any]:
        return self.aggregation.taken()


@dataclass(frozen=True)
class ReduceFold(Fold):
    """Emit the rows of the window combined by a function, beginning with the first."""

    function: Callable[[Any, Row], Any]
    returns: RowType | None

    def add(self, state: Any, row: Row) -> Any:
        return combined(self.function, self.returns, state, row)

    def close(self, state: Any, window: Window) -> list[Row]:
        return [state]

    def result_type(self, row: RowType | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return self.returns or row


@dataclass(frozen=True)
class ApplyFold(Fold):
    """Emit what `function(window, rows)` returns for all rows of the window."""

    function: Callable[[Window, list[Row]], Row]
    returns: RowType | None

    def add(self, state: Any, row: Row) -> Any:
        if state is None:
            return [row]
        state.append(row)  # cannot fail, so a row that fails elsewhere still changes nothing
        return state

    def close(self, state: Any, window: Window) -> list[Row]:
        result = self.function(window, list(state))
        return [result if self.returns is None else self.returns.normalize(result)]

    def result_type(self, row: RowType | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return self.returns


RANK, LEFT = "rank", "left"
Ranked = tuple[tuple[Any, Row], ...]
"""Rows and what they are ranked by, the first one first."""


@dataclass(frozen=True)
class Ranking(PickledFields):
    """Keep the `count` rows with the largest values (or the smallest); of equal ones the earlier row is before."""

    count: int
    by: TakenValues
    row: RowType
    largest: bool

    def enter(self, held: Ranked, row: Row) -> tuple[Ranked, int | None]:
        """Put a row where it belongs; return the rows and its place, None where it has none. Nulls have none."""
        value = self.by.read(row)
        if value is None:
            return held, None
        place = len(held)
        while place and self._is_before(value, held[place - 1][0]):
            place -= 1
        if place >= self.count:
            return held, None
        return (*held[:place], (value, row), *held[place : self.count - 1]), place

    def _is_before(self, value: Any, other: Any) -> bool:
        """Tell whether a value ranks before that of an earlier row; NaN is larger than all others."""
        new, old = value != value, other != other  # noqa: PLR0124 (whether they are NaN)
        if new or old:
            return bool(new != old and new == self.largest)
        return bool(value > other if self.largest else value < other)

    def values(self, row: Row) -> tuple[Any, ...]:
        return tuple(read(row) for read in self._readers)

    @cached_property
    def _readers(self) -> list[Callable[[Row], Any]]:
        return [self.row.getter([name]) for name in self.row.names]


@dataclass(frozen=True)
class RunningTop:
    """Give a row for each one that enters: its fields, its rank, and the row that it displaced, if any."""

    makes_new_rows: ClassVar[bool] = True
    """As tuples of their values, so that they need not be looked at."""
    ranking: Ranking

    @property
    def returns(self) -> RowType:
        fields = list(self.ranking.row.schema)
        return record_type(pa.schema([*fields, pa.field(RANK, pa.int64()), pa.field(LEFT, pa.struct(fields))]))

    def taken(self) -> list[TakenValues]:
        return [self.ranking.by]

    def __call__(self, held: Ranked, row: Row) -> tuple[Ranked, list[tuple[Any, ...]]]:
        after, place = self.ranking.enter(held, row)
        if place is None:
            return held, []
        left = None
        if len(held) >= self.ranking.count:
            left = dict(zip(self.ranking.row.names, self.ranking.values(held[-1][1]), strict=True))
        return after, [(*self.ranking.values(row), place + 1, left)]


@dataclass(frozen=True)
class TopFold(Fold):
    """Emit (window bounds, rank, fields of the row) for each of the window's first rows."""

    ranking: Ranking
    bounds: tuple[str, ...]

    def add(self, state: Any, row: Row) -> Any:
        return self.ranking.enter(state or (), row)[0]

    def close(self, state: Any, window: Window) -> list[Row]:
        bounds = (window.start, window.end)[: len(self.bounds)]
        cls = record_class((*self.bounds, RANK, *self.ranking.row.names))
        return [
            tuple.__new__(cls, (*bounds, rank, *self.ranking.values(row))) for rank, (_, row) in enumerate(state, 1)
        ]

    def result_type(self, row: RowType | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return record_type(
            pa.schema([*named(self.bounds, bounds), pa.field(RANK, pa.int64()), *self.ranking.row.schema])
        )

    def taken(self) -> list[TakenValues]:
        return [self.ranking.by]
