"""A stream that is partitioned by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import checks
from penstock.errors import FlowError
from penstock.flow.windowed import WindowedStream
from penstock.operators.base import Key, OnError
from penstock.operators.join import Combine, How, Join, SideBySide
from penstock.operators.process import ProcessLike
from penstock.operators.windows import ApplyFold, TimeWindows, Window, WindowSpec, as_spec, window_logic
from penstock.rows import Row
from penstock.timing import Duration, unit_of

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
        window: WindowSpec | Duration,
        combine: Combine | None = None,
        *,
        how: How = "inner",
        schema: Any = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Join two keyed streams inside a window by `combine(left, right)`, None for a missing side."""
        stream = self.stream
        name = stream.flow._free_name(name, combine, "join")
        checks.one_flow((stream, other.stream), name)
        if how not in ("inner", "left", "right", "outer"):
            raise FlowError(f'operator {name!r}: how={how!r}; use "inner", "left", "right" or "outer"')
        checks.joined_keys(self.key, stream.type, other.key, other.stream.type, name)
        logic, unit = window_logic(as_spec(window), ApplyFold(_no_fold, None), self.key, name)
        if not isinstance(logic, TimeWindows):
            raise FlowError(f"operator {name!r}: a join needs a tumbling or sliding window, not {window!r}")
        checks.has_time(stream, name, "a join window")
        checks.has_time(other.stream, name, "a join window")
        checks.same_time(stream, other.stream, name)
        if unit != unit_of(stream.time):
            raise FlowError(checks.unit_mismatch(name, "window", window, stream.time))
        if combine is None:
            left = checks.known_type(stream.type, name, "a join without combine=")
            right = checks.known_type(other.stream.type, name, "a join without combine=")
            shared = self.key.fields if self.key.fields == other.key.fields else ()
            combine = SideBySide(tuple(left.names), tuple(right.names), shared)
            checks.distinct(combine.names(), name, "the join")
            returns = None
        else:
            returns = checks.returns(combine, schema, name)
        return stream._stateful(
            name,
            Join(logic, combine, how, returns),
            self.key,
            on_error,
            extra_ports=("late",),
            other=other.stream,
            other_key=other.key,
        )


def _no_fold(_window: Window, _rows: list[Row]) -> Row:
    raise AssertionError("a join folds nothing")
