"""Sources at work: what each has given, until it is known to be next, and how it is brought into the flow.

A policy sees a source as an operator that has something to do as long as something was read that is not in the flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from threading import Event

import numpy as np

from penstock.kernels.intake import Arrived, SourceIntake
from penstock.kernels.order import below
from penstock.order.primitives import Empty
from penstock.plan.graph import Node, SourceNode
from penstock.rows.chunk import Chunk, Ints, concat
from penstock.threads.batch import Batch, Header
from penstock.threads.ports import Output, Outputs, Port
from penstock.threads.stations import INNER, InputPort, Rows, Station, Surroundings


@dataclass
class Given:
    """Rows of a source that are next, with the part of each."""

    name: str
    port: int
    chunk: Chunk
    parts: Ints | None = None


@dataclass
class SourceStream:
    """What one source has given and no batch has taken yet."""

    node: SourceNode
    number: int
    intake: SourceIntake
    reading: Iterator[Arrived] = field(default_factory=lambda: iter(()))
    held: dict[tuple[int, int], Chunk] = field(default_factory=dict)
    """Rows that were read, by (part, output port)."""
    rows: int = 0
    """Rows that were read so far: the number of the next one."""
    _: KW_ONLY
    turns: bool = False
    """Whether sources take turns: then each row counts, also one that cannot be read and is not told of."""
    turned: int = 0
    """Rows that were taken in turns."""
    last: tuple[int, ...] | None = None
    """The position of the last row that was taken since the last batch of this source."""
    dry: bool = True
    """Whether all that it has given was read."""
    ended: bool = False
    told: bool = False
    """Whether its end is in a batch."""

    @property
    def holds(self) -> bool:
        """Tell whether rows were read that no batch has taken."""
        return self.waiting > 0

    @property
    def waiting(self) -> int:
        """Return how many rows were read and not taken."""
        return self.rows - self.turned if self.turns else sum(map(len, self.held.values()))

    @property
    def over(self) -> bool:
        """Tell whether it will give no more than what is held."""
        return self.ended and self.dry

    def fill(self) -> None:
        """Read until something is held; of one that has ended until it is known whether more than one row is left."""
        while self.waiting < (2 if self.ended else 1) and self.read():
            pass

    def read(self) -> bool:
        """Read one more piece; False where there is none."""
        arrived = next(self.reading, None)
        if arrived is None:
            self.dry = True
            return False
        for port, chunk, parts in arrived.chunks():
            if parts is None:
                self._hold(0, port, chunk)
                continue
            for part in np.unique(parts).tolist():
                self._hold(part, port, chunk.select(np.flatnonzero(parts == part)))
        return True

    def _hold(self, part: int, port: int, chunk: Chunk) -> None:
        before = self.held.get((part, port))
        self.held[part, port] = chunk if before is None else concat([before, chunk])

    def take(self, part: int, port: int, count: int) -> Iterator[Given]:
        """Take the first rows of a part."""
        chunk = self.held[part, port]
        if count < len(chunk):
            self.held[part, port] = chunk.slice(count, len(chunk))
        else:
            del self.held[part, port]
        if count:
            taken = chunk.slice(0, count)
            last = taken.position(count - 1)
            self.last = last if self.last is None else max(self.last, last)
            yield Given(self.node.name, port, taken, np.full(count, part) if part else None)

    def take_turns(self, count: int, stop: tuple[int, ...]) -> Iterator[Given]:
        """Take the next rows of a source that takes turns: all before a position."""
        self.turned += count
        for (part, port), chunk in list(self.held.items()):
            yield from self.take(part, port, count_before(chunk.positions, stop))


def count_before(columns: list[Ints], position: tuple[int, ...]) -> int:
    return int(below(columns, position).sum())


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
