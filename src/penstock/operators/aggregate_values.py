"""What an aggregate takes of a row where that is more than a field: an expression, two values, or only some rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.expressions import bound, bound_predicate, is_expression, value_column
from penstock.rows.records import Row, RowType, any_getter
from penstock.rows.values import PickledFields, column_values


class _Absent:
    """Stand for the value of a row that an aggregate is not to see, where null is a value."""

    def __reduce__(self) -> str:
        return "ABSENT"  # one object in every process


ABSENT = _Absent()


def taken(value: Any, where: Any, absent: Any = None) -> Any:
    """Return what an aggregate takes: a field's name or a function as it is, else `TakenValues`."""
    if where is None and not is_expression(value):
        return value
    return TakenValues(() if value is None else (value,), where, absent)


@dataclass(frozen=True, eq=False)
class TakenValues(PickledFields):
    """Some values of a row: fields, functions of the row and expressions, all where a predicate holds."""

    parts: tuple[Any, ...]
    """None: 1 for each row; several: a tuple of them, null where the first is."""
    where: Any = None
    absent: Any = None
    """What stands for the value of a row for which `where` does not hold."""
    row: RowType | None = None
    """The type of the rows, as far as it is known; set with the operator's expressions."""

    def bound(self, row: RowType | None, operator: str, what: str) -> TakenValues:
        """Bind it to rows of a type; refuse expressions that do not fit them."""
        parts = tuple(bound(part, row, operator, what)[0] if is_expression(part) else part for part in self.parts)
        where = bound_predicate(self.where, row, operator, what) if is_expression(self.where) else self.where
        return TakenValues(parts, where, self.absent, row)

    def kind(self) -> pa.DataType | None:
        """Return the type of the last of its values, None where it is not known."""
        if not self.parts:
            return pa.int64()
        last = self.parts[-1]
        if callable(last) or self.row is None:
            return None
        if is_expression(last):
            return value_column(self.row.encode([]), last).type
        place = self.row.schema.get_field_index(last)
        return None if place < 0 else self.row.schema.field(place).type

    @property
    def fields(self) -> list[str]:
        return [part for part in self.parts if isinstance(part, str)]

    @property
    def by_columns(self) -> bool:
        """Whether columns are all that it needs: no function of the row is called."""
        return not any(map(callable, (*self.parts, self.where)))

    def read(self, row: Row) -> Any:
        known = _computed.by_row.get(id(self))
        if known is not None and id(row) in known:
            return known[id(row)]
        batch = None
        if self._computes:
            assert self.row is not None
            batch = self.row.encode([row])
        where = self.where
        if where is not None and not (where(row) if callable(where) else value_column(batch, where)[0].as_py()):
            return self.absent
        if not self.parts:
            return 1
        values = tuple(
            read(row) if read is not None else column_values(value_column(batch, part))[0]
            for part, read in zip(self.parts, self._readers, strict=True)
        )
        return values[0] if len(values) == 1 else None if values[0] is None else values

    def read_each(self, rows: Sequence[Row]) -> list[Any]:
        """Return the values of rows, which `ahead` may have computed already."""
        known = _computed.by_row.get(id(self))
        if known is not None and all(id(row) in known for row in rows):
            return [known[id(row)] for row in rows]
        values = self.read_many(None, lambda: rows)
        return values if isinstance(values, list) else column_values(values)

    def read_many(self, columns: pa.RecordBatch | None, rows: Callable[[], Sequence[Row]]) -> pa.Array | list[Any]:
        """Return the values of many rows, from their columns where these are given."""
        count = len(rows()) if columns is None else columns.num_rows
        batch = columns
        if batch is None and self._computes:
            assert self.row is not None
            batch = self.row.encode(rows())
        chosen = self._chosen(batch, rows)
        if chosen is not None:
            batch = None if batch is None else batch.take(pa.array(chosen))
            all_rows = rows

            def rows() -> list[Row]:
                every = all_rows()
                return [every[number] for number in chosen.tolist()]

        left = count if chosen is None else len(chosen)
        return self._spread(self._values(batch, columns is not None, rows, left), chosen, count)

    def _chosen(self, batch: pa.RecordBatch | None, rows: Callable[[], Sequence[Row]]) -> npt.NDArray[np.int64] | None:
        """Return the numbers of the rows that are seen, None for all."""
        if self.where is None:
            return None
        if callable(self.where):
            return np.flatnonzero([bool(each) for each in read_all(self.where, rows())])
        mask = value_column(batch, self.where).fill_null(False)
        return np.flatnonzero(mask.to_numpy(zero_copy_only=False))

    def _values(
        self, batch: pa.RecordBatch | None, exact: bool, rows: Callable[[], Sequence[Row]], count: int
    ) -> pa.Array | list[Any]:
        if not self.parts:
            return pa.array(np.ones(count, np.int64))
        columns: list[Any] = []
        for part, read in zip(self.parts, self._readers, strict=True):
            if read is None:
                columns.append(value_column(batch, part))
            elif exact and isinstance(part, str):
                assert batch is not None
                columns.append(batch.column(part))
            else:
                columns.append(read_all(read, rows()))
        if len(columns) == 1:
            return columns[0]
        listed = [each if isinstance(each, list) else column_values(each) for each in columns]
        return [None if values[0] is None else values for values in zip(*listed, strict=True)]

    def _spread(
        self, values: pa.Array | list[Any], chosen: npt.NDArray[np.int64] | None, count: int
    ) -> pa.Array | list[Any]:
        """Put the values of the chosen rows in their places among all rows."""
        if chosen is None:
            return values
        if isinstance(values, pa.Array) and self.absent is None:
            places = np.zeros(count, np.int64)
            places[chosen] = np.arange(len(chosen))
            unseen = np.ones(count, bool)
            unseen[chosen] = False
            return values.take(pa.array(places, mask=unseen))
        spread: list[Any] = [self.absent] * count
        listed = values if isinstance(values, list) else column_values(values)
        for number, value in zip(chosen.tolist(), listed, strict=True):
            spread[number] = value
        return spread

    @cached_property
    def _computes(self) -> bool:
        return any(is_expression(part) for part in (*self.parts, self.where))

    @cached_property
    def _readers(self) -> list[Callable[[Row], Any] | None]:
        return [None if is_expression(part) else field_reader(part, self.row) for part in self.parts]


