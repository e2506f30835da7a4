"""Stages for `>>`: each function here returns what a stream can be sent through, as in `stream >> ps.map(f) >>
ps.sink("out")`.

A stage is a function from stream to stream. Two stages compose with `>>` too, so that a composite can be named and
reused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.flow import Stream
from penstock.operators.windows import Count, Session, Sliding, Tumbling
from penstock.timing import Duration


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


def _stage(method: str) -> Callable[..., Stage]:
    def make(*arguments: Any, **options: Any) -> Stage:
        return Stage(lambda stream: getattr(stream, method)(*arguments, **options), f"{method}(...)")

    make.__name__ = method
    make.__doc__ = f"Make the stage of `Stream.{method}`; takes its arguments."
    return make


map = _stage("map")
filter = _stage("filter")
flat_map = _stage("flat_map")
map_batches = _stage("map_batches")
select = _stage("select")
key_by = _stage("key_by")
scan = _stage("scan")
flat_scan = _stage("flat_scan")
reduce = _stage("reduce")
aggregate = _stage("aggregate")
process = _stage("process")
window = _stage("window")
sort = _stage("sort")
threaded = _stage("threaded")
parallel = _stage("parallel")
sink = _stage("sink")


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
