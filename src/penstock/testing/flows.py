"""Put an operator, or a stage, in a flow of its own, and give it rows as lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict, Unpack

from penstock.connectors.items import Items
from penstock.connectors.write import as_writer
from penstock.errors import FlowError
from penstock.flow import Flow, Stream
from penstock.operators.base import OnError, Operator, Sink, Source
from penstock.options import On, Sequential
from penstock.rows.records import Row
from penstock.rows.timing import Duration
from penstock.run import run

Tested = Flow | Callable[..., Any]
"""A flow, or a stage: a function from streams to a stream, or to several."""


class SourceOptions(TypedDict, total=False):
    """The options of the source of a stage: those of `Flow.source`."""

    order_by: str | Iterable[str]
    time: str | None
    slack: Duration
    schema: Any
    on_late: Literal["fail", "divert"]
    on_error: OnError
    idle_after: float | None


Rows = list[Row] | Mapping[str, list[Row]]
"""The rows of the one source, or of each by its name."""


def flow_under_test(tested: Tested, rows: Rows, options: SourceOptions) -> Flow:
    """Return a flow that reads these rows, and keeps in memory what comes out."""
    if isinstance(tested, Flow):
        if options:
            raise FlowError(f"{', '.join(options)}: options are for stages; the sources of a flow have their own")
        return with_rows(tested, rows)
    if not callable(tested):
        raise FlowError(f"{tested!r} can not be tested; give a flow, or a function from stream to stream")
    return around_stage(tested, rows, options)


def with_rows(flow: Flow, rows: Rows | None = None) -> Flow:
    """Return a flow with other rows in its sources, and sinks that write nothing but memory.

    Without rows the readers stay as they are.
    """
    sources = [node.name for node in flow.nodes.values() if isinstance(node.operator, Source)]
    given = {} if rows is None else _by_name(rows, sources)
    changed: dict[str, Operator] = {}
    for name, node in flow.nodes.items():
        operator = node.operator
        if isinstance(operator, Source) and rows is not None:
            changed[name] = dataclasses.replace(operator, reader=Items(tuple(given[name])))
        elif isinstance(operator, Sink):
            changed[name] = dataclasses.replace(operator, writer=as_writer(None))
    return flow.changed(changed)


def around_stage(stage: Callable[..., Any], rows: Rows, options: SourceOptions) -> Flow:
    """Return the flow of one stage: a source for each of its inputs, a sink for each of its outputs."""
    flow = Flow("tested")
    given = rows if isinstance(rows, Mapping) else {"in": rows}
    streams = [flow.source(name, list(values), **options) for name, values in given.items()]
    made = stage(*streams)
    if isinstance(made, Stream):
        return made.sink("out")
    if isinstance(made, tuple) and made and all(isinstance(stream, Stream) for stream in made):
        for number, stream in enumerate(made):
            stream.sink(f"out{number}")
        return flow
    raise FlowError(f"the stage returned {made!r}; a stage is a function from streams to a stream, or a tuple of them")


def _by_name(rows: Rows, sources: list[str]) -> Mapping[str, list[Row]]:
    if isinstance(rows, Mapping):
        if set(rows) != set(sources):
            raise FlowError(f"rows are given for {', '.join(rows)}, and the flow has the sources {', '.join(sources)}")
        return rows
    if len(sources) != 1:
        raise FlowError(
            f"the flow has the sources {', '.join(sources)}: give the rows of each, by name: "
            f"{{{', '.join(f'{name!r}: [...]' for name in sources)}}}"
        )
    return {sources[0]: list(rows)}


def one_or_all(results: Mapping[str, list[Row]]) -> Any:
    """Return the rows of the only sink, or of each sink by name."""
    return next(iter(results.values())) if len(results) == 1 else dict(results)


def run_list(tested: Tested, rows: Rows, *, on: On | None = None, **options: Unpack[SourceOptions]) -> Any:
    """Run a flow, or a stage, on rows, one row at a time or as `on` says; return the rows that come out.

    A flow reads the rows instead of what its sources say, and its sinks write nothing. A stage is a function from
    stream to stream, and `options` are those of its source (`time`, `slack`, `order_by`, `schema`). Give a dict of
    lists where there are several sources; a dict of lists is returned where there are several sinks.
    """
    return one_or_all(run(flow_under_test(tested, rows, options), on=on or Sequential()).results)
