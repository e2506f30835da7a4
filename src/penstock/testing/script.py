"""Play a flow by hand: one row, one moment at a time."""

from __future__ import annotations

from typing import Any

from penstock.connectors.generated import Generated
from penstock.connectors.reader import Feed
from penstock.connectors.sequence import InputSequence
from penstock.errors import FlowError
from penstock.flow import Flow
from penstock.plan.plan import make_plan
from penstock.rows.records import Row
from penstock.rows.timing import time_to_ticks
from penstock.sequential import SequentialEngine
from penstock.testing.flows import one_or_all, with_rows

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
        slices = {name: found for name, feed in self._rated.items() if (found := feed.poll(_ALL)) is not None}
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
        found = {name: list(rows) for name, rows in results.items()}
        for rows in results.values():
            rows.clear()
        return one_or_all(found)
