"""A stream that is partitioned by a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import free_name, lifetime, remembering
from penstock.flow.checks import missing_method, refuse_without_key
from penstock.flow.joining import Within, combining, interval, join_windows
from penstock.flow.stateful import Stateful
from penstock.flow.stream import Stream
from penstock.operators.base import Key, Logic, OnError
from penstock.operators.join import How, Join, TimedJoin
from penstock.operators.process import ProcessLike, process_logic
from penstock.operators.windows import WindowSpec
from penstock.rows.row_types import OutT, RowT_co, Schema, row_type
from penstock.rows.timing import Arrival, Duration

Result = TypeVar("Result")


class KeyedStream(Stateful[RowT_co]):
    """Rows partitioned by a key: each key has state of its own, and its rows come in order."""

    def __init__(self, stream: Stream[RowT_co], key: Key) -> None:
        self.stream, self.key = stream, key

    def __repr__(self) -> str:
        return repr(self._keyed_rows).replace("<Stream", "<KeyedStream", 1)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_method(self, name)

    def __rshift__(self, stage: Callable[[KeyedStream[RowT_co]], Result]) -> Result:
        return stage(self)

    @property
    def _keyed_rows(self) -> Stream[RowT_co]:
        return self.stream.with_key(self.key)

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
        made, returns = combining(self, other, combine, how, schema, name)
        sides = None if stream.type is None or right.type is None else (stream.type, right.type)
        logic: Logic
        if within is not None:
            logic = TimedJoin(interval(within, stream.time, name), made, how, returns, sides)
        elif ttl is not None:
            logic = TimedJoin(lifetime(ttl, stream.time, name), made, how, returns, sides)
        else:
            assert window is not None
            windows = join_windows(window, how, self, name)
            assert made is not None
            logic = Join(windows, made, how, returns)
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
