"""What happens inside a window, whatever its kind: rows go in one by one, and something comes out at its close."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.operators.aggregation import Aggregation
from penstock.operators.base import Key
from penstock.operators.scan import aggregate_type, combined
from penstock.operators.windows import Window
from penstock.rows.records import Row, RowType, record_class


class Fold(Protocol):
    """What happens inside a window: rows go in one by one, one row (or several) comes out at the close."""

    def add(self, state: Any, row: Row) -> Any:
        """Take a row in; `state` is None for the first."""

    def close(self, state: Any, window: Window) -> list[Row]:
        """Return the window's rows."""

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        """Tell the type of the window's rows."""

    def taken(self) -> list[Any]:
        """List what is computed of each row by expressions (`Taken`)."""

    def functions(self) -> list[Any]:
        """List the user's functions."""


def named(names: Sequence[str], fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Return the fields that tell a window under the names that it was given."""
    return [field.with_name(name) for name, field in zip(names, fields, strict=True)]


@dataclass(frozen=True)
class AggregateFold:
    """Emit (key, window bounds, aggregates)."""

    aggregation: Aggregation
    key: Key | None
    bounds: tuple[str, ...]

    def add(self, state: Any, row: Row) -> Any:
        return self.aggregation.step(state, row)

    def close(self, state: Any, window: Window) -> list[Row]:
        names = self.key.names if self.key else ()
        values = self.key.values(window.key) if self.key else ()
        bounds = (window.start, window.end)[: len(self.bounds)]
        cls = record_class((*names, *self.bounds, *self.aggregation.names))
        return [tuple.__new__(cls, (*values, *bounds, *self.aggregation.results(state)))]

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return aggregate_type(self.aggregation, self.key, row, named(self.bounds, bounds))

    def taken(self) -> list[Any]:
        return self.aggregation.taken()

    def functions(self) -> list[Any]:
        return self.aggregation.functions()


@dataclass(frozen=True)
class ReduceFold:
    """Emit the rows of the window combined by a function, beginning with the first."""

    function: Callable[[Any, Row], Any]
    returns: RowType | None

    def add(self, state: Any, row: Row) -> Any:
        return combined(self.function, self.returns, state, row)

    def close(self, state: Any, window: Window) -> list[Row]:
        return [state]

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return self.returns or row

    def taken(self) -> list[Any]:
        return []

    def functions(self) -> list[Any]:
        return [self.function]


@dataclass(frozen=True)
class ApplyFold:
    """Emit what `function(window, rows)` returns for all rows of the window."""

    function: Callable[[Window, list[Row]], Row]
    returns: RowType | None

    def add(self, state: Any, row: Row) -> Any:
        if state is None:
            return [row]
        state.append(row)  # cannot fail, so a row that fails elsewhere still changes nothing
        return state

    def close(self, state: Any, window: Window) -> list[Row]:
        result = self.function(window, list(state))
        return [result if self.returns is None else self.returns.normalize(result)]

    def result_type(self, row: RowType | None, key: Key | None, bounds: Sequence[pa.Field]) -> RowType | None:
        return self.returns

    def taken(self) -> list[Any]:
        return []

    def functions(self) -> list[Any]:
        return [self.function]
