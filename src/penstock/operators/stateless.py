"""Operators without memory: each takes rows of one stream and gives rows, in order."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, ClassVar

import pyarrow as pa

import penstock.operators.exact_numbers  # noqa: F401 (functions that expressions may call)
from penstock.errors import FlowError, RowTypeError
from penstock.operators.base import Kind, Operator
from penstock.operators.calls import Calls
from penstock.rows.records import Row, RowType

SKIPPED = object()
"""Stands in an output list for a row whose function failed and was skipped."""


class Default(int):
    """A number that the user did not give: an engine may find a better one."""


DEFAULT_THREADS = Default(64)
"""Rows in flight of a plain function that waits: each has a thread."""
DEFAULT_TASKS = Default(512)
"""Rows in flight of an `async def`: each is a suspended frame."""
MOST_THREADS = 1024
"""Rows in flight of a plain function, at most: a thread takes memory and a place in the system's tables."""
MOST_TASKS = 4096
"""Rows in flight of an `async def` that an engine finds, at most; a user who asks for more gets them.

Each is a request to a service, and most systems let a process have fewer connections open.
"""


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
class PerRow(Stateless):
    """Base of the operators that call one function for each row; it may be one that waits."""

    function: Callable[..., Any] = None  # type: ignore[assignment]
    in_flight: int | None = dataclasses.field(default=None, kw_only=True)
    """How many rows are waited for at once (`Default` where the user did not say); None for a function that does not
    wait."""

    calls: Calls | None = dataclasses.field(default=None, kw_only=True)
    """How calls are made that are more than a call: tried again, in time, remembered."""

    def called(self) -> Callable[[Row], Any]:
        """Return what one call is: the user's function, to the end of what it yields."""
        return self.function

    def row_function(self, called: Callable[[Row], Any] | None = None) -> Callable[[Row], Any]:
        """Return what to call with a row, for a result that `outputs_of` takes; a coroutine function if `is_async`.

        `called` stands in for `called()`.
        """
        return called or self.called()

    def outputs_of(self, row: Row, result: Any) -> list[tuple[int, Row]]:
        """Return what leaves for a row, given what `row_function` returned for it."""
        raise NotImplementedError

    @property
    def is_async(self) -> bool:
        return self.in_flight is not None and is_async_function(self.function)


@dataclass(frozen=True)
class Map(PerRow):
    """Replace each row by what the function returns."""

    returns: RowType | None = None

    def row_function(self, called: Callable[[Row], Any] | None = None) -> Callable[[Row], Any]:
        function = called or self.function
        if self.returns is None or self.returns.form != "record":
            return function
        return partial(self._shaped_async if self.is_async else self._shaped, function)

    def outputs_of(self, row: Row, result: Any) -> list[tuple[int, Row]]:
        return [(0, self.shape(result))]

    def shape(self, row: Row) -> Row:
        return row if self.returns is None else self.returns.normalize(row)

    def _shaped(self, function: Callable[[Row], Any], row: Row) -> Row:
        return self.shape(function(row))

    async def _shaped_async(self, function: Callable[[Row], Any], row: Row) -> Row:
        return self.shape(await function(row))


@dataclass(frozen=True)
class Filter(PerRow):
    """Keep the rows for which the predicate holds."""

    def outputs_of(self, row: Row, result: Any) -> list[tuple[int, Row]]:
        return [(0, row)] if result else []


@dataclass(frozen=True)
class FlatMap(PerRow):
    """Replace each row by the rows that the function returns or yields."""

    expands: ClassVar[bool] = True
    returns: RowType | None = None

    def called(self) -> Callable[[Row], Any]:
        if not self.is_async:
            return self._listed
        return self._listed_yielded if yields_async(self.function) else self._listed_awaited

    def row_function(self, called: Callable[[Row], Any] | None = None) -> Callable[[Row], Any]:
        function = called or self.called()
        if self.returns is None:
            return function
        return partial(self._shaped_async if self.is_async else self._shaped, self.returns.normalize, function)

    def outputs_of(self, row: Row, result: Any) -> list[tuple[int, Row]]:
        return [(0, item) for item in result]

    # The whole list first: a function that fails half-way must leave nothing behind.

    def _listed(self, row: Row) -> list[Row]:
        return _as_list(self.function(row))

    async def _listed_awaited(self, row: Row) -> list[Row]:
        return _as_list(await self.function(row))

    async def _listed_yielded(self, row: Row) -> list[Row]:
        return [item async for item in self.function(row)]

    @staticmethod
    def _shaped(normalize: Callable[[Row], Row], function: Callable[[Row], list[Row]], row: Row) -> list[Row]:
        return list(map(normalize, function(row)))

    @staticmethod
    async def _shaped_async(normalize: Callable[[Row], Row], function: Callable[[Row], Any], row: Row) -> list[Row]:
        return list(map(normalize, await function(row)))


def _as_list(items: Iterable[Row]) -> list[Row]:
    refuse_row(items)
    return list(items)


