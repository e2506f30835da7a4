"""What streams do with memory: one state for all rows, or one for each key of a keyed stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Never

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import free_name, kind_of_times, lifetime, places_of, ranking, remembering
from penstock.flow.windowed import WindowedStream
from penstock.operators import aggregates
from penstock.operators.aggregation import aggregation
from penstock.operators.base import OnError
from penstock.operators.pattern import Absent, Match, Pattern, Step
from penstock.operators.process import ProcessLike, process_logic
from penstock.operators.scan import Aggregate, FlatScan, Reduce, Scan, state_maker
from penstock.operators.stateless import refuse_async
from penstock.operators.window_folds import LEFT, RANK, RunningTop
from penstock.operators.windows import WindowSpec
from penstock.rows.row_types import UNSET, OutT, Returned, RowT_co, Schema, StateT, row_type
from penstock.rows.timing import Arrival, Duration

if TYPE_CHECKING:
    from penstock.flow.stream import Stream


class Stateful(Generic[RowT_co]):
    """Rows that operators with memory can be applied to."""

    @property
    def _keyed_rows(self) -> Stream[RowT_co]:
        """The stream, with its key where there is one."""
        raise NotImplementedError

    def scan(
        self,
        function: Callable[[StateT, RowT_co], tuple[StateT, Returned[OutT]]],
        initial: Callable[[], StateT] | StateT = UNSET,
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        ttl: Duration | None = None,
    ) -> Stream[OutT]:
        """Keep running state: `function(state, row) -> (state, output)`; `initial`: a value or a factory.

        With `ttl` a key that had no row for so long, by event time, is forgotten: its next row begins anew. So it is
        for all operators with `ttl`.
        """
        stream = self._keyed_rows
        name = free_name(stream.flow, name, function, "scan")
        returns = checks.returns(function, schema, name, takes=("state", "row"), pair=True)
        return remembering(stream, name, Scan(function, state_maker(initial), returns), stream.key, on_error, ttl=ttl)

    def flat_scan(
        self,
        function: Callable[[StateT, RowT_co], tuple[StateT, Iterable[Returned[OutT]]]],
        initial: Callable[[], StateT] | StateT = UNSET,
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        ttl: Duration | None = None,
    ) -> Stream[OutT]:
        """Keep running state with any number of outputs a row: `function(state, row) -> (state, outputs)`."""
        stream = self._keyed_rows
        name = free_name(stream.flow, name, function, "flat_scan")
        returns = checks.returns(function, schema, name, takes=("state", "row"), pair=True, item=True)
        return remembering(
            stream, name, FlatScan(function, state_maker(initial), returns), stream.key, on_error, ttl=ttl
        )

    def reduce(
        self,
        function: Callable[[Any, RowT_co], Returned[OutT]],
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        ttl: Duration | None = None,
    ) -> Stream[OutT]:
        """Combine rows: `function(accumulated, row)`, from the first row on; emits the running value."""
        stream = self._keyed_rows
        name = free_name(stream.flow, name, function, "reduce")
        returns = checks.combines_to(function, schema, name, stream.type)
        return remembering(stream, name, Reduce(function, returns), stream.key, on_error, ttl=ttl)

    def aggregate(
        self,
        /,
        *unnamed: Never,
        name: str | None = None,
        on_error: OnError = "fail",
        ttl: Duration | None = None,
        **results: aggregates.Agg,
    ) -> Stream:
        """Emit running aggregates after each row: `aggregate(n=ps.agg.count(), sum=ps.agg.sum("v"))`."""
        checks.all_named(unnamed)
        name, on_error, results = checks.options_or_results(aggregates.Agg, name, on_error, results)
        if isinstance(ttl, aggregates.Agg):  # a computed field may be called so
            ttl, results = None, {"ttl": ttl, **results}
        stream = self._keyed_rows
        name = free_name(stream.flow, name, None, "aggregate")
        bundle = aggregation(results, name, stream.type)
        key = stream.key
        checks.aggregate_fields(bundle, stream.type, name, key.names if key else ())
        return remembering(stream, name, Aggregate(bundle, key), key, on_error, ttl=ttl)

    def top(
        self,
        count: int,
        *,
        by: Any,
        largest: bool = True,
        name: str | None = None,
        on_error: OnError = "fail",
        ttl: Duration | None = None,
    ) -> Stream:
        """Emit each row that enters the `count` rows with the largest `by`, with its `rank` and the row that `left`.

        Of equal ones the earlier row is before. Per window: `window(...).top(...)`.
        """
        stream = self._keyed_rows
        name = free_name(stream.flow, name, None, "top")
        running = RunningTop(ranking(stream, count, by, largest, name, (RANK, LEFT)))
        logic = FlatScan(running, state_maker(()), running.returns)
        return remembering(stream, name, logic, stream.key, on_error, ttl=ttl)

    def process(
        self,
        process: ProcessLike,
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        ttl: Duration | None = None,
        by: Arrival | None = None,
    ) -> Stream[OutT]:
        """Run a class of your own with state and timers; see `penstock.Process`.

        With `by=ps.arrival` its time, timers and `ttl` go by the time of day, whatever event time the rows have.
        """
        stream = self._keyed_rows
        process = process() if isinstance(process, type) else process
        name = free_name(stream.flow, name, type(process), "process")
        logic = process_logic(process, row_type(schema, name), name, ("on_row",))
        return remembering(stream, name, logic, stream.key, on_error, ttl=ttl, by=by)

    def pattern(
        self,
        *steps: Step | Absent,
        within: Duration,
        combine: Callable[[Match], Returned[OutT]] | None = None,
        time: str | None = None,
        strict: bool = False,
        overlap: bool = False,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[OutT]:
        """Find rows that follow each other: `pattern(ps.step("a", f), ps.step("b", g), within="10 min")`.

        All rows of a match are less than `within` after its first one, by event time or by the field `time`. What comes
        out is `combine(match)`, at the match's last row. Rows between the steps are passed over, or end the match if it
        is `strict`. No row is in two matches, unless they may `overlap`.
        """
        stream = self._keyed_rows
        name = free_name(stream.flow, name, combine, "pattern")
        places = places_of(steps, name)
        kind = kind_of_times(stream, time, name)
        if time is not None and places[-1].barred:
            raise FlowError(
                f"operator {name!r}: the end of the time in which rows must be absent is known by event time alone; "
                f"leave out time=, and give time= to every source above it, or end the pattern with a step"
            )
        returns = None
        if combine is not None:
            returns = checks.returns(combine, schema, name, takes=("rows",))
            refuse_async(combine, name, "combine= of a pattern")
        elif schema is not None:
            raise FlowError(f"operator {name!r}: schema= is for what combine= returns; give both, or leave it out")
        key = stream.key
        if combine is None:
            checks.distinct((*(key.names if key else ()), "start", "end", "rows"), name, "the pattern")
        span = lifetime(within, kind, name, "within").ttl
        logic = Pattern(places, span, combine, returns, key, kind, time=time, strict=strict, overlap=overlap)
        return remembering(stream, name, logic, key, on_error)

    def window(self, spec: WindowSpec | Duration, *, by: Arrival | None = None) -> WindowedStream[RowT_co]:
        """Group rows in windows: ps.tumbling("10 min"), sliding, session, count_window; a size tumbles.

        With `by=ps.arrival` windows go by the time of day at which rows arrive, whatever event time they have.
        """
        return WindowedStream(self._keyed_rows, self._keyed_rows.key, spec, by)
