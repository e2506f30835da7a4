"""Rows that will be columns and nothing else: their values, one row after the other, in one list.

A tuple for each row would be made, kept until the columns are, and taken apart again: a fifth of what a cheap function
of a row costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.rows.records import Row, RowType


class FlatRows(list[Any]):
    """A list of values, `width` for each row; a list of rows once that is 0."""

    def __init__(self, row_type: RowType) -> None:
        super().__init__()
        self.row_type, self.width = row_type, len(row_type.schema)

    @property
    def count(self) -> int:  # type: ignore[override]  # hides list.count, which nobody calls
        """How many rows there are."""
        return len(self) // self.width if self.width else len(self)

    def to_rows(self) -> None:
        """Be a list of rows from now on: something in them is not as it should be."""
        if self.width:
            self[:] = self.row_type.records(zip(*[iter(self)] * self.width, strict=True))
            self.width = 0

    def add_row(self, row: Row) -> None:
        """Add a row that is not as the others, and be a list of rows from now on."""
        self.to_rows()
        self.append(row)

    def columns(self) -> pa.RecordBatch:
        """Make columns of the values; raises one of `MISFITS` where a value does not fit."""
        values: list[Sequence[Any]] = [self[number :: self.width] for number in range(self.width)]
        return self.row_type.encode_columns(values, self.count)
