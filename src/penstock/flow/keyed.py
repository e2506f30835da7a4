"""A stream that is partitioned by a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.flow.joining import Within, connect, join
from penstock.flow.missing import missing_method, refuse_without_key
from penstock.flow.stateful import Stateful
from penstock.flow.stream import Stream
from penstock.operators.base import Key, OnError
from penstock.operators.join import How
from penstock.operators.process import ProcessLike
from penstock.operators.windows import WindowSpec
from penstock.rows.row_types import OutT, RowT_co, Schema
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
        return join(self, other, window, combine, within, ttl, how, schema, name, on_error)

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
        return connect(self, other, process, schema=schema, name=name, on_error=on_error, ttl=ttl, by=by)
