"""Chunks are cut and put together again, whatever form their rows have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.rows.chunk import Chunk, concat
from penstock.rows.records import RowType, record_type

NUMBERS = record_type(pa.schema([("n", pa.int64())]))
FORMS = ("rows", "columns", "both", "untyped")


def chunk_of(positions: Sequence[int], form: str) -> Chunk:
    """Make a chunk whose rows have ten times their position."""
    places = np.array(positions, np.int64)
    declared: RowType | None = None if form == "untyped" else NUMBERS
    rows = [NUMBERS.row_class((10 * place,)) for place in positions]
    columns = NUMBERS.encode(rows) if form in ("columns", "both") else None
    return Chunk([places], places + 1, declared, columns, None if form == "columns" else rows)


def check(chunk: Chunk, positions: Sequence[int]) -> None:
    assert chunk.positions[0].tolist() == list(positions)
    assert chunk.times is not None
    assert chunk.times.tolist() == [place + 1 for place in positions]
    assert [row[0] for row in chunk.get_rows()] == [10 * place for place in positions]


@pytest.mark.parametrize("form", FORMS)
def test_a_chunk_that_is_split_has_its_rows_in_parts(form: str) -> None:
    whole = chunk_of(range(6), form)
    parts = whole.split([np.array(part, np.int64) for part in ([0, 3], [1], [2, 4, 5])])
    for part, expected in zip(parts, ([0, 3], [1], [2, 4, 5]), strict=True):
        check(part, expected)
    check(concat(parts).sorted(), range(6))
    check(concat(parts), [0, 3, 1, 2, 4, 5])
