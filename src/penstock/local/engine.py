"""Run a flow in this process: read the sources, bring batches to the processing element, write what it publishes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from penstock.errors import FlowError
from penstock.graph import Node
from penstock.ingress.feeds import Feed, make_feed
from penstock.local.ingress import Cut, Cutter
from penstock.operators.base import Sink, Source
from penstock.pe.batch import Header
from penstock.pe.chunk import Chunk
from penstock.pe.element import Element, Settings
from penstock.plan import Plan
from penstock.read import Frame
from penstock.rows import Row
from penstock.write import Callback, Console, Memory

IDLE_SECONDS = 0.002
"""How long to wait before asking sources again that had nothing."""


@dataclass(frozen=True)
class Options:
    """How a flow runs in this process."""

    batch_rows: int = 4096
    end: bool = True
    """Whether exhausted sources end the flow, so that open windows come out."""
    settings: Settings = field(default_factory=Settings)


class LocalEngine:
    """Run a plan in this process."""

    def __init__(self, plan: Plan, options: Options, clock: Callable[[], float] = time.perf_counter) -> None:
        for node in plan.sources:
            assert isinstance(node.operator, Source)
            if isinstance(node.operator.reader, Frame):
                raise FlowError(f'source {node.name!r} is a Spark DataFrame, which only engine="spark" reads')
        for node in plan.sinks:
            if not isinstance(_writer(node), (Memory, Callback, Console)):
                raise FlowError(
                    f'sink {node.name!r} writes with Spark; with engine="threads" use ps.write.memory(), console() or '
                    f"a callback"
                )
        self._plan, self._options = plan, options
        self._stop = Event()
        self.results: dict[str, list[Row]] = {n.name: [] for n in plan.sinks if isinstance(_writer(n), Memory)}
        self.element = Element(plan, self._publish, options.settings, clock=clock)

    def stop(self) -> None:
        """Take nothing more in, and end when everything that came in is out."""
        self._stop.set()

    def run(self) -> None:
        """Run until all sources are exhausted, or `stop` is called."""
        feeds = self._feeds()
        self.element.start()
        try:
            self._loop(feeds)
            self.element.drain()
        finally:
            self.element.close()
            for feed in feeds.values():
                feed.close()
        if self.element.error is not None:
            raise self.element.error

    def _feeds(self) -> dict[str, Feed]:
        return {
            node.name: make_feed(node.operator.reader, node.name, time.monotonic)
            for node in self._plan.sources
            if isinstance(node.operator, Source)
        }

    def _loop(self, feeds: dict[str, Feed]) -> None:
        cutter = Cutter(self._plan, self._options.batch_rows)
        open_sources = list(feeds)
        while open_sources and not self._stop.is_set():
            slices = {}
            for name in open_sources:
                found = feeds[name].poll(self._options.batch_rows)
                if found is not None:
                    slices[name] = found
            ended = [name for name in open_sources if name not in slices and feeds[name].exhausted()]
            for cut in cutter.cut(slices):
                if not self._submit(cut):
                    return
            if ended:
                open_sources = [name for name in open_sources if name not in ended]
                if self._options.end and not self._submit(cutter.ends(ended)):
                    return
            elif not slices:
                self._stop.wait(IDLE_SECONDS)

    def _submit(self, cut: Cut) -> bool:
        if cut.late is not None:
            self.element.drain()
            if self.element.error is None:
                self.element.error = cut.late.error
            return False
        return self.element.submit(cut.rows, cut.marks, cut.steps)

    def _publish(self, header: Header, chunks: list[Chunk | None]) -> None:
        for node, chunk in zip(self._plan.sinks, chunks, strict=True):
            if chunk is None:
                continue
            rows, writer = chunk.get_rows(), _writer(node)
            if isinstance(writer, Memory):
                self.results[node.name].extend(rows)
            elif isinstance(writer, Callback):
                writer.function(list(rows), header.number + 1)
            else:
                for row in rows[: writer.limit]:
                    print(row)


def _writer(node: Node) -> Any:
    assert isinstance(node.operator, Sink)
    return node.operator.writer
