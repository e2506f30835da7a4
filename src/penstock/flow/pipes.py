"""Stages for `>>`: each function here returns what a stream can be sent through, as in `stream >> ps.map(f) >>
ps.sink("out")`.

A stage is a function from stream to stream. Two stages compose with `>>` too, so that a composite can be named and
reused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from penstock.flow import Stream
from penstock.operators.windows import Count, Session, Sliding, Tumbling
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


def count_window(size: int) -> Count:
    """Describe windows of `size` rows."""
    return Count(size)