class _Computed(threading.local):
    """What `ahead` has computed in this thread: for each `TakenValues`, the values by row."""

    def __init__(self) -> None:
        self.by_row: dict[int, dict[int, Any]] = {}


_computed = _Computed()


@contextmanager
def ahead(some: Sequence[TakenValues], rows: Sequence[Row]) -> Iterator[None]:
    """Compute the expressions of rows that are then taken one by one: for one row it costs as much as for many.

    Inside, `read` and `read_each` find the values; the rows must stay. Functions are not called ahead.
    """
    for each in some:
        if not each.by_columns or not each._computes:
            continue
        try:
            values = each.read_each(rows)
        except Exception:
            continue
        _computed.by_row[id(each)] = dict(zip(map(id, rows), values, strict=True))
    try:
        yield
    finally:
        _computed.by_row = {}


def field_reader(value: str | Callable[[Row], Any], row: RowType | None) -> Callable[[Row], Any]:
    """Return the function that reads a field, or the function itself that was given in its place."""
    if callable(value):
        return value
    return any_getter([value]) if row is None else row.getter([value])


def read_all(read: Callable[[Row], Any], rows: Sequence[Row]) -> list[Any]:
    values = list(map(read, rows))
    if len(values) < len(rows):
        raise_stop(read, rows[len(values)])
    return values


def raise_stop(function: Callable[[Row], Any], row: Row) -> NoReturn:
    """Raise the `StopIteration` that a function raised for a row, and that was taken for the end of the rows."""
    function(row)
    raise RuntimeError("the function raised StopIteration, and not when it was called again")


def kind_of_values(value: Any, row: RowType | None) -> pa.DataType | None:
    """Return the type of what an aggregate takes of rows of a type; None where it is not known."""
    if isinstance(value, TakenValues):
        return value.kind()
    if row is None or not isinstance(value, str):
        return None
    place = row.schema.get_field_index(value)
    return None if place < 0 else row.schema.field(place).type
