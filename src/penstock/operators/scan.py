"""Running state: one output for each row (scan, aggregate, reduce), or any number (flat_scan)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, ClassVar

import pyarrow as pa

from penstock.operators.aggregate_columns import in_order
from penstock.operators.aggregate_values import TakenValues, read_all
from penstock.operators.aggregates import Agg, identity, results_of
from penstock.operators.aggregation import Aggregation
from penstock.operators.base import Context, Emits, Key, Logic
from penstock.operators.fold_loops import fold_outputs, no_pair
from penstock.operators.stateless import refuse_row
from penstock.rows.chunk import FlatRows
from penstock.rows.records import Row, RowType, record_class
from penstock.rows.timing import TimeKind
from penstock.rows.values import snapshot


def state_maker(initial: Any) -> Callable[[], Any]:
    """Return a function, which pickles, that makes the state of a new key, from a value or a factory."""
    if callable(initial):
        factory: Callable[[], Any] = initial
        return factory
    # A value that can be changed would be shared by all keys. What is copied as itself cannot be changed.
    try:
        fixed = copy.deepcopy(initial) is initial
    except Exception:  # found again, and reported, when the first key begins
        fixed = False
    return partial(identity if fixed else copy.deepcopy, initial)


@dataclass(frozen=True)
class Scan(Logic):
    """Call `function(state, row) -> (state, output)`; a key begins with `initial()`."""

    emits: ClassVar[Emits] = "one"
    takes_once: ClassVar[bool] = True
    function: Callable[[Any, Row], tuple[Any, Row]]
    initial: Callable[[], Any]
    returns: RowType | None = None

    def fold(
        self, states: MutableMapping[Any, Any], keys: Iterable[Any], rows: Iterable[Row], out: list[Row], careful: bool
    ) -> None:
        pairs = zip(keys, rows, strict=True)
        fold_outputs(self.function, self.initial, self.returns, pairs, states, out, careful)

    def flat_rows(self, for_columns: bool) -> FlatRows | None:
        returns = self.returns
        if returns is None or returns.form not in (("record", "tuple") if for_columns else ("record",)):
            return None
        return None if returns.has_changeable or not len(returns.schema) else FlatRows(returns, for_columns)

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        result = self.function(self.initial() if state is None else state, row)
        try:
            state, output = result
        except (TypeError, ValueError):
            raise no_pair(result, "output") from None
        context.emit(snapshot(output) if self.returns is None else self.returns.detach(output))
        return state

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.returns


@dataclass(frozen=True)
class FlatScan(Logic):
    """Call `function(state, row) -> (state, outputs)`: any number of outputs for a row."""

    emits: ClassVar[Emits] = "many"
    takes_once: ClassVar[bool] = True
    function: Callable[[Any, Row], tuple[Any, Any]]
    initial: Callable[[], Any]
    returns: RowType | None = None

    def fold_many(
        self,
        states: MutableMapping[Any, Any],
        keys: Iterable[Any],
        rows: Iterable[Row],
        out: list[Row],
        counts: list[int],
        careful: bool,
    ) -> None:
        function, initial, get, extend, count = self.function, self.initial, states.get, out.extend, counts.append
        returns = self.returns
        detach: Callable[[Row], Row] | None = snapshot if returns is None else returns.detach
        new_rows = getattr(function, "makes_new_rows", False)  # Penstock's own: no one else holds or changes them
        if new_rows or (returns is not None and returns.form in ("scalar", "tuple") and not returns.has_changeable):
            detach = None
        plain = None if careful or returns is None or returns.has_changeable or returns.form != "record" else tuple
        held = len(out)
        for key, row in zip(keys, rows, strict=True):
            state = get(key)
            result = function(initial() if state is None else state, row)
            try:
                state, outputs = result
            except (TypeError, ValueError):
                raise no_pair(result, "outputs") from None
            refuse_row(outputs)
            try:
                extend(outputs if detach is None else [o if type(o) is plain else detach(o) for o in list(outputs)])
            except BaseException:
                del out[held:]  # a generator that fails half-way leaves nothing behind
                raise
            if state is None:
                states.pop(key, None)
            else:
                states[key] = state
            count(len(out) - held)
            held = len(out)

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        result = self.function(self.initial() if state is None else state, row)
        try:
            state, outputs = result
        except (TypeError, ValueError):
            raise no_pair(result, "outputs") from None
        refuse_row(outputs)
        for output in list(outputs):
            context.emit(snapshot(output) if self.returns is None else self.returns.detach(output))
        return state

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.returns

    def taken(self) -> list[Any]:
        return self.function.taken() if hasattr(self.function, "taken") else []  # Penstock's own function


def keep_first(seen: Any, row: Row) -> tuple[bool, tuple[Row, ...]]:
    return True, () if seen else (row,)


def combined(function: Callable[[Any, Row], Any], returns: RowType | None, state: Any, row: Row) -> Any:
    """Take one row into what rows were combined to; the first is copied, since the function may change what it has."""
    value = snapshot(row) if state is None else function(state, row)
    return value if returns is None else returns.normalize(value)


@dataclass(frozen=True)
class Reduce(Logic):
    """Combine rows by `function(accumulated, row)`, beginning with the first row; emit the running value."""

    emits: ClassVar[Emits] = "one"
    function: Callable[[Any, Row], Any]
    returns: RowType | None = None

    def fold(
        self, states: MutableMapping[Any, Any], keys: Sequence[Any], rows: Sequence[Row], out: list[Row], careful: bool
    ) -> None:
        get, append = states.get, out.append
        for key, row in zip(keys, rows, strict=True):
            states[key] = state = combined(self.function, self.returns, get(key), row)
            append(snapshot(state))  # the function may change what it has with the next row

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        state = combined(self.function, self.returns, state, row)
        context.emit(snapshot(state))
        return state

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return self.returns or inputs[0]


@dataclass(frozen=True)
class Aggregate(Logic):
    """Emit the running aggregates of the key after each row."""

    emits: ClassVar[Emits] = "one"
    aggregation: Aggregation
    key: Key | None

    def fold(
        self, states: MutableMapping[Any, Any], keys: Sequence[Any], rows: Sequence[Row], out: list[Row], careful: bool
    ) -> None:
        if self.aggregation.by_column and len(rows) > 1:
            try:
                rows_out, after = self._columns(states, keys, rows)
            except Exception:
                pass  # found again below, row by row
            else:
                states.update(after)
                out.extend(rows_out)
                return
        get, append = states.get, out.append
        for key, row in zip(keys, rows, strict=True):
            state, results = self.aggregation.advance(get(key), row)
            append(self._output(key, results))
            states[key] = state

    def _columns(
        self, states: MutableMapping[Any, Any], keys: Sequence[Any], rows: Sequence[Row]
    ) -> tuple[list[Row], dict[Any, Any]]:
        """Fold aggregate by aggregate; return the outputs and the new states."""
        aggregation = self.aggregation
        firsts: dict[Any, int] = {}
        members = list(map(firsts.setdefault, keys, range(len(keys))))  # the first row of the same key stands for it
        held = [states.get(key) for key in firsts]
        # All values before the first step: reading may fail, and a step may change its state in place.
        values = [
            repeat(None) if read is None else _read(aggregate, read, rows)
            for aggregate, read in zip(aggregation.aggregates, aggregation.readers, strict=True)
        ]
        results: list[Any] = [None] * len(aggregation.names)
        lasts: list[Any] = [None] * len(aggregation.names)
        for index in in_order(aggregation):
            aggregate = aggregation.aggregates[index]
            current: list[Any] = [None] * len(keys)
            for first, state in zip(firsts.values(), held, strict=True):
                current[first] = aggregate.start() if state is None else state[index]
            results[index] = _running(aggregate, current, members, values[index])
            lasts[index] = [current[first] for first in firsts.values()]
        after = dict(zip(firsts, map(list, zip(*lasts, strict=True)), strict=True))
        shown = [] if self.key is None else list(zip(*keys, strict=True)) if len(self.key.fields) > 1 else [keys]
        names = self.key.names if self.key else ()
        cls = record_class((*names, *aggregation.names))
        return list(map(partial(tuple.__new__, cls), zip(*shown, *results, strict=True))), after

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        state, results = self.aggregation.advance(state, row)
        context.emit(self._output(context.key, results))
        return state

    def _output(self, key: Any, results: list[Any]) -> Row:
        names = self.key.names if self.key else ()
        values = self.key.values(key) if self.key else ()
        cls = record_class((*names, *self.aggregation.names))
        return tuple.__new__(cls, (*values, *results))

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        return aggregate_type(self.aggregation, self.key, inputs[0], ())

    def taken(self) -> list[TakenValues]:
        return self.aggregation.taken()


def _read(aggregate: Agg, read: Callable[[Row], Any], rows: Sequence[Row]) -> list[Any]:
    """Return the values that an aggregate takes; expressions are computed for all rows at once."""
    if not isinstance(aggregate.value, TakenValues):
        return read_all(read, rows)
    values, check = aggregate.value.read_each(rows), aggregate.check
    return values if check is None else list(map(check, values))


def _running(aggregate: Agg, current: list[Any], members: list[int], values: Iterable[Any]) -> list[Any]:
    """Fold values into the states at `current`; return the result after each."""
    step, result, results = aggregate.step, aggregate.result, []
    at_once = not aggregate.in_place
    for member, value in zip(members, values, strict=False):
        current[member] = state = step(current[member], value)
        results.append(state if at_once else result(state))
    return results_of(aggregate, results) if at_once else results


def key_fields(key: Key | None, row: RowType | None) -> list[pa.Field] | None:
    """Return the fields of a key in rows that Penstock makes, or None where a type is unknown."""
    if key is None:
        return []
    if row is None or key.function is not None:
        return None
    return [row.schema.field(name).remove_metadata() for name in key.fields]


def aggregate_type(
    aggregation: Aggregation, key: Key | None, row: RowType | None, middle: Sequence[pa.Field]
) -> RowType | None:
    """Return the type of (key, window, aggregates) rows, or None where a part of it is unknown."""
    keys, results = key_fields(key, row), aggregation.fields(row)
    if keys is None or results is None:
        return None
    return RowType(pa.schema([*keys, *middle, *results]), "record")
