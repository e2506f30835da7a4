"""Stages for `>>`, as in `stream >> ps.map(f) >> ps.sink("out")`, and functions of several streams.

A stage is a function from stream to stream. Two stages compose with `>>` too, so that a composite can be named and
reused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import free_name, refuse_no_streams, with_ports
from penstock.flow.stream import Stream
from penstock.operators import coroutine
from penstock.operators.windows import Count, Session, Sliding, Tumbling
from penstock.rows.row_types import row_type
from penstock.rows.timing import Duration

P = ParamSpec("P")


class Stage:
    """A method of a stream with its arguments, waiting for the stream."""

    def __init__(self, apply: Callable[[Any], Any], label: str) -> None:
        self._apply, self._label = apply, label

    def __call__(self, stream: Any) -> Any:
        return self._apply(stream)

    def __rshift__(self, following: Callable[[Any], Any]) -> Stage:
        return Stage(lambda stream: following(self(stream)), f"{self._label} >> {following!r}")

    def __repr__(self) -> str:
        return self._label


def _stage(method: Callable[Concatenate[Stream, P], Any]) -> Callable[P, Stage]:
    """Make the function that makes the stage of a method; keyed and windowed streams have some under the same names."""
    name = method.__name__

    def make(*arguments: P.args, **options: P.kwargs) -> Stage:
        return Stage(lambda stream: getattr(stream, name)(*arguments, **options), f"{name}(...)")

    make.__name__ = name
    make.__doc__ = f"Make the stage of `Stream.{name}`; takes its arguments."
    return make


map = _stage(Stream.map)
filter = _stage(Stream.filter)
flat_map = _stage(Stream.flat_map)
map_batches = _stage(Stream.map_batches)
select = _stage(Stream.select)
drop = _stage(Stream.drop)
rename = _stage(Stream.rename)
distinct = _stage(Stream.distinct)
lookup = _stage(Stream.lookup)
key_by = _stage(Stream.key_by)
scan = _stage(Stream.scan)
flat_scan = _stage(Stream.flat_scan)
reduce = _stage(Stream.reduce)
aggregate = _stage(Stream.aggregate)
process = _stage(Stream.process)
pattern = _stage(Stream.pattern)
top = _stage(Stream.top)
window = _stage(Stream.window)
sort = _stage(Stream.sort)
threaded = _stage(Stream.threaded)
parallel = _stage(Stream.parallel)
sink = _stage(Stream.sink)


def union(*streams: Stream, name: str | None = None) -> Stream:
    """Join streams into one, in the order that a one-row-at-a-time run gives."""
    return streams[0].union(*streams[1:], name=name)


def merge(*streams: Stream, by: str, name: str | None = None) -> Stream:
    """Join streams into one in the order of their event time."""
    return streams[0].merge(*streams[1:], by=by, name=name)


def tumbling(size: Duration, *, offset: Duration = 0) -> Tumbling:
    """Describe windows of one size, side by side."""
    return Tumbling(size, offset)


def sliding(size: Duration, every: Duration, *, offset: Duration = 0) -> Sliding:
    """Describe windows of one size, a new one every `every`."""
    return Sliding(size, every, offset)


def session(gap: Duration) -> Session:
    """Describe windows that end when no row came for `gap`."""
    return Session(gap)


def count_window(size: int, *, ttl: Duration | None = None) -> Count:
    """Describe windows of `size` rows.

    With `ttl` a key that had no row for so long, by event time, is forgotten, with what its last window has so far.
    """
    return Count(size, ttl)


def operate(
    operator: coroutine.Coroutine | type[coroutine.Coroutine],
    *streams: Stream,
    schema: Any = None,
    name: str | None = None,
    max_pending: int | None = None,
    restartable: bool | None = None,
) -> Any:
    """Run a co-routine operator over streams, one for each of its input ports; see `penstock.Coroutine`.

    Returns the stream that leaves it, or a tuple of streams where it has several output ports. `schema` is that of
    every output port; a list has one for each. `max_pending` is how many rows may wait in one input port. On Spark, and
    with a checkpoint, `process` begins again from its start at every wait: it must be proven that this makes no
    difference, or you say so with `restartable=True`.
    """
    refuse_no_streams(streams, f"operate({operator!r})")
    name = free_name(streams[0].flow, name, operator if isinstance(operator, type) else type(operator), "operate")
    operator = coroutine.checked_operator(operator, name, len(streams))
    checks.one_flow(streams, name)
    operator.check(name, [stream.time for stream in streams])
    most = operator.max_pending if max_pending is None else max_pending
    if most < 1:
        raise FlowError(f"operator {name!r}: max_pending={most}; a port must hold at least one row")
    count = operator.outputs
    if schema is None:
        types = tuple(operator.output_types([stream.type for stream in streams]))
    else:
        types = tuple(row_type(each, name) for each in (schema if isinstance(schema, list) else [schema] * count))
    if len(types) != count:
        raise FlowError(f"operator {name!r} has {count} output ports and is given {len(types)} schemas")
    again = operator.restartable if restartable is None else restartable
    logic = coroutine.CoroutineLogic(operator, types, len(streams), most, again)
    return with_ports(streams, name, logic, types)
