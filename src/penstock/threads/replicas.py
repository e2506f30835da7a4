"""Replicas of an operator: real ones, each with a queue of its own and one worker at a time (C-Stream, section 4.2).

The operator's station is the *splitter*: it deals batches out to the replicas. The operator's reorder buffer is the
*ordered merge*: whoever brings the batch that is next in order sends it on, and those that waited for it. Nothing else
in the flow can tell an operator with replicas from one without.

Replicas come and go while the flow runs. A batch belongs to those who were there when it entered the flow, so that an
operator without memory changes at a batch boundary; how a partitioned one moves its state is in `partitioned_station`.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import perf_counter
from penstock.order.primitives import Primitives
from penstock.threads.batch import URGENT, Batch
from penstock.threads.ports import OperatorGate, Outputs
from penstock.threads.stateless_stations import StatelessStation
from penstock.threads.stations import InputPort, Link, Station

MOST_REPLICAS = 64
"""Of an operator without memory, whoever asks for them: far more than processors, because some of them wait."""


class ReplicaPort(InputPort):
    """The queue of a replica. It is short: what waits in it cannot be dealt to another one any more."""

    inside = True

    def __init__(self, primitives: Primitives, replica: Replica, capacity: int) -> None:
        super().__init__(primitives, replica, 0, max(2, capacity // 4))
        self._tasks = primitives.counter(f"{replica.label}.tasks")

    def try_push(self, batch: Batch) -> bool:
        """Add a batch; an urgent call always finds room."""
        if batch is not URGENT:
            return super().try_push(batch)
        self._queue.push(batch)
        return True

    def sequence(self, batch: Batch) -> int:
        """Number a batch among those of the replica, which gets only some."""
        return self._tasks.add(1)


class Replica(Station):
    """One of those that share an operator's work. To all others it is the operator, under the same name."""

    def __init__(self, owner: Station, index: int, serve: Callable[[Replica, Batch], Outputs[Batch]]) -> None:
        self.name, self.node, self.around = owner.name, owner.node, owner.around
        self.label, self.index = f"{owner.name}#{index}", index
        self.nodes, self.counts = owner.nodes, owner.counts
        self.gate: OperatorGate[Batch] = OperatorGate(self.around.primitives, self.label)
        self.port = ReplicaPort(self.around.primitives, self, self.around.capacity)
        self.ports = [self.port]
        self.owner, self._serve = owner, serve
        self.hired = True
        """Whether it gets work."""
        self.gone = False
        """Whether nobody runs it any more."""
        self.busy = False
        # Written by the one worker that is in it.
        self.batches = self.rows = 0
        self.seconds = 0.0

    @property
    def links(self) -> list[Link]:  # type: ignore[override]
        """Where the operator's rows go."""
        return self.owner.links

    def first_task(self, first: int) -> int:
        """Return 0: a replica numbers what it gets by itself."""
        return 0

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Do the operator's work for a batch."""
        self.busy = True
        yield from self._serve(self, batch)
        self.busy = False

    def count(self, rows: int, began: float) -> None:
        """Note that rows were worked on since `began`."""
        self.batches += 1
        self.rows += rows
        self.seconds += perf_counter() - began

    def close(self) -> None:
        """Note that nobody runs it any more."""
        self.gone = True


class Squad:
    """The replicas of one operator. One thread at a time changes them: the one that brings batches in."""

    def __init__(self, owner: Station, most: int = MOST_REPLICAS) -> None:
        self.owner, self.most = owner, most
        self.members: list[Replica] = []
        """By number; those that were let go may come back."""

    @property
    def hired(self) -> tuple[Replica, ...]:
        """The replicas that get work; none where the operator has none, and its workers share it as its kind allows."""
        return tuple(member for member in self.members if member.hired)

    def recruit(self, count: int) -> list[Replica]:
        """Have so many replicas; return the new ones, which somebody must run before `assign`."""
        replicas = []
        for index in range(count):
            if index == len(self.members):
                self.members.append(Replica(self.owner, index, self.serve))
                replicas.append(self.members[-1])
            elif self.members[index].gone:
                self.members[index] = Replica(self.owner, index, self.serve)
                replicas.append(self.members[index])
            self.members[index].hired = True
        for member in self.members[count:]:
            member.hired = False
        self.owner.counts.permits = count
        return replicas

    def assign(self, first: int, settled: int) -> None:
        """Share the work out among those that are hired, from batch `first` on; all before `settled` are out."""
        raise NotImplementedError

    def serve(self, replica: Replica, batch: Batch) -> Outputs[Batch]:
        """Let a replica do what it was given."""
        raise NotImplementedError

    def has_left(self, replica: Replica) -> bool:
        """Tell whether a replica that was let go has nothing left to do, once all its batches are out."""
        return True

    def disband(self) -> list[Replica]:
        """Let everybody go, because the operator goes; return those that somebody runs."""
        for member in self.members:
            member.hired = False
        return [member for member in self.members if not member.gone]


class Dealers(Squad):
    """The replicas of an operator without memory: each batch goes, whole, to the one that has the least to do."""

    owner: StatelessStation

    def __init__(self, owner: StatelessStation) -> None:
        super().__init__(owner)
        self._shifts: tuple[tuple[int, tuple[Replica, ...]], ...] = ()
        owner.deal = self._deal

    def assign(self, first: int, settled: int) -> None:
        """Deal batches to those that are hired now, from batch `first` on."""
        # The shift in which the oldest batch came in is still needed, and those after it.
        old = [shift for number, shift in enumerate(self._shifts) if self._until(number) > settled]
        self._shifts = (*old, (first, self.hired))

    def _until(self, number: int) -> float:
        return self._shifts[number + 1][0] if number + 1 < len(self._shifts) else float("inf")

    def _deal(self, batch: Batch) -> InputPort | None:
        number = batch.header.number
        for since, shift in reversed(self._shifts):
            if number >= since:
                # In turns among those that have equally little to do.
                turns = range(number, number + len(shift))
                chosen = min(turns, key=lambda turn: _waiting(shift[turn % len(shift)]))
                return shift[chosen % len(shift)].port
        return None

    def serve(self, replica: Replica, batch: Batch) -> Outputs[Batch]:
        """Do the operator's work for a batch."""
        began = perf_counter()
        outputs = self.owner.serve(batch)
        first = next(outputs, None)  # the work is done before anything comes out
        replica.count(len(batch), began)
        if first is not None:
            yield first
            yield from outputs


def _waiting(replica: Replica) -> int:
    return replica.port.size() + replica.busy