def refuse_row(items: Any) -> None:
    """Refuse one row where a list of rows should be: its fields are no rows."""
    kind = type(items)
    if kind is list or kind is tuple:
        return
    if isinstance(items, (str, bytes, Mapping)) or hasattr(kind, "_fields"):
        raise TypeError(f"the function must return a list of rows, or yield them, and returned one row: {items!r}")


def rows_in_flight(
    function: Any, waits: bool | None, in_flight: int | None, name: str, *, yields: bool = False
) -> int | None:
    """Return how many rows of a function to wait for at once, None for one that does not wait; refuse what is wrong.

    `yields` says whether the function may be an asynchronous generator.
    """
    asynchronous = is_async_function(function)
    if waits not in (None, True, False):
        raise FlowError(f"operator {name!r}: waits={waits!r}; use True for a function that waits")
    if yields_async(function) and not yields:
        raise FlowError(
            f"operator {name!r}: {_name(function)} is an asynchronous generator, which gives any number of rows; use "
            f"flat_map(), or return the row instead of yielding it"
        )
    if waits is False and asynchronous:
        raise FlowError(f"operator {name!r}: {_name(function)} is an async def, which always waits; leave out waits=")
    if waits is False and in_flight is not None:
        raise FlowError(f"operator {name!r}: in_flight={in_flight!r} is for functions that wait; leave out waits=False")
    if in_flight is None:
        return DEFAULT_TASKS if asynchronous else DEFAULT_THREADS if waits else None
    check_in_flight(in_flight, asynchronous, name)
    return in_flight


def most_in_flight(asynchronous: bool) -> int:
    return MOST_TASKS if asynchronous else MOST_THREADS


def rows_wait(operator: Operator) -> bool:
    """Tell whether the rows of an operator wait without keeping a worker meanwhile."""
    return isinstance(operator, PerRow) and operator.in_flight is not None


def rows_gather(operator: Operator) -> bool:
    """Tell whether the rows of an operator may wait for others."""
    return isinstance(operator, MapBatches) and operator.wait is not None


def check_in_flight(in_flight: Any, asynchronous: bool, name: str) -> None:
    if not isinstance(in_flight, int) or isinstance(in_flight, bool) or in_flight < 1:
        raise FlowError(f"operator {name!r}: in_flight={in_flight!r}; give a whole number of rows, 1 or more")
    if in_flight > MOST_THREADS and not asynchronous:
        raise FlowError(
            f"operator {name!r}: in_flight={in_flight}, and each row of a plain function needs a thread; give at most "
            f"{MOST_THREADS}, or write the function as async def"
        )


def refuse_async(function: Any, name: str, what: str) -> None:
    """Refuse an async def where it would not be awaited: what it returns would count as true."""
    if is_async_function(function):
        raise FlowError(
            f"operator {name!r}: {what} cannot be async def; compute it in a map() with the async def before, which "
            f"may wait"
        )


def is_async_function(function: Any) -> bool:
    return _is(inspect.iscoroutinefunction, function) or yields_async(function)


def yields_async(function: Any) -> bool:
    return _is(inspect.isasyncgenfunction, function)


def _is(test: Callable[[Any], bool], function: Any) -> bool:
    """Test a function, or the call of an object that can be called."""
    return test(function) or test(getattr(type(function), "__call__", None))  # noqa: B004


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", repr(function)))


@dataclass(frozen=True)
class Split(Stateless):
    """Send each row to the port of the first predicate that holds, or to the last port."""

    predicates: tuple[Callable[[Row], Any], ...] = ()

    def one(self, row: Row) -> list[tuple[int, Row]]:
        return [(self.port(row), row)]

    def port(self, row: Row) -> int:
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
    is_async: ClassVar[bool] = False
    function: Callable[..., Any] = None  # type: ignore[assignment]
    returns: RowType | None = None
    rows: int | None = None
    """The most rows of a call; None for as many as there are."""
    wait: float | None = None
    """Seconds for which rows may wait for others, where they would be fewer; None for none."""
    calls: Calls | None = None

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


Expressions = Sequence[tuple[str, Any]]
"""`pyarrow.compute` expressions and the names of their columns."""


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
        return evaluate(rows, (("keep", self.expression),)).column(0).fill_null(False)

    def batch(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        mask = self.mask(rows)
        keep = mask.to_numpy(zero_copy_only=False)
        return rows.filter(mask), list(compress(range(rows.num_rows), keep))

    def result_type(self) -> RowType | None:
        return self.input


def evaluate(rows: pa.RecordBatch, *steps: Expressions) -> pa.RecordBatch:
    """Evaluate expressions on a record batch, and those of each further step on what the one before gave."""
    from pyarrow import acero

    nodes = [acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows])))]
    for step in steps:
        names, values = zip(*step, strict=True)
        nodes.append(acero.Declaration("project", acero.ProjectNodeOptions(list(values), list(names))))
    plan = acero.Declaration.from_sequence(nodes)
    table = plan.to_table(use_threads=False).combine_chunks()
    if table.num_rows == 0:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return table.to_batches()[0]
