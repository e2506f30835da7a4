"""Keep the largest counts of a window: the list that Q1, Q2 and Q3 report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from operator import attrgetter, neg
from typing import Any

import pyarrow as pa

import penstock as ps


@dataclass(frozen=True)
class Top:
    """Make one row of a window's counts: its bounds, and the `limit` largest with the fields that they are of.

    Equal counts stand in the order of those fields, as the specification's ORDER BY has them.
    """

    fields: tuple[str, ...]
    limit: int
    least: int = 1

    def __call__(self, window: ps.Window, rows: list[Any]) -> dict[str, Any]:
        counts, *values = (map(attrgetter(field), rows) for field in ("count", *self.fields))
        return {"window_start": window.start, "window_end": window.end, "top": self.largest(counts, *values)}

    def largest(self, counts: Iterable[int], *values: Iterable[int]) -> list[dict[str, int]]:
        """Return the largest counts with their fields; `values` has those of all counts, field by field."""
        # A heap of the largest so far is all that is kept; a larger count is a smaller negative number.
        entries = nsmallest(self.limit, zip(map(neg, counts), *values, strict=True))
        names = (*self.fields, "cnt")
        return [dict(zip(names, (*entry[1:], -entry[0]), strict=True)) for entry in entries if -entry[0] >= self.least]

    def schema(self, *keys: str) -> pa.Schema:
        """Return the schema of such a row, after the fields of a key."""
        entry = pa.struct([(name, pa.int64()) for name in (*self.fields, "cnt")])
        bounds = [(name, pa.int64()) for name in (*keys, "window_start", "window_end")]
        return pa.schema([*bounds, ("top", pa.list_(entry))])
