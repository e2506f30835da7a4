"""A chain of operators as one station: one queue, one reorder buffer, one loop over the rows.

Queries that come later may read the middle of a chain. Its batches are then taken through operator by operator, as the
first rows of a batch are now and then anyway: how the time is shared out among the operators is known from those alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Lock

from penstock.clock import perf_counter
from penstock.kernels.chains import make_chain
from penstock.kernels.failures import Failures
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, concat
from penstock.statistics import Totals
from penstock.threads.batch import Header
from penstock.threads.stateless_station import StatelessStation
from penstock.threads.stations import Group, Rows, Surroundings

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
