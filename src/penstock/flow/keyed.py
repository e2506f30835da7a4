"""What streams do with memory: one state for all rows, one for each key of a keyed stream, or windows; and joins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, get_args

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import described, free_name, kind_of_times, lifetime, places_of, ranking, remembering
from penstock.flow.checks import missing_method, refuse_without_key
from penstock.flow.joining import Within, combining, interval, join_windows
from penstock.operators import aggregates
from penstock.operators.aggregation import aggregation
from penstock.operators.base import Key, Logic, OnError
from penstock.operators.join import How, Join, TimedJoin
from penstock.operators.pattern import Absent, Match, Pattern, Step
from penstock.operators.process import ProcessLike, process_logic
from penstock.operators.scan import Aggregate, FlatScan, Reduce, Scan, state_maker
from penstock.operators.stateless import refuse_async
from penstock.operators.window_folds import LEFT, RANK, AggregateFold, ApplyFold, Fold, ReduceFold, RunningTop, TopFold
from penstock.operators.windows import Count, Window, WindowSpec, as_spec, window_logic
from penstock.plan.graph import marks_keep_up
from penstock.rows.row_types import UNSET, OutT, Returned, RowT_co, Schema, StateT, row_type
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


class Stateful(Generic[RowT_co]):
    """Rows that operators with memory can be applied to."""

    key: Key | None
    """What the state is partitioned by; None where all rows share one."""

    @property
    def _rows(self) -> Stream[RowT_co]:
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
        stream = self._rows
        name = free_name(stream.flow, name, function, "scan")
        returns = checks.returns(function, schema, name, takes=("state", "row"), pair=True)
        return remembering(stream, name, Scan(function, state_maker(initial), returns), self.key, on_error, ttl=ttl)

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
        """Keep running state with any number of outputs per row: `function(state, row) -> (state, outputs)`."""
        stream = self._rows
        name = free_name(stream.flow, name, function, "flat_scan")
        returns = checks.returns(function, schema, name, takes=("state", "row"), pair=True, item=True)
        return remembering(stream, name, FlatScan(function, state_maker(initial), returns), self.key, on_error, ttl=ttl)

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
        stream = self._rows
        name = free_name(stream.flow, name, function, "reduce")
        returns = checks.combines_to(function, schema, name, stream.type)
        return remembering(stream, name, Reduce(function, returns), self.key, on_error, ttl=ttl)

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
        stream = self._rows
        name = free_name(stream.flow, name, None, "aggregate")
        bundle = aggregation(results, name, stream.type)
        key = self.key
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
        stream = self._rows
        name = free_name(stream.flow, name, None, "top")
        running = RunningTop(ranking(stream, count, by, largest, name, (RANK, LEFT)))
        logic = FlatScan(running, state_maker(()), running.returns)
        return remembering(stream, name, logic, self.key, on_error, ttl=ttl)

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
        stream = self._rows
        process = process() if isinstance(process, type) else process
        name = free_name(stream.flow, name, type(process), "process")
        logic = process_logic(process, row_type(schema, name), name, ("on_row",))
        return remembering(stream, name, logic, self.key, on_error, ttl=ttl, by=by)

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
        stream = self._rows
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
        key = self.key
        if combine is None:
            checks.distinct((*(key.names if key else ()), "start", "end", "rows"), name, "the pattern")
        span = lifetime(within, kind, name, "within").ttl
        logic = Pattern(places, span, combine, returns, key, kind, time=time, strict=strict, overlap=overlap)
        return remembering(stream, name, logic, key, on_error)

    def window(self, spec: WindowSpec | Duration, *, by: Arrival | None = None) -> WindowedStream[RowT_co]:
        """Group rows in windows: ps.tumbling("10 min"), sliding, session, count_window; a size tumbles.

        With `by=ps.arrival` windows go by the time of day at which rows arrive, whatever event time they have.
        """
        return WindowedStream(self._rows, self.key, spec, by)


class KeyedStream(Stateful[RowT_co]):
    """Rows partitioned by a key: each key has state of its own, and its rows come in order."""

    key: Key

    def __init__(self, stream: Stream[RowT_co], key: Key) -> None:
        self.stream, self.key = stream, key

    def __repr__(self) -> str:
        return described(self.stream, "KeyedStream", self.key)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_method(self, name)

    def __rshift__(self, stage: Callable[[KeyedStream[RowT_co]], Result]) -> Result:
        return stage(self)

    @property
    def _rows(self) -> Stream[RowT_co]:
        return self.stream

    def join(
        self,
        other: KeyedStream[OutT],
        window: WindowSpec | Duration | None = None,
        combine: Callable[[RowT_co, OutT], Any] | None = None,
        *,
        within: Within | None = None,
        ttl: Duration | None = None,
        how: How = "inner",
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Join two keyed streams by `combine(left, right)`, None for a missing side.

        Partners are rows of one `window`; or rows `within=(low, high)` of each other, where low <= time of the right
        row - time of the left one <= high; or, with `ttl`, all rows, each kept until the watermark is so far past it.
        """
        refuse_without_key(other, "a join", self.stream.node.name)
        stream, right = self.stream, other.stream
        name = free_name(stream.flow, name, combine, "join")
        checks.one_flow((stream, right), name)
        if how not in get_args(How):
            raise FlowError(f'operator {name!r}: how={how!r}; use "inner", "left", "right", "outer", "semi" or "anti"')
        checks.joined_keys(self.key, stream.type, other.key, right.type, name)
        options = (("a join window", window), ("within=", within), ("ttl=", ttl))
        given = [what for what, value in options if value is not None]
        if len(given) != 1:
            raise FlowError(
                f"operator {name!r}: give a join one of these: a window, whose rows are joined; within=(low, high), "
                f"how far the time of a right row may be from that of a left one; ttl=, how long rows wait for others"
            )
        for side in (stream, right):
            checks.has_time(side, name, given[0])
        checks.same_time(stream, right, name)
        joined, returns = combining(self, other, combine, how, schema, name)
        sides = None if stream.type is None or right.type is None else (stream.type, right.type)
        logic: Logic
        if within is not None:
            logic = TimedJoin(interval(within, stream.time, name), joined, how, returns, sides)
        elif ttl is not None:
            logic = TimedJoin(lifetime(ttl, stream.time, name), joined, how, returns, sides)
        else:
            assert window is not None
            windows = join_windows(window, how, self, name)
            assert joined is not None
            logic = Join(windows, joined, how, returns)
        # With a time to live there is no late: a row meets what is kept, whenever it comes.
        late = () if ttl is not None else ("late",)
        return remembering(stream, name, logic, self.key, on_error, extra_ports=late, other=right, other_key=other.key)

    def connect(
        self,
        other: KeyedStream,
        process: ProcessLike,
        *,
        schema: Schema[OutT] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        ttl: Duration | None = None,
        by: Arrival | None = None,
    ) -> Stream[OutT]:
        """Give the rows of two keyed streams to one class of your own, with one state and timers for each key.

        Rows of this stream go to its `on_left`, rows of the other to its `on_right`, in the order of both.
        """
        refuse_without_key(other, "connect()", self.stream.node.name)
        stream, right = self.stream, other.stream
        process = process() if isinstance(process, type) else process
        name = free_name(stream.flow, name, type(process), "connect")
        checks.one_flow((stream, right), name)
        checks.joined_keys(self.key, stream.type, other.key, right.type, name)
        if by is None:
            checks.same_time(stream, right, name)
        logic = process_logic(process, row_type(schema, name), name, ("on_left", "on_right"))
        return remembering(stream, name, logic, self.key, on_error, other=right, other_key=other.key, ttl=ttl, by=by)
