"""Operators without memory: each takes rows of one stream and gives rows, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import RowTypeError
from penstock.operators.base import Kind, Operator
from penstock.rows import Row, RowType

SKIPPED = object()
"""Stands in an output list for a row whose function failed and was skipped."""


@dataclass(frozen=True)
class Stateless(Operator):
    """Base of the operators without memory."""

    kind: ClassVar[Kind] = "stateless"
    expands: ClassVar[bool] = False
    """Whether one row may become several, so that positions need an emission index."""

    def one(self, row: Row) -> list[tuple[int, Row]]:
        """Take one row to a list of (output port, row): what the operator means."""
        raise NotImplementedError


@dataclass(frozen=True)
class Map(Stateless):
    """Replace each row by what the function returns."""

    function: Callable[[Row], Row] = None  # type: ignore[assignment]
    returns: RowType | None = None

    def one(self, row: Row) -> list[tuple[int, Row]]:
        return [(0, self.shape(self.function(row)))]

    def shape(self, row: Row) -> Row:
        """Give the row the form that was declared for it."""
        return row if self.returns is None else self.returns.normalize(row)


@dataclass(frozen=True)
class Filter(Stateless):
    """Keep the rows for which the predicate holds."""

    predicate: Callable[[Row], Any] = None  # type: ignore[assignment]

    def one(self, row: Row) -> list[tuple[int, Row]]:
        return [(0, row)] if self.predicate(row) else []


@dataclass(frozen=True)
class FlatMap(Stateless):
    """Replace each row by the rows that the function returns or yields."""

    expands: ClassVar[bool] = True
    function: Callable[[Row], Iterable[Row]] = None  # type: ignore[assignment]
    returns: RowType | None = None

    def one(self, row: Row) -> list[tuple[int, Row]]:
        # The whole list first: a function that fails half-way must leave nothing behind.
        return [(0, item) for item in self.many(row)]

    def many(self, row: Row) -> list[Row]:
        """Return all rows that one row becomes."""
        items = self.function(row)
        return list(items) if self.returns is None else list(map(self.returns.normalize, items))


@dataclass(frozen=True)
class Split(Stateless):
    """Send each row to the port of the first predicate that holds, or to the last port."""

    predicates: tuple[Callable[[Row], Any], ...] = ()

    def one(self, row: Row) -> list[tuple[int, Row]]:
        return [(self.port(row), row)]

    def port(self, row: Row) -> int:
        """Return the output port of a row."""
        for port, predicate in enumerate(self.predicates):
            if predicate(row):
                return port
        return len(self.predicates)


@dataclass(frozen=True)
class Columnar(Stateless):
    """Base of the operators that take a record batch at once."""

    input: RowType | None = None
    """The type of the rows that come in; set when the flow is built, because Arrow needs it."""

    def batch(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Take a batch to (output rows, index of the input row of each, or None for one to one)."""
        raise NotImplementedError

    def result_type(self) -> RowType | None:
        """Tell the type of the rows that come out."""
        return None

    def one(self, row: Row) -> list[tuple[int, Row]]:
        assert self.input is not None
        result, _ = self.batch(self.input.encode([row]))
        output = self.result_type() or self.input
        return [(0, item) for item in output.decode(result)]


@dataclass(frozen=True)
class MapBatches(Columnar):
    """Replace a record batch by what the function returns: as many rows, or rows and their input index."""

    expands: ClassVar[bool] = True
    function: Callable[[pa.RecordBatch], Any] = None  # type: ignore[assignment]
    returns: RowType | None = None

    def batch(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        result = self.function(rows)
        index = None
        if isinstance(result, tuple):
            result, index = result
            index = pa.array(index, pa.int64()) if not isinstance(index, pa.Array) else index.cast(pa.int64())
            index = index.to_numpy(zero_copy_only=False)
            if len(index) != result.num_rows:
                raise ValueError(
                    f"map_batches returned {result.num_rows} rows and {len(index)} input indexes; "
                    f"give one index for each row"
                )
            if len(index) and (index.min() < 0 or index.max() >= rows.num_rows or (index[1:] < index[:-1]).any()):
                raise ValueError(
                    "map_batches returned input indexes that are out of range or go back; each is the "
                    "number of an input row, in ascending order"
                )
        elif result.num_rows != rows.num_rows:
            raise ValueError(
                f"map_batches got {rows.num_rows} rows and returned {result.num_rows}; return as many, or "
                f"(batch, index of the input row of each output row)"
            )
        if isinstance(result, pa.Table):
            result = (
                result.combine_chunks().to_batches()[0]
                if result.num_rows
                else pa.RecordBatch.from_pylist([], schema=result.schema)
            )
        return self._typed(result), index

    def result_type(self) -> RowType | None:
        return self.returns or self.input

    def _typed(self, result: pa.RecordBatch) -> pa.RecordBatch:
        wanted = self.result_type()
        assert wanted is not None
        if result.schema.equals(wanted.schema):
            return result
        missing = [name for name in wanted.names if name not in result.schema.names]
        if missing:
            raise ValueError(f"map_batches returned no column {missing[0]!r}; declared are {', '.join(wanted.names)}")
        columns = []
        for field in wanted.schema:
            column = result.column(field.name)
            try:
                columns.append(column.cast(field.type))
            except pa.ArrowException:
                value = column[0].as_py() if len(column) else None
                raise RowTypeError(0, field.name, value, str(field.type)) from None
        return pa.RecordBatch.from_arrays(columns, schema=wanted.schema)


@dataclass(frozen=True)
class Select(Columnar):
    """Compute columns by `pyarrow.compute` expressions, one for each output field."""

    expressions: tuple[tuple[str, Any], ...] = ()
    returns: RowType | None = None

    def batch(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        return evaluate(rows, self.expressions), None

    def result_type(self) -> RowType | None:
        return self.returns


@dataclass(frozen=True)
class FilterExpression(Columnar):
    """Keep the rows for which a `pyarrow.compute` expression holds; null does not hold."""

    expression: Any = None

    def one(self, row: Row) -> list[tuple[int, Row]]:
        # The row itself, as any filter gives it, not what the columns made of it.
        assert self.input is not None
        return [(0, row)] if self.mask(self.input.encode([row]))[0].as_py() else []

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which rows stay."""
        return evaluate(rows, (("keep", self.expression),)).column(0).fill_null(False)

    def batch(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        mask = self.mask(rows)
        keep = mask.to_numpy(zero_copy_only=False)
        return rows.filter(mask), list(compress(range(rows.num_rows), keep))

    def result_type(self) -> RowType | None:
        return self.input


def evaluate(rows: pa.RecordBatch, expressions: Iterable[tuple[str, Any]]) -> pa.RecordBatch:
    """Evaluate expressions on a record batch."""
    from pyarrow import acero

    names, values = zip(*expressions, strict=True)
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))),
            acero.Declaration("project", acero.ProjectNodeOptions(list(values), list(names))),
        ]
    )
    table = plan.to_table(use_threads=False).combine_chunks()
    if table.num_rows == 0:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return table.to_batches()[0]
