"""Operators without memory at work: alone, in chains, and looking rows up; a reorder buffer puts batches in order.

Queries that come later may read the middle of a chain. Its batches are then taken through operator by operator, as the
first rows of a batch are now and then anyway: how the time is shared out among the operators is known from those alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Lock

import pyarrow as pa

from penstock.clock import perf_counter
from penstock.kernels.chains import make_chain
from penstock.kernels.failures import Failures
from penstock.kernels.stateless import run_stateless
from penstock.operators.calling import open_calling
from penstock.operators.lookup import Lookup
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, concat
from penstock.statistics import Totals
from penstock.threads.batch import Batch, Header
from penstock.threads.ports import Outputs
from penstock.threads.stations import Group, InputPort, Rows, Station, Surroundings


class StatelessStation(Station):
    """Let any number of workers in: each takes a batch, and the reorder buffer restores the order."""

    permits = None

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self._width = around.plan.layout.shapes[node.name].width
        self._reorder = self._make_reorder()
        self.deal: Callable[[Batch], InputPort | None] = _keep
        """Says which replica is to do a batch; None is the one that asks."""
        self._calling = open_calling(node.operator, node.name)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        batch = Batch(header, group[0])
        replica = self.deal(batch)
        if replica is None:
            yield from self.serve(batch)
        else:
            yield replica, batch

    def serve(self, batch: Batch) -> Outputs[Batch]:
        """Do the work for a batch, and send on what is next in order."""
        return self.leave_in_order(batch.header, self._measured(batch.header, [batch.chunk], self.run))

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Take the rows through the operator."""
        chunk = group[0]
        if chunk is None:
            return {}
        return run_stateless(self.node, chunk.widened(self._width), failures, calling=self._calling)

    def hurry(self, pauses: bool) -> None:
        if pauses and self._calling is not None:
            self._calling.hurry()

    def close(self) -> None:
        """Let go of what calls use."""
        if self._calling is not None:
            self._calling.close()


def _keep(batch: Batch) -> None:
    """Leave a batch to the worker that has it: the operator has no replicas."""


SAMPLED = 64
"""Of one batch in so many the first rows are run operator by operator, to see what each of them takes."""
SAMPLE_ROWS = 64


class FusedStation(StatelessStation):
    """Run consecutive maps and filters; output `n` is what leaves the operator number `n`."""

    def __init__(self, nodes: tuple[Node, ...], around: Surroundings) -> None:
        super().__init__(nodes[0], around)
        self.nodes = nodes
        self._chain = make_chain(nodes, self._width)
        self._counting = Lock()
        self._rows = [Totals() for _ in nodes]
        """What each operator took in and gave; what they took together is counted for the station."""
        self._sampled = [0.0] * len(nodes)

    def node_of(self, output: int) -> Node:
        """Return the operator whose rows leave by an output."""
        return self.nodes[output]

    def output_of(self, node: str, port: int) -> int:
        """Return the number of an operator's output among those of the station."""
        return next(i for i, each in enumerate(self.nodes) if each.name == node)

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Take the rows through all operators, or through each if what is between them is to be seen."""
        chunk = group[0]
        if chunk is None:
            return {}
        with self._counting:
            for each in self._rows:
                each.batches += 1
        wanted = {link.output for link in self.links if link.since <= header.number < link.until}
        last = len(self.nodes) - 1
        if not wanted <= {last}:
            made = self._timed(chunk, failures, max(wanted, default=-1))
            return {output: each for output, each in enumerate(made) if each is not None and output in wanted}
        parts: list[Chunk | None] = []
        if header.number % SAMPLED == 0:
            size = min(SAMPLE_ROWS, len(chunk))
            parts.append(self._timed(chunk.slice(0, size), failures, last)[-1])
            chunk = chunk.slice(size, len(chunk))
        if len(chunk) and not failures.fatal:
            found = self._chain.run(chunk)
            if found is None:
                parts.append(self._timed(chunk, failures, last)[-1])
            else:
                self._count(len(chunk), found[1])
                parts.append(found[0])
        left = [part for part in parts if part is not None and len(part)]
        return {last: concat(left)} if left else {}

    def _timed(self, chunk: Chunk, failures: Failures, last: int) -> list[Chunk | None]:
        """Take rows through each operator up to the last one that is wanted, count them, and look at the clock."""
        made: list[Chunk | None] = []
        began = perf_counter()
        for number, left in enumerate(self._chain.run_each(chunk, failures, last)):
            now = perf_counter()
            with self._counting:
                self._sampled[number] += now - began
            began = now
            made.append(left)
        self._count(len(chunk), [0 if each is None else len(each) for each in made])
        return made

    def _count(self, rows: int, left: list[int]) -> None:
        with self._counting:
            for each, out in zip(self._rows, left, strict=False):
                each.rows_in += rows
                each.rows_out += out
                rows = out

    def measured(self) -> Iterator[tuple[Node, Totals]]:
        """Tell what each operator did: its rows as counted, its part of the time as sampled."""
        total = self.counts.totals()
        with self._counting:
            rows, sampled = [replace(each) for each in self._rows], list(self._sampled)
        whole = sum(sampled)
        for node, each, seconds in zip(self.nodes, rows, sampled, strict=True):
            share = seconds / whole if whole else 1 / len(self.nodes)
            each.wall, each.cpu = total.wall * share, total.cpu * share
            if node is self.nodes[-1]:  # what stands still has something for a queue below
                each.below_full, each.below_taken = total.below_full, total.below_taken
            yield node, each


class LookupStation(StatelessStation):
    """Run a lookup: a batch sees what the table had when the batch came in, whatever other workers do by then."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self._versions: list[tuple[int, Node]] = [(around.first, node)]
        """The operator with each content that a batch may still see, and the first batch that does."""

    def refresh(self, table: pa.Table, first: int) -> None:
        """Have batches from `first` on see another content."""
        assert isinstance(self.node.operator, Lookup)
        changed = replace(self.node, operator=self.node.operator.over(table, self.name))
        oldest, _ = self.progress()
        needed = [number for number, (since, _) in enumerate(self._versions) if since <= oldest]
        # A new list, not the old one changed: workers may be reading it.
        self._versions = [*self._versions[max(needed, default=0) :], (first, changed)]

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Look the rows up in what the table had then."""
        chunk = group[0]
        if chunk is None:
            return {}
        node = next(node for since, node in reversed(self._versions) if since <= header.number)
        return run_stateless(node, chunk.widened(self._width), failures)
