"""Rows of which nobody has more than their values: these, one row after the other, in one list.

A tuple for each row would be made, kept until the columns or the records are, and taken apart again: a fifth of what a
cheap function of a row costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.rows.records import Row, RowType


class FlatRows(list[Any]):
    """A list of values, `width` for each row; a list of rows once that is 0."""

    def __init__(self, row_type: RowType, for_columns: bool) -> None:
        """Make it; what is not known to be `for_columns` is so only where rows would have to be made anyway."""
        super().__init__()
        self.row_type, self.width, self.for_columns = row_type, len(row_type.schema), for_columns

    @property
    def count(self) -> int:  # type: ignore[override]  # hides list.count, which is not called
        """How many rows there are."""
        return len(self) // self.width if self.width else len(self)

    def rows(self) -> list[Row]:
        return self.row_type.records(zip(*[iter(self)] * self.width, strict=True)) if self.width else list(self)

    def to_rows(self) -> None:
        """Be a list of rows from now on: something in them is not as it should be, or they are rows already."""
        self[:] = self.rows()
        self.width = 0

    def add_row(self, row: Row) -> None:
        """Add a row that is not as the others, and be a list of rows from now on."""
        self.to_rows()
        self.append(row)

    def columns(self) -> pa.RecordBatch:
        """Make columns of the values; raises one of `MISFITS` where a value does not fit."""
        values: list[Sequence[Any]] = [self[number :: self.width] for number in range(self.width)]
        return self.row_type.encode_columns(values, self.count)

    def arrive_as_is(self) -> bool:
        """Tell whether columns would give back the same values."""
        return self.row_type.values_arrive_as_is(self[:])
