"""A stream that is partitioned by a key."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.flow.joining import Within, connect, join
from penstock.flow.stream import Stream
from penstock.operators.base import Key, OnError
from penstock.operators.join import Combine, How
from penstock.operators.process import ProcessLike
from penstock.operators.windows import WindowSpec
from penstock.timing import Duration

P = ParamSpec("P")
Result = TypeVar("Result")


def _keyed(method: Callable[Concatenate[Stream, P], Result]) -> Callable[Concatenate[KeyedStream, P], Result]:
    """Make the method of a keyed stream that does for each key what the stream's does for all rows."""

    @wraps(method)
    def made(self: KeyedStream, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return method(self.stream._with_key(self.key), *args, **kwargs)

    return made


class KeyedStream:
    """Rows partitioned by a key: each key has state of its own, and its rows come in order."""

    def __init__(self, stream: Stream, key: Key) -> None:
        self.stream, self.key = stream, key

    def __rshift__(self, stage: Callable[[KeyedStream], Result]) -> Result:
        return stage(self)

    scan = _keyed(Stream.scan)
    flat_scan = _keyed(Stream.flat_scan)
    reduce = _keyed(Stream.reduce)
    aggregate = _keyed(Stream.aggregate)
    process = _keyed(Stream.process)
    window = _keyed(Stream.window)

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
        ttl: Duration | None = None,
    ) -> Stream:
        """Give the rows of two keyed streams to one class of your own, with one state and timers for each key.

        Rows of this stream go to its `on_left`, rows of the other to its `on_right`, in the order of both.
        """
        return connect(self, other, process, schema=schema, name=name, on_error=on_error, ttl=ttl)
