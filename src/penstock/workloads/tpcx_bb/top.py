"""Keep the largest counts of a window: the list that Q1, Q2 and Q3 report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
        """Take the counts of a window, when it closes."""
        counts = ((row.count, tuple(getattr(row, field) for field in self.fields)) for row in rows)
        return {"window_start": window.start, "window_end": window.end, "top": self.largest(counts)}

    def largest(self, counts: Iterable[tuple[int, tuple[int, ...]]]) -> list[dict[str, int]]:
        """Return the largest counts with their fields."""
        enough = [(-count, values) for count, values in counts if count >= self.least]
        return [
            dict(zip(self.fields, values, strict=True), cnt=-count) for count, values in sorted(enough)[: self.limit]
        ]

    def schema(self, *keys: str) -> pa.Schema:
        """Return the schema of such a row, behind the fields of a key."""
        entry = pa.struct([(name, pa.int64()) for name in (*self.fields, "cnt")])
        bounds = [(name, pa.int64()) for name in (*keys, "window_start", "window_end")]
        return pa.schema([*bounds, ("top", pa.list_(entry))])
