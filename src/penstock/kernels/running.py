"""Run running aggregates over chunks by columns, their states as columns, too; rows are never made.

What columns cannot do fails before anything has changed, and then the rows are taken one by one (`folding.py`), which
finds the row that fails.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.join_runs import join_form
from penstock.kernels.join_states import JoinStates
from penstock.kernels.row_keys import grouped, keys_of
from penstock.kernels.shards import Shard, Shards
from penstock.kernels.state_columns import ColumnStates, Keys
from penstock.operators.aggregate_columns import has_its_columns
from penstock.operators.aggregate_values import TakenValues, kind_of_values
from penstock.operators.base import Keyed
from penstock.operators.running_columns import Members, running
from penstock.operators.scan import Aggregate
from penstock.operators.state_forms import OBJECTS, Form, Parts, form_of, value_list
from penstock.plan.graph import KeyedNode
from penstock.rows.chunk import Chunk, Ints


def new_states(node: KeyedNode) -> MutableMapping[Any, Any]:
    """Return what the states of a keyed operator's keys are kept in: columns where its rows are taken by columns."""
    operator, form = node.operator, join_form(node)
    if form is not None:
        return JoinStates(form)
    if not _by_columns(node):
        return {}
    assert isinstance(operator.logic, Aggregate)
    aggregation, key = operator.logic.aggregation, operator.logic.key
    assert aggregation.row is not None
    schema = aggregation.row.schema
    forms = [form_of(each, kind_of_values(each.value, aggregation.row)) for each in aggregation.aggregates]
    return ColumnStates(forms, key is not None and len(key.fields) == 1 and _is_whole(schema.field(key.fields[0]).type))


def _by_columns(node: KeyedNode) -> bool:
    """Tell whether an operator's rows may be taken by columns: it reads fields of known types and gives such."""
    operator = node.operator
    if not isinstance(operator, Keyed) or not isinstance(operator.logic, Aggregate) or node.types[0] is None:
        return False
    aggregation, key = operator.logic.aggregation, operator.logic.key
    if aggregation.row is None or aggregation.row.form == "scalar" or not has_its_columns(aggregation.row):
        return False
    if key is not None and key.function is not None:
        return False
    return all(
        not (aggregate.own or aggregate.in_place) and _has_columns(aggregate.value)
        for aggregate in aggregation.aggregates
    )


def _has_columns(value: Any) -> bool:
    """Tell whether what an aggregate takes can be had from columns alone."""
    return value is None or isinstance(value, str) or (isinstance(value, TakenValues) and value.by_columns)


def _column(value: Any, columns: pa.RecordBatch) -> pa.Array | list[Any] | None:
    if isinstance(value, TakenValues):
        return value.read_many(columns, list)
    return None if value is None else columns.column(value)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind)) and kind != pa.uint64()


class Running:
    """Run one operator over one chunk, its rows in order."""

    def __init__(self, node: KeyedNode, shards: Shards) -> None:
        assert isinstance(node.operator.logic, Aggregate)
        self._node, self._operator, self._shards = node, node.operator, shards
        self._aggregation, self._key = node.operator.logic.aggregation, node.operator.logic.key

    def run(self, chunk: Chunk, shards: Ints) -> Chunk | None:
        """Take the rows, each with its shard; return the rows that come out, None where columns will not do."""
        if chunk.type is None:
            return None
        try:
            columns = chunk.get_columns()
            found = self._grouped(chunk, columns)
            if found is None:
                return None
            members, keys = found
            parts = list(self._by_shard(keys, shards[members.firsts]))
            if any(not isinstance(shard.states, ColumnStates) for shard, _, _ in parts):
                return None
            slots = [shard.states.find(mine) for shard, _, mine in parts]  # type: ignore[attr-defined]
            results, forms, after = self._folded(columns, members, parts, slots)
            made = pa.RecordBatch.from_arrays([*self._shown(columns), *results], schema=self._declared.schema)
        except Exception:
            return None  # found again row by row
        for (shard, which, mine), held in zip(parts, slots, strict=True):
            some = [tuple(_some(part, which) for part in column) for column in after]
            shard.states.scatter(mine, held, forms, some)  # type: ignore[attr-defined]
        return Chunk(chunk.positions, chunk.times, self._declared, made)

    @property
    def _declared(self) -> Any:
        return self._node.types[0]

    def _grouped(self, chunk: Chunk, columns: pa.RecordBatch) -> tuple[Members, Keys] | None:
        """Return the rows by their key, and the keys."""
        if self._key is not None and len(self._key.fields) == 1:
            column = columns.column(self._key.fields[0])
            if _is_whole(column.type) and column.null_count == 0:
                return Members.by_number(column.to_numpy().astype(np.int64, copy=False))
        found = keys_of(self._operator, 0, chunk)
        if found is None:
            return None
        codes, first = grouped(found.codes()[0])
        return Members.by_code(codes, len(first)), found.take(first).values()

    def _by_shard(self, keys: Keys, shard_of: Ints) -> Iterator[tuple[Shard, Ints | None, Keys]]:
        """Yield the shards, with the numbers of their keys (None for all), and these."""
        if (shard_of == shard_of[0]).all():
            yield self._shards.get(int(shard_of[0])), None, keys
            return
        order = np.argsort(shard_of, kind="stable")
        numbers, starts = np.unique(shard_of[order], return_index=True)
        for number, which in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            mine = [keys[i] for i in which.tolist()] if isinstance(keys, list) else np.asarray(keys)[which]
            yield self._shards.get(number), which, mine

    def _folded(
        self, columns: pa.RecordBatch, members: Members, parts: Any, slots: list[Ints]
    ) -> tuple[list[pa.Array], list[Form], list[Parts]]:
        gathered = [(s.states, which, s.states.gather(held)) for (s, which, _), held in zip(parts, slots, strict=True)]
        results, forms, after = [], [], []
        fields = list(self._declared.schema)[-len(self._aggregation.names) :]
        for number, (aggregate, field) in enumerate(zip(self._aggregation.aggregates, fields, strict=True)):
            some = [(states.forms[number], which, found[number]) for states, which, found in gathered]
            form, carried = _together(some, members.count)
            column = _column(aggregate.value, columns)
            made, form, parts_after = running(aggregate, form, carried, column, members, field.type)
            results.append(made)
            forms.append(form)
            after.append(parts_after)
        return results, forms, after

    def _shown(self, columns: pa.RecordBatch) -> Iterator[pa.Array]:
        """Yield the columns of the key as it is shown."""
        for name in () if self._key is None else self._key.fields:
            column = columns.column(name)
            if pa.types.is_floating(column.type):  # as keys, -0.0 and 0.0 are one
                zero = pa.scalar(0.0, column.type)
                column = pc.if_else(pc.equal(column, zero), zero, column)
            yield column


def _together(some: list[tuple[Form, Ints | None, Parts]], count: int) -> tuple[Form, Parts]:
    """Put the states of several shards in one set of arrays, by the numbers of their keys."""
    form = some[0][0] if len({form.name for form, _, _ in some}) == 1 else OBJECTS
    if len(some) == 1:
        return form, some[0][2]
    made = form.blanks(count)
    for own, which, parts in some:
        same = parts if own is form else (value_list(own.unpack(parts)),)
        for one, part in zip(made, same, strict=True):
            one[which] = part
    return form, made


def _some(part: Any, which: Ints | None) -> Any:
    return part if which is None else part[which]
