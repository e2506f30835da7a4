"""The n rows with the largest values: at the close of a window, or as it changes row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from penstock.operators.aggregate_values import TakenValues
from penstock.operators.base import Key
from penstock.operators.window_folds import named
from penstock.operators.windows import Window
from penstock.rows.records import Row, RowType, record_class, record_type

RANK, LEFT = "rank", "left"
Held = tuple[tuple[Any, Row], ...]
"""Rows and what they are ranked by, the first one first."""


@dataclass(frozen=True)
class Ranking:
    """Keep the `count` rows with the largest values (or the smallest); of equal ones the earlier row is before."""

    count: int
    by: TakenValues
    row: RowType
    largest: bool

    def enter(self, held: Held, row: Row) -> tuple[Held, int | None]:
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
        """Return the values of a row's fields."""
        return tuple(read(row) for read in self._readers)

    @cached_property
    def _readers(self) -> list[Callable[[Row], Any]]:
        return [self.row.getter([name]) for name in self.row.names]

    def __getstate__(self) -> dict[str, Any]:
        return {"count": self.count, "by": self.by, "row": self.row, "largest": self.largest}


@dataclass(frozen=True)
class RunningTop:
    """Give a row for each one that enters: its fields, its rank, and the row that it put out, if any."""

    makes_new_rows: ClassVar[bool] = True
    """As tuples of their values, so that they need not be looked at."""
    ranking: Ranking

    @property
    def returns(self) -> RowType:
        """The type of the rows that come out."""
        fields = list(self.ranking.row.schema)
        return record_type(pa.schema([*fields, pa.field(RANK, pa.int64()), pa.field(LEFT, pa.struct(fields))]))

    def taken(self) -> list[TakenValues]:
        """List what is computed of each row."""
        return [self.ranking.by]

    def __call__(self, held: Held, row: Row) -> tuple[Held, list[tuple[Any, ...]]]:
        after, place = self.ranking.enter(held, row)
        if place is None:
            return held, []
        left = None
        if len(held) >= self.ranking.count:
            left = dict(zip(self.ranking.row.names, self.ranking.values(held[-1][1]), strict=True))
        return after, [(*self.ranking.values(row), place + 1, left)]


@dataclass(frozen=True)
class TopFold:
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

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return record_type(
            pa.schema([*named(self.bounds, bounds), pa.field(RANK, pa.int64()), *self.ranking.row.schema])
        )

    def taken(self) -> list[TakenValues]:
        return [self.ranking.by]

    def functions(self) -> list[Any]:
        return self.ranking.by.functions()
