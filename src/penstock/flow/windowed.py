"""A stream that is grouped in windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import described, free_name, ranking, remembering
from penstock.flow.checks import missing_method
from penstock.operators import aggregates
from penstock.operators.aggregation import aggregation
from penstock.operators.base import Key, OnError
from penstock.operators.window_folds import RANK, AggregateFold, ApplyFold, Fold, ReduceFold, TopFold
from penstock.operators.windows import Count, Window, WindowSpec, as_spec, window_logic
from penstock.plan.graph import marks_keep_up
from penstock.rows.row_types import OutT, Returned, RowT_co, Schema
from penstock.rows.timing import Arrival, Duration, unit_of

if TYPE_CHECKING:
    from penstock.flow.stream import Stream

Result = TypeVar("Result")


class WindowedStream(Generic[RowT_co]):
    """Rows grouped in windows; say what comes out of each."""

    def __init__(
        self, stream: Stream[RowT_co], key: Key | None, spec: WindowSpec | Duration, by: Arrival | None = None
    ) -> None:
        self.stream, self.key, self.spec, self.by = stream, key, as_spec(spec), by

    def __repr__(self) -> str:
        by = "" if self.by is None else f" by {self.by}"
        return f"{described(self.stream, 'WindowedStream', self.key)[:-1]}; in {self.spec}{by}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_method(self, name)

    def __rshift__(self, stage: Callable[[WindowedStream[RowT_co]], Result]) -> Result:
        return stage(self)

    def aggregate(
        self, *unnamed: Never, name: str | None = None, on_error: OnError = "fail", **results: aggregates.Agg
    ) -> Stream:
        """Emit (key, window_start, window_end, aggregates) once, at the close."""
        checks.all_named(unnamed)
        name, on_error, results = checks.options_or_results(aggregates.Agg, name, on_error, results)
        name = free_name(self.stream.flow, name, None, "window")
        bundle = aggregation(results, name, self.stream.type)
        keys = self.key.names if self.key else ()
        bounds = self._bounds(keys)
        checks.window_results(bundle.names, bounds, name)
        checks.aggregate_fields(bundle, self.stream.type, name, (*keys, *bounds))
        return self._close(name, AggregateFold(bundle, self.key, bounds), on_error)

    def count(self, *, name: str | None = None, on_error: OnError = "fail") -> Stream:
        """Count the rows of each window, in the field `count`."""
        return self.aggregate(count=aggregates.count(), name=name, on_error=on_error)

    def sum(self, field: str, *, name: str | None = None, on_error: OnError = "fail") -> Stream:
        """Add up a field, in the field `sum`."""
        return self.aggregate(sum=aggregates.sum(field), name=name, on_error=on_error)

    def min(self, field: str, *, name: str | None = None, on_error: OnError = "fail") -> Stream:
        """Find the smallest value of a field, in the field `min`."""
        return self.aggregate(min=aggregates.min(field), name=name, on_error=on_error)

    def max(self, field: str, *, name: str | None = None, on_error: OnError = "fail") -> Stream:
        """Find the largest value of a field, in the field `max`."""
        return self.aggregate(max=aggregates.max(field), name=name, on_error=on_error)

    def mean(self, field: str, *, name: str | None = None, on_error: OnError = "fail") -> Stream:
        """Average a field, in the field `mean`."""
        return self.aggregate(mean=aggregates.mean(field), name=name, on_error=on_error)

    def top(
        self, count: int, *, by: Any, largest: bool = True, name: str | None = None, on_error: OnError = "fail"
    ) -> Stream:
        """Emit, at the close, the `count` rows with the largest `by`: (window_start, window_end, rank, their fields).

        `by` is a field, an expression or a function of the row. Of equal ones the earlier row is before.
        """
        name = free_name(self.stream.flow, name, None, "window")
        ranked = ranking(self.stream, count, by, largest, name, (RANK,))
        return self._close(name, TopFold(ranked, self._bounds(ranked.row.names)), on_error)

    def reduce(
        self,
        function: Callable[[Any, RowT_co], Returned[OutT]],
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[OutT]:
        """Combine the rows of each window: `function(accumulated, row)`, beginning with the first row."""
        name = free_name(self.stream.flow, name, function, "window")
        returns = checks.combines_to(function, schema, name, self.stream.type)
        return self._close(name, ReduceFold(function, returns), on_error)

    def apply(
        self,
        function: Callable[[Window, list[RowT_co]], Returned[OutT]],
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[OutT]:
        """Emit `function(window, rows)` for each window; window has key, start and end."""
        name = free_name(self.stream.flow, name, function, "window")
        return self._close(
            name, ApplyFold(function, checks.returns(function, schema, name, takes=("window", "rows"))), on_error
        )

    def _bounds(self, taken: Sequence[str]) -> tuple[str, ...]:
        """Name the fields that tell a window: those of one after another window have a number."""
        names = ("window",) if isinstance(self.spec, Count) else ("window_start", "window_end")
        number = 1
        while any(name in taken for name in (_numbered(each, number) for each in names)):
            number += 1
        return tuple(_numbered(name, number) for name in names)

    def _close(self, name: str, fold: Fold, on_error: OnError) -> Stream:
        time = checks.time_by(self.stream, self.by, name)
        in_time = self.by is not None or marks_keep_up(self.stream.flow.nodes, self.stream.port)
        logic, unit = window_logic(self.spec, fold, self.key, name, in_time)
        late = ("late",) if unit else ()
        if unit is not None:
            if time is None:
                checks.has_time(self.stream, name, "a time window")
            if unit != unit_of(time):
                raise FlowError(checks.unit_mismatch(name, "window", self.spec, time))
        ttl = self.spec.ttl if isinstance(self.spec, Count) else None
        if unit is None and ttl is None and self.by is not None:
            raise FlowError(f"operator {name!r}: a count window without ttl= goes by no time; leave out by=")
        return remembering(self.stream, name, logic, self.key, on_error, extra_ports=late, by=self.by, ttl=ttl)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"
