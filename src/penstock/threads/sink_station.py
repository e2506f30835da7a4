"""Sinks at work: rows that reach one are handed on when all sinks have their part of the batch."""

from __future__ import annotations

from penstock.clock import thread_time
from penstock.order.primitives import EMPTY
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk
from penstock.threads.batch import Batch, Header
from penstock.threads.meters import Latencies
from penstock.threads.ports import Outputs
from penstock.threads.stations import Group, Station, Surroundings, offer

SINK_LATENCIES = 512
"""Batches whose latency a sink remembers: there may be many sinks."""


class SinkStation(Station):
    """Hand rows to the sink; the one that completes a batch publishes it, and what waited for it."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self.latencies = Latencies(SINK_LATENCIES)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        self.write(header, group[0])
        yield from ()

    def write(self, header: Header, chunk: Chunk | None) -> None:
        """Take the rows of a batch; one thread at a time, and batches come in order."""
        wall, cpu = self.around.clock(), thread_time()
        self.latencies.add(self.around.clock() - header.entered)
        complete = header.finish(self.name, chunk)
        if complete is not EMPTY:
            offer(self.around.published, header.number, (header, complete))
            for taken in self.around.published.drain():
                self.around.publish(taken)
        self.counts.add(
            batches=1,
            rows_in=0 if chunk is None else len(chunk),
            wall=self.around.clock() - wall,
            cpu=thread_time() - cpu,
        )
