"""Look rows up in a table that changes between two batches."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.kernels.failures import Failures
from penstock.kernels.stateless import run_stateless
from penstock.operators.lookup import Lookup
from penstock.plan.graph import Node
from penstock.threads.batch import Header
from penstock.threads.stateless_station import StatelessStation
from penstock.threads.stations import Group, Rows, Surroundings


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
