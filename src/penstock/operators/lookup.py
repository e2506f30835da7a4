"""Look rows up in a table: the fields of the table's row with the same key beside those of the row.

The table is an object of its own (`Content`), because it may change while a flow runs: an engine puts the content that
a batch or an epoch sees into the operator, and logs which it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import compress, pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.errors import FlowError, shorten
from penstock.operators.stateless import Columnar
from penstock.rows.keys import as_keys, has_null
from penstock.rows.records import RowType
from penstock.rows.value_columns import column_values

LookupHow = Literal["left", "inner"]


@dataclass(frozen=True)
class Brought:
    """Which fields of a table come along, and what rows are called by then."""

    fields: tuple[str, ...]
    """Of the table."""
    names: tuple[str, ...]
    """What they are called in the result, after the fields of the row."""

    def result_type(self, left: RowType, table: RowType) -> RowType:
        """Tell the type of rows with what was found."""
        found = [pa.field(n, table.schema.field(f).type) for f, n in zip(self.fields, self.names, strict=True)]
        return RowType(pa.schema([*(pa.field(f.name, f.type) for f in left.schema), *found]), "record")


class Content:
    """What a table has at some moment, found by key: at most one row for a key, or for a key and a time."""

    def __init__(
        self, table: pa.Table, on: Sequence[str], as_of: str | None, brought: Sequence[str], name: str
    ) -> None:
        """Read a table; refuse one in which a key has several rows, naming the operator."""
        keys = key_list([table.column(field) for field in on])
        self._columns = [table.column(field).combine_chunks() for field in brought]
        self._times: dict[Any, tuple[list[Any], list[int]]] = {}
        self._rows: dict[Any, int] = {}
        if as_of is None:
            for number, key in enumerate(keys):
                if not has_null(key) and self._rows.setdefault(key, number) != number:
                    raise _twice(name, on, key, self._rows[key], number)
            return
        times = column_values(table.column(as_of))
        held: dict[Any, list[tuple[Any, int]]] = {}
        for number, (key, time) in enumerate(zip(keys, times, strict=True)):
            if not has_null(key) and _is_time(time):
                held.setdefault(key, []).append((time, number))
        for key, entries in held.items():
            entries.sort()
            self._times[key] = [time for time, _ in entries], [number for _, number in entries]
            for (time, one), (following, other) in pairwise(entries):
                if time == following:
                    raise _twice(name, (*on, as_of), (key, time), one, other)

    def find(self, keys: Iterable[Any], times: Iterable[Any] | None) -> list[int | None]:
        """Return the number of the table's row for each key, None where there is none."""
        if times is None:
            return list(map(self._rows.get, keys))
        return [self._latest(key, time) for key, time in zip(keys, times, strict=True)]

    def _latest(self, key: Any, time: Any) -> int | None:
        """Return the row of a key that holds at a time: the latest that is not after it."""
        held = self._times.get(key)
        if held is None or not _is_time(time):
            return None
        place = bisect_right(held[0], time)
        return held[1][place - 1] if place else None

    def rows(self, numbers: pa.Array) -> list[pa.Array]:
        """Return the fields of rows by their numbers; null for a number that is null."""
        return [column.take(numbers) for column in self._columns]


def _is_time(value: Any) -> bool:
    """Tell whether a value can be before or after others: neither null nor NaN can."""
    return value is not None and value == value  # noqa: PLR0124


def _twice(name: str, on: Sequence[str], key: Any, one: int, other: int) -> FlowError:
    return FlowError(
        f"operator {name!r}: rows {one} and {other} of the table (from 0) have the same {', '.join(on)}: "
        f"{shorten(key, 200)}; a lookup finds one row, so keep one of them, add a field to on=, or, if they hold at "
        f"different times, give as_of="
    )


def key_list(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Any]:
    """Return the keys of rows: of one field its value, of several a tuple."""
    if len(columns) == 1:
        return as_keys(column_values(columns[0]))
    return as_keys(list(zip(*map(column_values, columns), strict=True)))


@dataclass(frozen=True)
class Lookup(Columnar):
    """Give each row the fields of the row that a table has for its key."""

    on: tuple[tuple[str, str], ...] = ()
    """The fields of the row, and those of the table that are equal to them."""
    as_of: tuple[str, str] | None = None
    """The field of the row, and that of the table, whose latest value that is not after the row's counts."""
    how: LookupHow = "left"
    brought: Brought = Brought((), ())
    returns: RowType | None = None
    _: KW_ONLY
    refresh: float | None = None
    """Seconds after which the table is read again, by the wall clock; None for never."""
    table: Any = None
    """Where the table is read (`connectors/tables.py`); None in workers, which get its content."""
    content: Content | None = field(default=None, compare=False, repr=False)

    @property
    def columns(self) -> list[str]:
        """Return the fields of the table that matter, each once."""
        times = () if self.as_of is None else (self.as_of[1],)
        return list(dict.fromkeys((*(right for _, right in self.on), *times, *self.brought.fields)))

    def over(self, table: pa.Table, name: str) -> Lookup:
        """Return the operator with a table's content; refuse a table that gives several rows for a key."""
        as_of = None if self.as_of is None else self.as_of[1]
        return replace(self, content=Content(table, [r for _, r in self.on], as_of, self.brought.fields, name))

    def result_type(self) -> RowType | None:
        return self.returns

    def batch(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        assert self.content is not None
        assert self.returns is not None
        keys = key_list([rows.column(left) for left, _ in self.on])
        times = None if self.as_of is None else column_values(rows.column(self.as_of[0]))
        found = self.content.find(keys, times)
        index = None
        if self.how == "inner" and None in found:
            index = np.array(list(compress(range(len(found)), (number is not None for number in found))), np.int64)
            rows, found = rows.take(pa.array(index)), [number for number in found if number is not None]
        columns = [*rows.columns, *self.content.rows(pa.array(found, pa.int64()))]
        return pa.RecordBatch.from_arrays(columns, schema=self.returns.schema), index
