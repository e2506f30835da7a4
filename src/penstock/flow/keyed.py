"""A stream that is partitioned by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.flow.joining import Within, connect, join
from penstock.flow.windowed import WindowedStream
from penstock.operators.base import Key, OnError
from penstock.operators.join import Combine, How
from penstock.operators.process import ProcessLike
from penstock.operators.windows import WindowSpec
from penstock.rows import Row
from penstock.timing import Duration

if TYPE_CHECKING:
    from penstock.flow.stream import Stream

Result = TypeVar("Result")


class KeyedStream:
    """Rows partitioned by a key: each key has state of its own, and its rows come in order."""

    def __init__(self, stream: Stream, key: Key) -> None:
        self.stream, self.key = stream, key

    def _keyed(self) -> Stream:
        return self.stream._with_key(self.key)

    def __rshift__(self, stage: Callable[[KeyedStream], Result]) -> Result:
        return stage(self)

    def scan(self, function: Callable[[Any, Row], tuple[Any, Row]], initial: Any = None, **options: Any) -> Stream:
        """Keep running state for each key: `function(state, row) -> (state, output)`."""
        return self._keyed().scan(function, initial, **options)

    def flat_scan(
        self, function: Callable[[Any, Row], tuple[Any, Iterable[Row]]], initial: Any = None, **options: Any
    ) -> Stream:
        """Keep running state for each key: `function(state, row) -> (state, outputs)`."""
        return self._keyed().flat_scan(function, initial, **options)

    def reduce(self, function: Callable[[Any, Row], Any], **options: Any) -> Stream:
        """Combine the rows of each key: `function(accumulated, row)`; emits the running value."""
        return self._keyed().reduce(function, **options)

    def aggregate(self, **options: Any) -> Stream:
        """Emit running aggregates of each key after each row."""
        return self._keyed().aggregate(**options)

    def process(self, process: ProcessLike, **options: Any) -> Stream:
        """Run a class of your own with state and timers for each key."""
        return self._keyed().process(process, **options)

    def window(self, spec: WindowSpec | Duration) -> WindowedStream:
        """Group the rows of each key in windows."""
        return self._keyed().window(spec)

    def join(
        self,
        other: KeyedStream,
        window: WindowSpec | Duration | None = None,
        combine: Combine | None = None,
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
        return join(self, other, window, combine, within, ttl, how, schema, name, on_error)

    def connect(
        self,
        other: KeyedStream,
        process: ProcessLike,
        *,
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Give the rows of two keyed streams to one class of your own, with one state and timers for each key.

        Rows of this stream go to its `on_left`, rows of the other to its `on_right`, in the order of both.
        """
        return connect(self, other, process, schema, name, on_error)
