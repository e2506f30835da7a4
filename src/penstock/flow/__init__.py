"""Compose a flow: sources, streams of rows, operators, sinks. Nothing runs here.

A `Stream` is immutable: each method adds an operator to the flow and returns the stream that leaves it. What
can be checked without data is checked at once, so that an error points at the line that made it.
"""

from penstock.flow.flow import Flow, Forward
from penstock.flow.keyed import KeyedStream, WindowedStream
from penstock.flow.pipes import operate
from penstock.flow.stream import Stream

__all__ = ["Flow", "Forward", "KeyedStream", "Stream", "WindowedStream", "operate"]
