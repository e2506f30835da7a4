"""Give a flow, or a stage, rows as lists; play one by hand; compare outputs exactly, and look at the order of rows."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict, Unpack

from penstock.connectors.interfaces import Feed
from penstock.connectors.sequence import InputSequence
from penstock.connectors.sources import Generated, Items
from penstock.connectors.write import as_writer
from penstock.errors import FlowError
from penstock.flow import Flow, Stream
from penstock.operators.base import OnError, Operator, Sink, Source
from penstock.options import On, Sequential
from penstock.plan.plan import make_plan
from penstock.rows.records import Record, Row, any_getter
from penstock.rows.timing import Duration, time_to_ticks
from penstock.run import run
from penstock.sequential import SequentialEngine


def exact(value: Any) -> Any:
    """Describe a value so that two descriptions are equal only where the values are the same."""
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, dt.datetime):
        return "datetime", value.isoformat()
    if isinstance(value, Record):
        return "record", value._fields, [exact(part) for part in value]
    name = type(value).__qualname__
    if isinstance(value, (list, tuple)):
        return name, [exact(part) for part in value]
    if isinstance(value, dict):
        return name, [(key, exact(part)) for key, part in value.items()]
    if dataclasses.is_dataclass(value):
        return name, [(field.name, exact(getattr(value, field.name))) for field in dataclasses.fields(value)]
    if hasattr(value, "__dict__"):
        return name, exact(vars(value))
    return name, value


def assert_same(expected: dict[str, list[Any]], found: dict[str, list[Any]]) -> None:
    """Compare the rows of all sinks; the message shows the first that differs."""
    assert set(found) == set(expected)
    for sink, rows in expected.items():
        want, have = [exact(row) for row in rows], [exact(row) for row in found[sink]]
        if want == have:
            continue
        at = next((i for i, (a, b) in enumerate(zip(want, have, strict=False)) if a != b), min(len(want), len(have)))
        raise AssertionError(
            f"sink {sink!r} has {len(have)} rows, expected {len(want)}; they differ at row {at}:\n"
            f"  expected {rows[at : at + 6]}\n  found    {found[sink][at : at + 6]}\n"
            f"  all expected {rows}\n  all found    {found[sink]}"
        )


By = str | Callable[[Row], Any]


def assert_in_order(rows: Iterable[Row], by: By | None = None, *, key: By | None = None, strict: bool = False) -> None:
    """Fail where rows go back: by a field or a function of the row, or by the rows themselves.

    With `key` only rows of one key are compared with each other; with `strict` equal ones are wrong too.
    """
    value, group = _getter(by), _getter(key) if key is not None else lambda row: None
    last: dict[Any, tuple[int, Any]] = {}
    for index, row in enumerate(rows):
        which, now = group(row), value(row)
        if which in last:
            before, then = last[which]
            if now < then or (strict and now == then):
                of_key = "" if key is None else f" of key {which!r}"
                verb = "repeats" if now == then else "goes back behind"
                raise AssertionError(
                    f"row {index}{of_key} {verb} row {before}: {now!r} comes after {then!r}; row {index} is {row!r}"
                )
        last[which] = (index, now)


def _getter(by: By | None) -> Callable[[Row], Any]:
    if by is None:
        return lambda row: row
    return by if callable(by) else any_getter([by])


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
    outputs = stage(*streams)
    if isinstance(outputs, Stream):
        return outputs.sink("out")
    if isinstance(outputs, tuple) and outputs and all(isinstance(stream, Stream) for stream in outputs):
        for number, stream in enumerate(outputs):
            stream.sink(f"out{number}")
        return flow
    raise FlowError(
        f"the stage returned {outputs!r}; a stage is a function from streams to a stream, or a tuple of them"
    )


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


_ALL = 1 << 40


class Script:
    """A flow whose rows and time are given by hand, on the reference engine.

    Each method returns what came out because of it: a list of rows, or a dict of them by sink where there are several.
    """

    def __init__(self, flow: Flow) -> None:
        self.plan = make_plan(with_rows(flow))
        self._engine = SequentialEngine(self.plan)
        self._sources = {node.name: node for node in self.plan.sources}
        self._seconds = 0.0
        self._rated: dict[str, Feed] = {}
        self._rows = InputSequence(self.plan, self._engine)
        for name, node in self._sources.items():
            reader = node.operator.reader
            if isinstance(reader, Generated) and reader.rows_per_second is not None:
                self._rated[name] = reader.feed(name, lambda: self._seconds)
                self._rated[name].poll(1)  # its time begins now

    def send(self, *rows: Row, source: str | None = None) -> Any:
        """Give a source its next rows."""
        name = self._named(source)
        declared = self._sources[name].types[0]
        for row in rows:
            self._engine.row(name, row if declared is None else declared.roundtrip(row))
        return self._news()

    def time(self, moment: Any, source: str | None = None) -> Any:
        """Let event time pass without a row: nothing earlier will come. The watermark is there, whatever the slack."""
        name = self._named(source)
        operator = self._sources[name].operator
        if operator.by_arrival:
            self._engine.clock(time_to_ticks(moment))
            return self._news()
        if operator.time is None:
            raise FlowError(f"source {name!r} has no event time; give it one with time=")
        self._engine.mark(name, time_to_ticks(moment))
        return self._news()

    def wait(self, seconds: float) -> Any:
        """Let the clock run: sources with a rate (`ps.read.rate`, `generate`) give what they have by then.

        It is the time of day for all that goes by `ps.arrival`, too, and begins in 1970.
        """
        if seconds < 0:
            raise ValueError(f"wait({seconds}): time does not go back")
        self._seconds += seconds
        self._engine.clock(int(self._seconds * 1e6))
        slices = {name: given for name, feed in self._rated.items() if (given := feed.poll(_ALL)) is not None}
        self._rows.give_all(slices)
        self._rows.run()
        return self._news()

    def end(self, source: str | None = None) -> Any:
        """End a source, or all of them: open windows close, what waits comes out."""
        for name in self._sources if source is None else [self._named(source)]:
            self._engine.end(name)
        return self._news()

    def state(self, operator: str) -> dict[Any, Any]:
        """Return the state of an operator, by key."""
        return self._engine.state(operator)

    def _named(self, source: str | None) -> str:
        if source is None and len(self._sources) == 1:
            return next(iter(self._sources))
        if source not in self._sources:
            raise FlowError(f"source={source!r}; the flow has the sources {', '.join(self._sources)}: name one")
        return source

    def _news(self) -> Any:
        results = self._engine.results
        news = {name: list(rows) for name, rows in results.items()}
        for rows in results.values():
            rows.clear()
        return one_or_all(news)
