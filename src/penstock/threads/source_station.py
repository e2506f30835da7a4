"""Sources at work: what was read is brought into the flow by its reader or, where a policy chooses, by workers.

A policy sees a source as an operator that has something to do as long as something was read that is not in the flow.
"""

from __future__ import annotations

from threading import Event

from penstock.order.primitives import Empty
from penstock.plan.graph import Node
from penstock.threads.batch import Batch, Header
from penstock.threads.ports import Output, Outputs, Port
from penstock.threads.stations import INNER, InputPort, Rows, Station, Surroundings


class SourceStation(Station):
    """Send what was read down the flow."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self.intake = SourcePort(self, max(2, around.capacity // 4))

    def bring(self, header: Header, made: Rows) -> list[Output[Batch]]:
        """Return what goes to which port of a batch that was read, and count it."""
        began = self.around.clock()
        outputs = list(self.leave(header, made))
        self.counts.add(batches=1, rows_out=sum(map(len, made.values())), wall=self.around.clock() - began)
        return outputs

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Bring in a batch that waits."""
        assert isinstance(batch, Read)
        yield from self.bring(batch.header, batch.made)


class Read(Batch):
    """A batch that was read: the rows of each output of a source."""

    __slots__ = ("made",)

    made: Rows

    def __init__(self, header: Header, made: Rows) -> None:
        super().__init__(header, None)
        object.__setattr__(self, "made", made)

    def __len__(self) -> int:
        return sum(map(len, self.made.values()))


class SourcePort(InputPort):
    """Where batches wait that were read: few, because they are late already. One thread puts them there."""

    def __init__(self, station: SourceStation, capacity: int) -> None:
        primitives, clock = station.around.primitives, station.around.clock
        Port.__init__(self, primitives, f"{station.name}.intake", station.gate, capacity, clock)
        self.station, self.index, self.counts = station, INNER, station.counts.ports[0]
        self._room = Event()

    def pop(self) -> Batch | Empty:
        """Take the oldest batch, and tell who waits for room."""
        batch = super().pop()
        self._room.set()
        return batch

    def await_room(self, seconds: float) -> None:
        """Wait until a batch is taken, or so long."""
        self._room.clear()
        if self.size() >= self.capacity:
            self._room.wait(seconds)
