"""Run the reference engine on sources: for small data, and to see what a flow means."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.clock import monotonic, time_of_day
from penstock.connectors.interfaces import Feed
from penstock.connectors.sequence import InputSequence
from penstock.connectors.tables import Refreshing, read_table
from penstock.operators.base import Source
from penstock.plan.plan import Plan
from penstock.rows.chunk import Chunk, row_chunk
from penstock.rows.records import Row
from penstock.run import Engine
from penstock.sequential import SequentialEngine
from penstock.statistics import FlowStats
from penstock.threads.outputs import LocalOutputs
from penstock.threads.settings import refuse_frames


class _CountingEngine(SequentialEngine):
    """The reference engine, counting what comes in."""

    rows = 0

    tells_ends = True

    def row(self, source: str, row: Row, part: int = 0) -> None:
        self.rows += 1
        super().row(source, row, part)

    def end(self, source: str) -> None:
        if self.tells_ends:
            super().end(source)


class ReferenceRun(Engine):
    """The reference engine fed by readers, one row at a time."""

    def __init__(self, plan: Plan, epoch_rows: int, end: bool, listener: Callable[[FlowStats], None]) -> None:
        refuse_frames(plan, "ps.Sequential()")
        self._plan, self._epoch_rows, self._listener = plan, epoch_rows, listener
        self._engine = _CountingEngine(plan)
        self._engine.tells_ends = end
        self._outputs = LocalOutputs("ps.Sequential()")
        self._outputs.add(plan)
        self._stop = threading.Event()
        self._done = FlowStats()

    @property
    def results(self) -> dict[str, list[Row]]:
        return self._outputs.results

    def statistics(self) -> FlowStats:
        return self._done

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Run until all sources are exhausted, or `stop` is called."""
        feeds = {
            node.name: node.operator.reader.feed(node.name, monotonic)
            for node in self._plan.sources
            if isinstance(node.operator, Source)
        }
        try:
            self._loop(feeds)
        finally:
            self._engine.close()
            self._outputs.close()
            for feed in feeds.values():
                feed.close()

    def _loop(self, feeds: dict[str, Feed]) -> None:
        ended: set[str] = set()
        epoch = 0
        sequence = InputSequence(self._plan, self._engine)
        tables = Refreshing(self._plan, monotonic)
        while not self._stop.is_set():
            began, before = monotonic(), self._engine.rows
            for name, lookup in tables.due():
                self._engine.table(name, read_table(lookup, name))
            slices = {name: s for name, feed in feeds.items() if (s := feed.poll(self._epoch_rows)) is not None}
            ends = [name for name, feed in feeds.items() if name not in ended | slices.keys() and feed.exhausted()]
            self._engine.clock(int(time_of_day() * 1e6))
            if not slices and not ends and not any(self._engine.results.values()):
                self._stop.wait(0.05)
                continue
            for name, given in slices.items():
                sequence.know(name, given.parts)
                self._engine.know(name, given.parts)
            sequence.give_all(slices)
            for name in ends:
                sequence.end(name)
            sequence.run()
            ended.update(ends)
            epoch += 1
            counts = self._outputs.publish(epoch, {node.name: self._taken(node.name) for node in self._plan.sinks})
            backlog = sum(given.backlog or 0 for given in slices.values()) if slices else None
            now, rows = monotonic(), self._engine.rows - before
            stats = FlowStats(
                now, now - began, rows, counts, epochs=1, backlog=backlog, tasks=1, attempts=1, epoch=epoch
            )
            self._done = self._done.plus(stats)
            self._listener(stats)
            if len(ended) == len(feeds):
                return

    def _taken(self, sink: str) -> Chunk | None:
        """Take the rows that a sink has got in this epoch."""
        rows, self._engine.results[sink] = self._engine.results[sink], []
        read = self._plan.nodes[sink].inputs[0]
        return row_chunk(rows, self._plan.row_type(read)) if rows else None
