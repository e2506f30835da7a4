"""Bring one row of each port together in one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows.records import Record, Row, RowType, make_record


class Barrier(Operator):
    """Wait for a row of each port, and emit one row made of them.

    `combine(row of port 0, row of port 1, ...)` makes it. Without it, the fields of records stand side by side, a
    name that is taken getting the number of its port (`v`, `v_1`), and tuples are joined.
    """

    inputs = None

    def __init__(self, combine: Callable[..., Row] | None = None) -> None:
        self.combine = combine

    async def process(self, ctx: OperatorContext) -> None:
        combine = self.combine or side_by_side
        one_each = dict.fromkeys(range(ctx.inputs), 1)
        while await ctx.wait_for_all(one_each):
            await ctx.emit(combine(*[ctx.pop(port) for port in range(ctx.inputs)]))

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        known = [row for row in inputs if row is not None and row.form == "record"]
        if self.combine is not None or len(known) < len(inputs):
            return [None]
        names = field_names([row.schema.names for row in known])
        kinds = [field.type for row in known for field in row.schema]
        return [RowType(pa.schema(list(zip(names, kinds, strict=True))), "record")]


def side_by_side(*rows: Row) -> Row:
    """Put the fields of several rows in one."""
    if not all(isinstance(row, tuple) for row in rows):
        raise TypeError(f"a barrier joins records or tuples, not {rows!r}; give it combine=")
    values: tuple[Any, ...] = sum((tuple(row) for row in rows), ())
    if all(isinstance(row, Record) for row in rows):
        return make_record(field_names([row._fields for row in rows]), values)
    return values


def field_names(names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the names of fields side by side, each once."""
    taken: dict[str, None] = {}
    for port, fields in enumerate(names):
        for field in fields:
            name = field
            while name in taken:
                name = f"{name}_{port}"
            taken[name] = None
    return tuple(taken)
