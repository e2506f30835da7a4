"""Hand port queues to workers: the protocol of the Streams scheduler.

Every input port has a bounded queue. Batches enter it under the port's producer try-lock and are taken by workers that
hold one of the operator's permits: one permit for a stateful operator, as many as it has shards for a partitioned one,
any number for a stateless one. A port that may have work is on the free list, once; a worker takes the first port from
the list, claims it, drains it, and lets go. Whoever finds a queue full drains a quarter of it instead of waiting. An
operator that admits one worker may be put aside in the middle of a batch: what is left of it stays with the operator,
and whoever claims one of its ports goes on with that before anything newer.

The invariant that keeps batches from being forgotten: *a port with a batch in it is on the list, or somebody holds a
permit of its operator and will look at the operator's ports after giving it back, or somebody has just put the batch
there and is about to list the port; and one of the ports of an operator that was put aside is on the list, or somebody
holds its permit and will look.*

Where this differs from the paper: its list has all free ports, with or without work, and looking for work is a walk
over it. Here only ports with work are listed, because a walk over a thousand idle ports takes milliseconds in Python.
Sleepers are woken when a port is listed; the paper's only poll. Workers look around between batches, see `SOON`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from penstock.clock import perf_counter
from penstock.order.parking import Backoff, ParkingLot
from penstock.order.primitives import EMPTY, Cell, Empty, Fifo, Primitives
from penstock.threads.meters import Spells

B = TypeVar("B")


class _Token(Enum):
    PAUSE = "PAUSE"


PAUSE: Final = _Token.PAUSE
"""What an operator yields, in place of an output, where it may be put aside; see `Outputs`."""

Clock: TypeAlias = Callable[[], float]
KeepGoing: TypeAlias = Callable[[], bool]
"""Tells whether a worker is to go on with what it is doing."""


class OperatorGate(Generic[B]):
    """Admit workers to an operator, as many at once as its kind allows; None means any number."""

    def __init__(self, primitives: Primitives, name: str, permits: int | None = 1) -> None:
        self.name = name
        self.permits = primitives.try_lock(f"{name}.permits", permits)
        self.admits_several = permits is None or permits > 1
        self.ports: list[Port[B]] = []
        self._begun: Cell[Begun[B] | None] = primitives.cell(f"{name}.begun", None)

    def is_begun(self) -> bool:
        """Tell whether the operator was put aside in the middle of a batch."""
        return not self.admits_several and self._begun.load() is not None

    def put_aside(self, begun: Begun[B]) -> None:
        """Keep what is left of a batch; for the holder of the only permit."""
        self._begun.store(begun)

    def take_begun(self) -> Begun[B] | None:
        """Take what is left of a batch; for the holder of the only permit."""
        found = None if self.admits_several else self._begun.load()
        if found is not None:
            self._begun.store(None)
        return found

    def drop_begun(self) -> None:
        """End what is left of a batch, when nobody runs the operator any more."""
        found = self.take_begun()
        if found is not None:
            found.outputs.close()


class Port(Generic[B]):
    """Hold the batches that wait for an operator on one of its inputs."""

    def __init__(
        self, primitives: Primitives, name: str, gate: OperatorGate[B], capacity: int, clock: Clock = perf_counter
    ) -> None:
        if capacity < 1:
            raise ValueError(f"the queue of port {name} needs room for at least one batch, not {capacity}")
        self.name, self.gate, self.capacity = name, gate, capacity
        self.listed = primitives.try_lock(f"{name}.listed")
        self._queue: Fifo[B] = primitives.fifo(f"{name}.queue")
        self._producer = primitives.try_lock(f"{name}.producer")
        self._full = Spells(clock)
        gate.ports.append(self)

    def try_push(self, batch: B) -> bool:
        """Add a batch; False if the queue is full or another producer is at it.

        The lock is let go on success too (the paper's figure 2 keeps it, and nobody could push again).
        """
        if not self._producer.try_acquire():
            return False
        try:
            waiting = self._queue.size()
            if waiting >= self.capacity:
                return False
            fills = waiting + 1 >= self.capacity
            if fills:
                self._full.begin()  # before the batch is there: whoever takes one ends it
            self.note_queued(batch)  # before a worker can take it
            self._queue.push(batch)
            if fills and self._queue.size() < self.capacity:
                self._full.end()  # one was taken since we looked, by somebody who had nothing to end
            return True
        finally:
            self._producer.release()

    def pop(self) -> B | Empty:
        """Take the oldest batch, or `EMPTY`; for holders of a permit."""
        if (batch := self._queue.pop()) is not EMPTY:
            self._full.end()
            self.note_taken(batch)
        return batch

    def full_seconds(self) -> float:
        """Return how long the queue has been full, in all: C-Stream's measure of congestion."""
        return self._full.seconds()

    def held_back(self, seconds: float, full: bool) -> None:
        """Note that a worker of the operator stood still: a queue below was full, or another producer was at it."""

    def note_queued(self, batch: B) -> None:
        """Note a batch that is about to be in the queue; this and the next are for ports that count."""

    def note_taken(self, batch: B) -> None:
        """Note a batch that a worker has taken."""

    def note_workers(self, change: int) -> None:
        """Note that a worker has a permit of the operator (1), or is about to give it back (-1)."""

    def note_begun(self, batch: B | None) -> None:
        """Note that the operator was left in the middle of a batch, or, with None, that a worker goes on with it."""

    def size(self) -> int:
        """Count the waiting batches."""
        return self._queue.size()

    def has_work(self) -> bool:
        """Tell whether a batch waits, or the rest of one that was begun."""
        return self._queue.size() > 0 or self.gate.is_begun()


Output: TypeAlias = tuple[Port[B], B]
Outputs: TypeAlias = Generator[Output[B] | Literal[_Token.PAUSE], KeepGoing | None, None]
Execute: TypeAlias = Callable[[Port[B], B], Outputs[B]]
"""Run the operator behind a port on a batch, and yield what goes to which port below.

The next output is asked for only when the last one has found room, so a generator over a reorder buffer's
`drain` fits as it is. Where it yields `PAUSE` it may be put aside: it gets, then or later and in whatever
thread, the `KeepGoing` of whoever goes on with it, and yields `PAUSE` again once that says no. Only operators
that admit one worker may do so.
"""


class Begun(Generic[B]):
    """A batch that an operator was put aside in the middle of."""

    def __init__(self, batch: B, outputs: Outputs[B], times: int) -> None:
        self.batch, self.outputs, self.times = batch, outputs, times

    @property
    def name(self) -> str:
        """Say what will come out of it: that follows from the batch and how often it was put aside."""
        return f"{self.batch!r}, put aside {self.times} times"


class PortScheduler(Generic[B]):
    """Find, claim and release ports, and run them without recursion."""

    def __init__(self, primitives: Primitives, lot: ParkingLot) -> None:
        self._primitives, self._lot = primitives, lot
        self._free: Fifo[Port[B]] = primitives.fifo("free ports")
        self._owned: dict[int, int] = {}

    def own(self, port: Port[B], worker: int) -> None:
        """Call this worker for a port from now on, instead of listing the port for all."""
        self._owned[id(port)] = worker

    def disown(self, port: Port[B]) -> None:
        """List a port for all again."""
        self._owned.pop(id(port), None)

    def push(self, port: Port[B], batch: B) -> bool:
        """Add a batch to a port's queue and see that somebody comes for it; False if there is no room."""
        if not port.try_push(batch):
            return False
        self._list(port)
        return True

    def claim(self, port: Port[B]) -> bool:
        """Take a permit of the port's operator if one is free; whoever gets it must `release`.

        The port need not come from the list: a policy may pick any port that has work, and a pusher picks
        the one that is full. A list entry left behind is dropped by `find` when it finds nothing there.
        """
        claimed = port.gate.permits.try_acquire()
        if claimed:
            port.note_workers(1)
        return claimed

    def release(self, port: Port[B]) -> None:
        """Give the permit back, then list the operator's ports that have work.

        *All* its ports, and only after the permit is free: a worker that was refused meanwhile has taken a
        port off the list and relies on this look.
        """
        port.note_workers(-1)
        port.gate.permits.release()
        for sibling in port.gate.ports:
            if sibling.size() > 0:
                self._list(sibling)
        if port.gate.is_begun():
            self._list(port)

    def find(self, worker: int = 0) -> Port[B] | None:
        """Claim the port that has been on the list longest; None if the list has no port to claim."""
        while (port := self._free.pop()) is not EMPTY:
            # Before looking into the queue: a batch that comes after the look must be able to list the port.
            port.listed.release()
            if not self.claim(port):
                continue
            waiting = port.size()
            if waiting > 0 or port.gate.is_begun():
                if waiting > 1 and port.gate.admits_several:
                    self._list(port)
                return port
            self.release(port)
        return None

    def wait_for_work(self, worker: int, timeout: float | None) -> Port[B] | None:
        """Claim a port, or sleep until one is listed or the time is over; None means: look around again."""
        port = self.find(worker)
        if port is not None:
            return port
        self._lot.announce(worker)
        port = self.find(worker)
        if port is None:
            self._lot.sleep(worker, timeout)
        else:
            self._lot.withdraw(worker)
        return port

    def has_listed(self) -> bool:
        """Tell whether a port waits for a worker, which may be one that this worker has just put something into."""
        return self._free.size() > 0

    def drain(
        self,
        port: Port[B],
        execute: Execute[B],
        keep_going: KeepGoing,
        stopped: KeepGoing,
        more: KeepGoing | None = None,
    ) -> None:
        """Run a claimed port until it is empty or `keep_going` says no, or `more` between batches; release it.

        A batch is taken, or gone on with, in any case: however short the time, something is done in it. Outputs that
        are under way are delivered, too, unless `stopped` says to drop everything.
        """
        self._run([_Frame(port, _outputs(), more=more)], execute, keep_going, stopped)

    def deliver(self, port: Port[B], batch: B, execute: Execute[B], stopped: Callable[[], bool]) -> None:
        """Push a batch from a thread that the scheduler does not own, draining the queue if it is full."""
        self._run([_Frame(None, _outputs((port, batch)))], execute, lambda: False, stopped)

    def pass_through(
        self, port: Port[B], batch: B, execute: Execute[B], keep_going: KeepGoing, stopped: Callable[[], bool]
    ) -> None:
        """Run a batch through everything below a port without queueing it, for whoever is alone with the flow.

        *No other batch may be under way*: then no queue has an older one, which it would overtake. Permits are needed
        all the same, because workers may look around; where one is not to be had, the batch is queued as ever.
        """
        way = deque([(port, batch)])
        while way and not stopped():
            port, batch = way.popleft()
            if not self._claim_idle(port):
                self.deliver(port, batch, execute, stopped)
                continue
            outputs = execute(port, batch)
            try:
                output = next(outputs, None)
                while output is not None:
                    if output is not PAUSE:
                        way.append(output)
                        output = next(outputs, None)
                    elif keep_going():
                        output = go_on(outputs, keep_going)
                    else:
                        port.note_begun(batch)
                        port.gate.put_aside(Begun(batch, outputs, 1))
                        break
            finally:
                self.release(port)

    def _claim_idle(self, port: Port[B]) -> bool:
        """Take a permit of a port's operator, unless something waits for it; look behind the claim, not before it."""
        if id(port) in self._owned or not self.claim(port):
            return False
        if port.has_work():
            self.release(port)
            return False
        return True

    def _run(
        self, stack: list[_Frame[B]], execute: Execute[B], keep_going: KeepGoing, stopped: Callable[[], bool]
    ) -> None:
        """Work off a stack of ports, each being drained to make room for the one before.

        The paper's nested self-draining is this stack, so a thousand operators need no call depth. Claims
        are only ever added further down the flow, which has no cycles: the worker that is furthest down
        can always go on, so workers that wait for each other's permits do not wait in a circle.
        """
        delay = Backoff()

        def running() -> bool:
            return not stopped()

        try:
            while stack and not stopped():
                frame = stack[-1]
                if frame.pending is None and not frame.advance(execute, keep_going, running):
                    self._leave(stack.pop())
                    if frame.made_no_room:
                        self._primitives.pause(delay.next())
                elif frame.pending is not None:
                    target, batch = frame.pending
                    if self.push(target, batch):
                        frame.pending = None
                        delay = Backoff()
                    elif self.claim(target):
                        stack.append(_Frame(target, _outputs(), max(1, target.capacity // 4)))
                    else:
                        self._wait(frame, target, delay)
        finally:
            while stack:
                self._leave(stack.pop())

    def _wait(self, frame: _Frame[B], target: Port[B], delay: Backoff) -> None:
        """Stand still for a moment, because a port takes nothing and somebody else is draining it."""
        if frame.port is None:
            self._primitives.pause(delay.next())
            return
        began, full = perf_counter(), target.size() >= target.capacity
        self._primitives.pause(delay.next())
        frame.port.held_back(perf_counter() - began, full)

    def _leave(self, frame: _Frame[B]) -> None:
        frame.outputs.close()  # before the permit is free: it may hold the right to emit
        if frame.port is not None:
            self.release(frame.port)

    def _list(self, port: Port[B]) -> None:
        if self._owned and (owner := self._owned.get(id(port))) is not None:
            self._lot.wake(owner)
        elif port.listed.try_acquire():
            self._free.push(port)
            self._lot.wake_one()


class _Frame(Generic[B]):
    """A port that a worker is draining, and what is coming out of it."""

    def __init__(
        self, port: Port[B] | None, outputs: Outputs[B], quota: int | None = None, more: KeepGoing | None = None
    ) -> None:
        self.port, self.outputs, self._more = port, outputs, more
        self.pending: Output[B] | None = None
        self.made_no_room = quota is not None  # until a batch is taken: then another producer was in the way
        self._quota, self._fresh = quota, True
        self._begun: Begun[B] | None = None

    def advance(self, execute: Execute[B], keep_going: KeepGoing, running: KeepGoing) -> bool:
        """Get the next output, running the operator on further batches as needed; False if done, or put aside."""
        output = next(self.outputs, None)
        while True:
            if output is PAUSE:
                if not keep_going():
                    self._put_aside()
                    return False
                output = go_on(self.outputs, keep_going)
            elif output is not None:
                self.pending = output
                return True
            elif self.port is None:
                return False
            elif self._fresh and self._take_begun(self.port):
                # Whoever needs room gets none from a batch that was taken before, so it is brought to its end.
                output = go_on(self.outputs, keep_going if self._quota is None else running)
            elif self._take(self.port, execute, keep_going):
                output = next(self.outputs, None)
            else:
                return False

    def _take_begun(self, port: Port[B]) -> bool:
        """Go on with what the operator was in the middle of, if it was; before anything newer."""
        self._begun = port.gate.take_begun()
        if self._begun is None:
            return False
        port.note_begun(None)
        self._fresh, self.outputs = False, self._begun.outputs
        return True

    def _take(self, port: Port[B], execute: Execute[B], keep_going: KeepGoing) -> bool:
        """Take the next batch, if there is one and it may be taken."""
        fresh, self._fresh = self._fresh, False
        # Draining to make room is bounded by its quota; the worker's own port by its time and flags.
        if self._quota is not None:
            self._quota -= 1
            if self._quota < 0:
                return False
        elif not (fresh or (self._more or keep_going)()):
            return False
        batch = port.pop()
        if batch is EMPTY:
            return False
        self.made_no_room = False
        self.outputs = execute(port, batch)
        self._begun = Begun(batch, self.outputs, 0)
        return True

    def _put_aside(self) -> None:
        """Leave the rest of the batch to whoever claims the operator next."""
        assert self.port is not None
        assert self._begun is not None
        self._begun.times += 1
        self.port.note_begun(self._begun.batch)
        self.port.gate.put_aside(self._begun)
        self.outputs = _outputs()


def go_on(outputs: Outputs[B], keep_going: KeepGoing) -> Output[B] | Literal[_Token.PAUSE] | None:
    """Go on with what has paused; None at its end."""
    try:
        return outputs.send(keep_going)
    except StopIteration:
        return None


def _outputs(*given: Output[B]) -> Outputs[B]:
    yield from given
