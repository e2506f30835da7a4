"""Operators without memory at work: any number of workers, and a reorder buffer that puts their batches in order."""

from __future__ import annotations

from collections.abc import Callable

from penstock.kernels.failures import Failures
from penstock.kernels.stateless import run_stateless
from penstock.operators.calling import open_calling
from penstock.plan.graph import Node
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
