"""Simulate one processing element: workers that claim operators, run their batches and pass them on.

A queue before each operator holds batches; one event stands for all batches that a worker drained with one claim.
What a claim, a passed tuple and a contended lock cost comes from the machine, and grows with the threads that share
it. A worker claims no more than there is room for below, which is how back-pressure travels; the engine's drain of a
full queue by whoever pushes has the same effect. Operators that several workers may run at once send their outputs
through the shipped reorder buffer.

Workers are either all alike and take operators from one list, the least recently run first or as a policy says
(*dynamic*), or each runs the operators that are bound to it (*bound*).
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from penstock.order.reorder import ReorderBuffer
from penstock.sim.events import Events
from penstock.sim.graphs import Graph, Operator
from penstock.sim.machine import Machine
from penstock.sim.primitives import Virtual

# Several workers on one operator may be this many batches apart before the slowest holds the others up.
_REORDER_SLOTS = 1024


class Batch:
    """Carry a number of rows and the time at which they were made."""

    __slots__ = ("born", "rows", "targets")

    def __init__(self, rows: float, born: float) -> None:
        """Make a batch that goes nowhere yet."""
        self.rows = rows
        self.born = born
        self.targets: tuple[int, ...] = ()


class _Claim:
    """Hold what one worker took from one operator."""

    __slots__ = ("batches", "began", "first", "operator", "rows", "worker")

    def __init__(self, worker: int, operator: int, batches: list[Batch], began: float) -> None:
        self.worker = worker
        self.operator = operator
        self.batches = batches
        self.began = began
        self.first = 0
        self.rows = sum(batch.rows for batch in batches)


class Chooser(Protocol):
    """Choose which of the operators that may run is claimed next."""

    def choose(self, pe: "PE", candidates: Sequence[int]) -> int:
        """Return one of the candidates; they come least recently run first."""
        ...


class PE:
    """Run a graph on a machine in virtual time."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        *,
        level: int,
        rows: int = 64,
        capacity: int = 16,
        time_slice: float = 0.05,
        chooser: Chooser | None = None,
        binding: Sequence[int] | None = None,
        filled: float = 0.0,
    ) -> None:
        """Set up a graph with batches of `rows` tuples and queues of `capacity` batches.

        `filled` puts batches into that part of every queue: a pipeline of a thousand operators then starts in the
        state that it would reach after all of them have filled. `binding` names the worker of each operator.
        """
        self.graph, self.machine, self.events = graph, machine, Events()
        self.operators = graph.operators
        count = len(self.operators)
        self.rows, self.capacity, self.time_slice = rows, capacity, time_slice
        self.chooser = chooser
        self.level = 0
        self.busy = 0
        self.queues: list[deque[Batch]] = [deque() for _ in range(count)]
        self.running = [0] * count
        self.permits = [operator.permits for operator in self.operators]
        self.in_flight = [1] * count
        self.last_run = [0.0] * count
        # What was measured since the start; whoever wants a period takes the difference of two readings. What
        # sources make is not counted as processed: it comes in bursts, whenever there is room.
        self.processed = [0.0] * count
        self.arrived = [0.0] * count
        self.seconds = [0.0] * count
        self.full_time = [0.0] * count
        self.worker_busy: list[float] = []
        self.latencies: list[tuple[float, float]] = []
        self._full_since: list[float | None] = [None] * count
        self._reserved = [0] * count
        self._turn = [0] * count
        self._entered = [0] * count
        self._left = [0] * count
        self._buffers: dict[int, ReorderBuffer[Batch]] = {}
        for operator, permits in enumerate(self.permits):
            if permits != 1:
                self._reorder(operator)
        self._lock_free = [0.0] * count
        self._lock_waiting = [0] * count
        self._blocked: list[deque[int]] = [deque() for _ in range(count)]
        self._is_blocked = [False] * count
        self._listed = [False] * count
        self._free: deque[int] = deque()
        self._idle: list[int] = []
        self._sleeping: set[int] = set()
        self._parked: list[int] = []
        self.binding = list(binding) if binding is not None else None
        self._bound_free: list[deque[int]] = []
        self._fill(filled)
        self.set_level(level)

    # What controllers turn.

    def set_level(self, level: int) -> None:
        """Set the number of workers; one too many leaves when it next looks for work."""
        new = range(len(self.worker_busy), level)
        for worker in new:
            self.worker_busy.append(0.0)
            self._bound_free.append(deque())
            self._parked.append(worker)
        self.level = level
        back = [worker for worker in self._parked if worker < level]
        self._parked = [worker for worker in self._parked if worker >= level]
        for worker in back:
            self.events.after(0.0, self._seek, worker)

    def set_permits(self, operator: int, permits: int) -> None:
        """Set how many workers may run an operator at once: its replicas."""
        self.permits[operator] = permits
        if permits > 1:
            self._reorder(operator)
        self._list(operator)

    def set_in_flight(self, operator: int, rows: int) -> None:
        """Set how many rows of an operator wait at once."""
        self.in_flight[operator] = rows

    def bind(self, operator: int, worker: int) -> None:
        """Bind an operator to another worker, without stopping any; what it runs now it finishes."""
        assert self.binding is not None
        self.binding[operator] = worker
        if self._listed[operator]:
            # The old worker finds it in its list and passes it over.
            self._listed[operator] = False
            self._list(operator)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.events.run(self.events.now + seconds)

    # Finding work.

    def _seek(self, worker: int) -> None:
        if worker >= self.level:
            self._parked.append(worker)
            return
        if self.binding is not None:
            free = self._bound_free[worker]
        elif self.chooser is not None:
            self._seek_by_choice(worker)
            return
        else:
            free = self._free
        while free:
            operator = free.popleft()
            if self.binding is not None and self.binding[operator] != worker:
                continue
            self._listed[operator] = False
            batches = self._claimable(operator)
            if batches:
                self._claim(worker, operator, batches)
                return
        if self.binding is None:
            self._idle.append(worker)
        else:
            self._sleeping.add(worker)

    def _seek_by_choice(self, worker: int) -> None:
        free, candidates = self._free, []
        for _ in range(len(free)):
            operator = free.popleft()
            if self._claimable(operator):
                candidates.append(operator)
                free.append(operator)
            else:
                self._listed[operator] = False
        if not candidates:
            self._idle.append(worker)
            return
        assert self.chooser is not None
        chosen = self.chooser.choose(self, candidates)
        free.remove(chosen)
        self._listed[chosen] = False
        self._claim(worker, chosen, self._claimable(chosen))

    def _list(self, operator: int) -> None:
        """Offer an operator to the workers, if it might run."""
        if self._listed[operator] or self._is_blocked[operator] or not self.queues[operator]:
            return
        permits = self.permits[operator]
        if permits is not None and self.running[operator] >= permits:
            return
        self._listed[operator] = True
        if self.binding is None:
            self._free.append(operator)
            if self._idle:
                self._wake(self._idle.pop())
            return
        owner = self.binding[operator]
        self._bound_free[owner].append(operator)
        if owner in self._sleeping:
            self._sleeping.remove(owner)
            self._wake(owner)

    def _wake(self, worker: int) -> None:
        self.events.after(self.machine.synchronization.wake, self._seek, worker)

    def _claimable(self, operator: int) -> int:
        """Return how many batches could be claimed now; one that lacks room below is listed again when there is."""
        waiting = len(self.queues[operator])
        permits = self.permits[operator]
        if not waiting or (permits is not None and self.running[operator] >= permits):
            return 0
        own = self.operators[operator]
        expected = self.rows * (own.cost + own.wait) + 1e-12
        most = min(waiting, max(1, int(self.time_slice / expected)))
        if permits != 1 and self.level > 1:
            # Share what waits with the other workers that may come.
            most = max(1, min(most, waiting // 2))
        buffer = self._buffers.get(operator)
        if buffer is not None and not buffer.has_room(self._entered[operator] + most - 1):
            most = 1 if buffer.has_room(self._entered[operator]) else 0
        return self._room_for(operator, own, most)

    def _room_for(self, operator: int, own: Operator, most: int) -> int:
        outputs = own.outputs
        if not outputs or not most:
            return most
        if own.split:
            turn, fits = self._turn[operator], 0
            needed: dict[int, int] = {}
            while fits < most:
                to = outputs[(turn + fits) % len(outputs)]
                needed[to] = needed.get(to, 0) + 1
                if self._room(to) < needed[to]:
                    break
                fits += 1
            if not fits:
                self._block(operator, outputs[turn % len(outputs)])
            return fits
        for to in outputs:
            room = self._room(to)
            if room <= 0:
                self._block(operator, to)
                return 0
            most = min(most, room)
        return most

    def _room(self, operator: int) -> int:
        room = self.capacity - len(self.queues[operator])
        # Those that push to a port under its lock come first and wait there, spinning, as Streams' workers do.
        return room if self.operators[operator].locked else room - self._reserved[operator]

    def _block(self, operator: int, on: int) -> None:
        self._is_blocked[operator] = True
        self._blocked[on].append(operator)

    # Running a claim: compute, wait, push.

    def _claim(self, worker: int, operator: int, count: int) -> None:
        now, own = self.events.now, self.operators[operator]
        queue = self.queues[operator]
        batches = [queue.popleft() for _ in range(count)]
        claim = _Claim(worker, operator, batches, now)
        claim.first = self._entered[operator]
        self._entered[operator] += count
        self.last_run[operator] = now
        self.running[operator] += 1
        self._route(operator, own, batches)
        self._freed(operator)
        self._list(operator)
        self.busy += 1
        costs, others = self.machine.synchronization, self.busy - 1
        passing = costs.tuple_passing + others * costs.passing_sharing
        work = claim.rows * (own.cost + passing) + costs.claim + others * costs.claim_sharing
        self.events.after(work / self.machine.speed(self.busy), self._computed, claim)

    def _route(self, operator: int, own: Operator, batches: list[Batch]) -> None:
        """Keep room below for what will come out of a claim."""
        outputs = own.outputs
        for batch in batches:
            if own.split:
                batch.targets = (outputs[self._turn[operator] % len(outputs)],)
                self._turn[operator] += 1
            else:
                batch.targets = outputs
            for to in batch.targets:
                self._reserved[to] += 1
                self._note_full(to)

    def _computed(self, claim: _Claim) -> None:
        wait = self.operators[claim.operator].wait
        if wait > 0:
            self.busy -= 1
            rounds = sum(-(-batch.rows // self.in_flight[claim.operator]) for batch in claim.batches)
            self.worker_busy[claim.worker] += self.events.now - claim.began
            self.events.after(rounds * wait, self._waited, claim)
        else:
            self._push(claim)

    def _waited(self, claim: _Claim) -> None:
        self.busy += 1
        claim.began = self.events.now
        self._push(claim)

    def _push(self, claim: _Claim) -> None:
        """Pass the lock of a port that many push to, one after another."""
        own = self.operators[claim.operator]
        locked = next((to for batch in claim.batches for to in batch.targets if self.operators[to].locked), None)
        if locked is None:
            self._done(claim)
            return
        now, costs = self.events.now, self.machine.synchronization
        start = max(now, self._lock_free[locked])
        waiting = self._lock_waiting[locked]
        hold = claim.rows * own.selectivity * costs.lock * (1 + costs.lock_waiter * waiting)
        self._lock_free[locked] = start + hold
        self._lock_waiting[locked] += 1
        self.events.after(start + hold - now, self._unlocked, (claim, locked))

    def _unlocked(self, held: tuple[_Claim, int]) -> None:
        claim, locked = held
        self._lock_waiting[locked] -= 1
        self._done(claim)

    def _done(self, claim: _Claim) -> None:
        operator, now = claim.operator, self.events.now
        self.busy -= 1
        self.running[operator] -= 1
        self.processed[operator] += claim.rows
        self.seconds[operator] += now - claim.began
        self.worker_busy[claim.worker] += now - claim.began
        selectivity = self.operators[operator].selectivity
        for batch in claim.batches:
            batch.rows *= selectivity
        self._leave(claim)
        self._list(operator)
        self._seek(claim.worker)

    def _reorder(self, operator: int) -> None:
        """Let an operator's outputs leave in the order of its inputs from now on."""
        if operator not in self._buffers:
            # What has not left yet entered under one permit and is at most one claim: it comes first.
            self._buffers[operator] = ReorderBuffer(Virtual(), _REORDER_SLOTS, first=self._left[operator])

    def _leave(self, claim: _Claim) -> None:
        operator = claim.operator
        buffer = self._buffers.get(operator)
        if buffer is None:
            ready = claim.batches
        else:
            for offset, batch in enumerate(claim.batches):
                accepted = buffer.offer(claim.first + offset, batch)
                assert accepted, "the buffer had room when the batch entered"
            ready = list(buffer.drain())
        self._left[operator] += len(ready)
        for batch in ready:
            self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        if not batch.targets:
            self.latencies.append((self.events.now, self.events.now - batch.born))
            return
        first = True
        for to in batch.targets:
            self._reserved[to] -= 1
            self.arrived[to] += batch.rows
            self.queues[to].append(batch if first else Batch(batch.rows, batch.born))
            first = False
            self._list(to)

    # Room, and who waits for it.

    def _freed(self, operator: int) -> None:
        """Let those go on that waited for room before an operator, as many as there is room for."""
        self._note_full(operator)
        blocked = self._blocked[operator]
        for _ in range(min(len(blocked), max(1, self._room(operator)))):
            other = blocked.popleft()
            self._is_blocked[other] = False
            if self.operators[other].source:
                self._emit(other)
            else:
                self._list(other)

    def _note_full(self, operator: int) -> None:
        """Count the time that a port's queue is full."""
        since = self._full_since[operator]
        if self._room(operator) <= 0:
            if since is None:
                self._full_since[operator] = self.events.now
        elif since is not None:
            self.full_time[operator] += self.events.now - since
            self._full_since[operator] = None

    def full_seconds(self, operator: int) -> float:
        """Return how long a port's queue has been full so far."""
        since = self._full_since[operator]
        return self.full_time[operator] + (self.events.now - since if since is not None else 0.0)

    # Sources.

    def _fill(self, part: float) -> None:
        for i, operator in enumerate(self.operators):
            if operator.source:
                self.events.after(0.0, self._emit, i)
                continue
            for _ in range(int(part * self.capacity)):
                self.queues[i].append(Batch(float(self.rows), 0.0))
            self._list(i)

    def _emit(self, source: int) -> None:
        """Make one batch if there is room for it, and come back for the next."""
        own, now = self.operators[source], self.events.now
        if not self._room_for(source, own, 1):
            return
        batch = Batch(float(self.rows), now)
        self._route(source, own, [batch])
        pause = self.rows * own.cost
        if own.rate is not None:
            pause = max(pause, self.rows / own.rate)
        self._deliver(batch)
        self.events.after(pause, self._emit, source)
