"""Run small flows on the sequential engine, for tests that state what must come out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import read
from penstock.flow import Flow, Stream
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine


def numbers(values: Iterable[Any], **options: Any) -> Stream:
    """Begin a flow with one source of bare values, named "in"."""
    return Flow("test").source("in", read.items(list(values)), **options)


def records(rows: list[dict[str, Any]], *, time: str | None = "t", **options: Any) -> Stream:
    """Begin a flow with one source of records, named "in", whose event time is the field t."""
    return Flow("test").source("in", read.items(rows), time=time, **options)


def started(flow: Flow) -> SequentialEngine:
    """Make an engine that has seen nothing yet."""
    return SequentialEngine(make_plan(flow))


def feed(engine: SequentialEngine, source: str, *rows: Any) -> None:
    """Give an engine rows as ingress does: in the declared form."""
    declared = engine.plan.nodes[source].types[0]
    for row in rows:
        engine.row(source, row if declared is None else declared.roundtrip(row))


def run(
    flow: Flow, sequence: Iterable[tuple[str, Any]] | None = None, *, end: bool = True, keeps_frames: bool = True
) -> dict[str, list[Any]]:
    """Run a sequence of (source, row), by default all rows of each source in turn; then end all sources."""
    engine = started(flow)
    engine.keeps_frames = keeps_frames
    sources = [node.name for node in engine.plan.sources]
    if sequence is None:
        items = ((name, engine.plan.nodes[name].operator.reader.items) for name in sources)  # type: ignore[attr-defined]
        sequence = [(name, row) for name, rows in items for row in rows]
    for source, row in sequence:
        feed(engine, source, row)
    for source in sources if end else ():
        engine.end(source)
    return engine.results


def out(stream: Stream, **options: Any) -> list[Any]:
    """Run a stream to its end and return its rows."""
    return run(stream.sink("out"), **options)["out"]
