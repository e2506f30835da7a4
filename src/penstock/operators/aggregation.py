"""Several aggregates of the rows of one key or window, under their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.errors import FlowError
from penstock.operators.aggregate_values import TakenValues, kind_of_values
from penstock.operators.aggregates import Agg, identity
from penstock.operators.expressions import is_expression
from penstock.rows.records import Row, RowType
from penstock.rows.values import PickledFields, snapshot


@dataclass(frozen=True)
class Aggregation(PickledFields):
    """Several aggregates under their names; the state is one list."""

    names: tuple[str, ...]
    aggregates: tuple[Agg, ...]
    row: RowType | None = field(default=None, compare=False)
    """The type of the rows, as far as it is known."""

    @property
    def by_column(self) -> bool:
        """Whether a whole column may be folded at once, and the rows one by one if that fails."""
        return not any(aggregate.own for aggregate in self.aggregates)

    def step(self, state: list[Any] | None, row: Row) -> list[Any]:
        """Take one row in; the old state is left as it was, so that a row that fails changes nothing."""
        if state is None:
            state = [aggregate.start() for aggregate in self.aggregates]
        if self._plain is not None:
            return [step(old, read(row)) for old, (step, read) in zip(state, self._plain, strict=True)]
        values = [None if read is None else read(row) for read in self.readers]
        result = [
            old if aggregate.in_place else aggregate.step(old, value)
            for aggregate, old, value in zip(self.aggregates, state, values, strict=True)
        ]
        for index in self._in_place:
            result[index] = self.aggregates[index].step(result[index], values[index])
        return result

    @cached_property
    def readers(self) -> list[Callable[[Row], Any] | None]:
        return [aggregate.reader(self.row) for aggregate in self.aggregates]

    @cached_property
    def _plain(self) -> list[tuple[Callable[[Any, Any], Any], Callable[[Row], Any]]] | None:
        """How each aggregate steps and reads, where no step changes a state that is there."""
        if self._in_place or not self.by_column:
            return None
        # One that takes no value does not look at what it gets.
        return [(agg.step, read or identity) for agg, read in zip(self.aggregates, self.readers, strict=True)]

    @cached_property
    def _in_place(self) -> list[int]:
        return [index for index, aggregate in enumerate(self.aggregates) if aggregate.in_place]

    def advance(self, state: list[Any] | None, row: Row) -> tuple[list[Any], list[Any]]:
        """Take one row in, and return the value of each aggregate too; where one fails, no state has changed."""
        if not self._in_place:
            after = self.step(state, row)
            return after, self.results(after)
        before = [aggregate.start() for aggregate in self.aggregates] if state is None else state
        values = [None if read is None else read(row) for read in self.readers]
        after, results = list(before), [None] * len(before)
        for index in sorted(range(len(before)), key=self._in_place.__contains__):
            aggregate = self.aggregates[index]
            after[index] = aggregate.step(before[index], values[index])
            results[index] = _result(aggregate, after[index])
        return after, results

    def results(self, state: list[Any]) -> list[Any]:
        return [_result(aggregate, value) for aggregate, value in zip(self.aggregates, state, strict=True)]

    def fields(self, row: RowType | None) -> list[pa.Field] | None:
        fields = []
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            kind = aggregate.type_of(kind_of_values(aggregate.value, row))
            if kind is None:
                return None
            fields.append(pa.field(name, kind))
        return fields

    def taken(self) -> list[TakenValues]:
        return [aggregate.value for aggregate in self.aggregates if isinstance(aggregate.value, TakenValues)]


def _result(aggregate: Agg, state: Any) -> Any:
    # A user's function may return its state itself, and change it with the next row.
    return snapshot(aggregate.result(state)) if aggregate.own else aggregate.result(state)


def aggregation(aggregates: dict[str, Any], operator: str, row: RowType | None) -> Aggregation:
    if not aggregates:
        raise FlowError(
            f"operator {operator!r}: aggregate() needs at least one aggregate, for example "
            f'aggregate(total=ps.agg.sum("value"))'
        )
    bound = []
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Agg):
            raise FlowError(
                f"operator {operator!r}: {name}={aggregate!r} is no aggregate; use ps.agg.count(), "
                f"sum(field), or another one that dir(ps.agg) lists"
            )
        bound.append(_bound(aggregate, name, operator, row))
    return Aggregation(tuple(aggregates), tuple(bound), row)


def _bound(aggregate: Agg, name: str, operator: str, row: RowType | None) -> Agg:
    """Return an aggregate as it is for rows of a type; refuse what it cannot take."""
    value = aggregate.value
    parts = [*value.parts, value.where] if isinstance(value, TakenValues) else [value]
    for part in parts:
        if part is not None and not isinstance(part, str) and not callable(part) and not is_expression(part):
            raise FlowError(
                f"operator {operator!r}: {name} is {aggregate.label}({part!r}), which is neither a field nor an "
                f"expression nor a function of the row"
            )
    if isinstance(value, TakenValues):
        if isinstance(value.where, str):
            raise FlowError(
                f"operator {operator!r}: {name} has where={value.where!r}; give an expression, for example "
                f'where=ps.expr("price > 5"), or a function of the row'
            )
        aggregate = replace(aggregate, value=value.bound(row, operator, f"{name}={aggregate.label}(...)"))
    kind = kind_of_values(aggregate.value, row)
    if kind is None:
        return aggregate
    if aggregate.refuses(kind):
        raise FlowError(
            f"operator {operator!r}: {name} is {aggregate.label}({_shown(value)}), whose values are of the "
            f"type {kind}; give a function of the row instead that makes one number or text of each"
        )
    return aggregate if aggregate.for_type is None else aggregate.for_type(aggregate, kind)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value.parts)) if isinstance(value, TakenValues) else repr(value)
