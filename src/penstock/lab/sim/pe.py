"""Simulate one processing element: workers that claim operators, run their batches and pass them on.

One event stands for all batches that a worker drained with one claim. What a claim, a passed tuple and a
contended lock cost comes from the machine, and grows with the threads that share it. A worker claims no more
than there is room for below, which is how back-pressure travels; the engine's drain of a full queue by
the pusher has the same effect. Operators that several workers may run at once send their outputs through
the shipped reorder buffer.

Workers are either all alike and take operators from one list, the least recently run first or as a chooser
says (*dynamic*), or each runs the operators that are bound to it (*bound*).
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from penstock.lab.sim.events import Events
from penstock.lab.sim.graphs import Graph, Operator
from penstock.lab.sim.machine import Machine
from penstock.lab.sim.ports import Batch, Ports
from penstock.order.reorder import ReorderBuffer
from penstock.order.threads import RealThreads
from penstock.statistics import FlowStats, WorkerStats

# Several workers on one operator may be this many batches apart before the slowest holds the others up.
_REORDER_SLOTS = 1024


class _Claim:
    """Hold what one worker took from one operator."""

    __slots__ = ("batches", "began", "first", "operator", "rows", "worker")

    def __init__(self, worker: int, operator: int, batches: list[Batch], began: float) -> None:
        self.worker, self.operator, self.batches, self.began = worker, operator, batches, began
        self.first = 0
        self.rows = sum(batch.rows for batch in batches)


class Chooser(Protocol):
    """Choose which of the operators that may run is claimed next."""

    def choose(self, pe: "PE", worker: int, candidates: Sequence[int]) -> int:
        """Return one of the candidates for a worker; they come in the order in which they became ready."""
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

        `filled` puts batches into that part of every queue: a pipeline of a thousand operators then starts in
        the state that it would reach after all of them have filled. `binding` names the worker of each
        operator.
        """
        self.graph, self.machine, self.events = graph, machine, Events()
        self.operators = graph.operators
        self.rows, self.capacity, self.time_slice, self.chooser = rows, capacity, time_slice, chooser
        self.ports = Ports(graph, capacity, self.events, seen=chooser is not None)
        self.measured, self._counts = self.ports.measured, self.ports.operators
        count = len(self.operators)
        self.level = self.busy = self.leaving = 0  # claims are short: who is to leave has left before anybody looks
        self.permits = [operator.permits for operator in self.operators]
        self.in_flight = [1] * count
        self.worker_busy: list[float] = []
        self.latencies: list[tuple[float, float]] = []
        self.made = self.made_rows = 0
        self._turn = [0] * count
        self._made = [0] * count
        self._waits_for_intake = [False] * count
        self._entered = [0] * count
        self._left = [0] * count
        self._buffers: dict[int, ReorderBuffer[Batch]] = {}
        self._lock_free = [0.0] * count
        self._lock_waiting = [0] * count
        self._listed = [False] * count
        self._free: deque[int] = deque()
        self._idle: list[int] = []
        self._parked: list[int] = []
        self.binding = list(binding) if binding is not None else None
        self._bound_free: list[deque[int]] = []
        self._sleeping: set[int] = set()
        for operator, permits in enumerate(self.permits):
            if permits != 1:
                self._reorder(operator)
        self.set_workers(level)
        self._fill(filled)

    def statistics(self) -> FlowStats:
        """Tell what was done, as an engine does; sources bring rows in and are given none."""
        now, operators = self.events.now, self.ports.statistics()
        workers = tuple(
            WorkerStats(i, "busy" if i < self.level else "suspended", None, 0.0, seconds)
            for i, seconds in enumerate(self.worker_busy)
        )
        return FlowStats(
            now, now, self.made_rows, {}, self.made, len(self.latencies), epochs=0, operators=operators, workers=workers
        )

    @property
    def processed(self) -> list[float]:
        """Return the rows that each operator has processed; what sources bring in is not counted."""
        return [counts.totals().rows_in for counts in self._counts]

    # What controllers turn.

    def set_workers(self, level: int) -> None:
        """Set the number of workers; one too many leaves when it next looks for work."""
        for worker in range(len(self.worker_busy), level):
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
        self.permits[operator] = self._counts[operator].permits = permits
        if permits > 1:
            self._reorder(operator)
        self._list(operator)

    def set_rows(self, rows: int) -> None:
        """Set how many rows sources put into a batch from now on."""
        self.rows = rows

    def set_in_flight(self, operator: int, rows: int) -> None:
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
        self.events.run(self.events.now + seconds)

    # Finding work.

    def _seek(self, worker: int) -> None:
        """Give a worker its next claim, or let it sleep."""
        if worker >= self.level:
            self._parked.append(worker)
            return
        if self.chooser is not None and self.binding is None:
            operator, batches = self._choose(worker)
        else:
            operator, batches = self._first(worker)
        if batches:
            self._claim(worker, operator, batches)
        elif self.binding is None:
            self._idle.append(worker)
        else:
            self._sleeping.add(worker)

    def _first(self, worker: int) -> tuple[int, int]:
        """Return the least recently run operator that a worker may claim, and how many of its batches."""
        free = self._free if self.binding is None else self._bound_free[worker]
        while free:
            operator = free.popleft()
            if self.binding is not None and self.binding[operator] != worker:
                continue
            self._listed[operator] = False
            batches = self._claimable(operator)
            if batches:
                return operator, batches
        return -1, 0

    def _choose(self, worker: int) -> tuple[int, int]:
        candidates = []
        for _ in range(len(self._free)):
            operator = self._free.popleft()
            self._listed[operator] = False
            if self._claimable(operator):
                candidates.append(operator)
                self._listed[operator] = True
                self._free.append(operator)
        if not candidates or self.chooser is None:
            return -1, 0
        chosen = self.chooser.choose(self, worker, candidates)
        self._free.remove(chosen)
        self._listed[chosen] = False
        return chosen, self._claimable(chosen)

    def _list(self, operator: int) -> None:
        """Offer an operator to the workers, if it might run."""
        if self._listed[operator] or self.ports.is_blocked[operator] or not self.ports.queues[operator]:
            return
        permits = self.permits[operator]
        if permits is not None and self._counts[operator].workers >= permits:
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
        """Return how many batches could be claimed now; an operator without room below waits for it."""
        waiting = len(self.ports.queues[operator])
        permits = self.permits[operator]
        if not waiting or (permits is not None and self._counts[operator].workers >= permits):
            return 0
        own = self.operators[operator]
        expected = self.rows * (own.cost + own.wait) + 1e-12
        most = min(waiting, max(1, int(self.time_slice / expected)))
        if permits != 1 and self.level > 1:
            # Outputs leave in order and room is kept for them: after long claims workers would wait in turn.
            workers = self.level if permits is None else min(permits, self.level)
            most = min(most, max(1, self.capacity // (4 * workers)))
        buffer = self._buffers.get(operator)
        if buffer is not None and not buffer.has_room(self._entered[operator] + most - 1):
            most = 1 if buffer.has_room(self._entered[operator]) else 0
        return self._room_for(operator, own, most)

    def _room_for(self, operator: int, own: Operator, most: int) -> int:
        """Return for how many of so many batches there is room below; if for none, wait for it."""
        outputs, room = own.outputs, self.ports.room
        if not outputs or not most:
            return most
        if own.split:
            turn, fits = self._turn[operator], 0
            needed: dict[int, int] = {}
            while fits < most:
                to = outputs[(turn + fits) % len(outputs)]
                needed[to] = needed.get(to, 0) + 1
                if room(to) < needed[to]:
                    break
                fits += 1
            if not fits:
                self.ports.block(operator, outputs[turn % len(outputs)])
            return fits
        for to in outputs:
            most = min(most, room(to))
            if most <= 0:
                self.ports.block(operator, to)
                return 0
        return most

    # Running a claim: compute, wait, push.

    def _claim(self, worker: int, operator: int, count: int) -> None:
        own = self.operators[operator]
        claim = _Claim(worker, operator, self.ports.take(operator, count), self.events.now)
        claim.first = self._entered[operator]
        self._entered[operator] += count
        self._counts[operator].last_run = self.events.now
        self._counts[operator].change_workers(1)
        self._route(operator, own, claim.batches)
        self._let_go_on(operator)
        self._list(operator)
        self.busy += 1
        costs, others = self.machine.synchronization, self.busy - 1
        passing = costs.tuple_passing + others * costs.passing_sharing
        work = claim.rows * (own.cost + passing) + costs.claim + others * costs.claim_sharing
        self.events.after(work / self.machine.speed(self.busy), self._computed, claim)

    def _route(self, operator: int, own: Operator, batches: list[Batch]) -> None:
        """Keep room below for what will come out."""
        outputs = own.outputs
        for batch in batches:
            if own.split:
                batch.targets = (outputs[self._turn[operator] % len(outputs)],)
                self._turn[operator] += 1
            else:
                batch.targets = outputs
            for to in batch.targets:
                self.ports.reserve(to)

    def _computed(self, claim: _Claim) -> None:
        wait = self.operators[claim.operator].wait
        if wait <= 0:
            self._push(claim)
            return
        self._counts[claim.operator].add(wall=self._spent(claim))
        self.busy -= 1
        rounds = sum(-(-batch.rows // self.in_flight[claim.operator]) for batch in claim.batches)
        self.events.after(rounds * wait, self._waited, claim)

    def _waited(self, claim: _Claim) -> None:
        self.busy += 1
        claim.began = self.events.now
        self._push(claim)

    def _push(self, claim: _Claim) -> None:
        """Pass the lock of a port that many push to, one after another."""
        targets = {to for batch in claim.batches for to in batch.targets if self.operators[to].locked}
        if not targets:
            self._done(claim)
            return
        now, costs = self.events.now, self.machine.synchronization
        port = min(targets)
        rows = claim.rows * self.operators[claim.operator].selectivity
        hold = rows * costs.lock * (1 + costs.lock_waiter * self._lock_waiting[port])
        self._lock_free[port] = max(now, self._lock_free[port]) + hold
        self._lock_waiting[port] += 1
        self.events.after(self._lock_free[port] - now, self._unlocked, (claim, port))

    def _unlocked(self, held: tuple[_Claim, int]) -> None:
        claim, port = held
        self._lock_waiting[port] -= 1
        self._done(claim)

    def _done(self, claim: _Claim) -> None:
        operator = claim.operator
        self.busy -= 1
        own = self.operators[operator]
        self._counts[operator].add(
            batches=len(claim.batches),
            # A selectivity gives fractions of rows.
            rows_in=0 if own.source else claim.rows,  # type: ignore[arg-type]
            rows_out=claim.rows * own.selectivity if own.outputs else 0,  # type: ignore[arg-type]
            wall=self._spent(claim),
        )
        self._counts[operator].change_workers(-1)
        for batch in claim.batches:
            batch.rows *= own.selectivity
        self._leave(claim)
        self._list(operator)
        self._seek(claim.worker)

    def _spent(self, claim: _Claim) -> float:
        """Return how long a worker has been at a claim since it began, or went on, and count it as busy."""
        spent = self.events.now - claim.began
        self.worker_busy[claim.worker] += spent
        return spent

    def _reorder(self, operator: int) -> None:
        """Let an operator's outputs leave in the order of its inputs from now on."""
        if operator not in self._buffers:
            # What has not left yet entered under one permit and is at most one claim: it comes first.
            self._buffers[operator] = ReorderBuffer(RealThreads(gil=True), _REORDER_SLOTS, first=self._left[operator])

    def _leave(self, claim: _Claim) -> None:
        operator = claim.operator
        buffer = self._buffers.get(operator)
        ready = claim.batches
        if buffer is not None:
            for offset, batch in enumerate(claim.batches):
                accepted = buffer.offer(claim.first + offset, batch)
                assert accepted, "the buffer had room when the batch entered"
            ready = list(buffer.drain())
        self._left[operator] += len(ready)
        for batch in ready:
            self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        targets = batch.targets
        if not targets:
            self.latencies.append((self.events.now, self.events.now - batch.born))
            return
        for to in targets:
            # Each output gets a batch of its own: what happens to one must not show in another.
            self.ports.put(to, Batch(batch.rows, batch.number, batch.born))
            self._list(to)

    # Sources, and what waits for room.

    def _let_go_on(self, port: int) -> None:
        if self.operators[port].source and self._waits_for_intake[port]:
            self._waits_for_intake[port] = False
            self._read(port)
        for operator in self.ports.unblock(port):
            if self.operators[operator].source and self.chooser is None:
                self._emit(operator)
            else:
                self._list(operator)

    def _fill(self, part: float) -> None:
        for i, operator in enumerate(self.operators):
            if operator.source:
                self.events.after(0.0, self._emit if self.chooser is None else self._read, i)
                continue
            for _ in range(int(part * self.capacity)):
                self.ports.reserve(i)
                self.ports.put(i, Batch(float(self.rows), -1, 0.0))
            self._list(i)

    def _emit(self, source: int) -> None:
        """Make one batch if there is room for it, and come back for the next."""
        own = self.operators[source]
        if not self._room_for(source, own, 1):
            return
        batch, pause = self._make(source, own)
        if batch is None:
            return
        self._route(source, own, [batch])
        self._counts[source].add(batches=1, rows_out=self.rows)
        self._deliver(batch)
        self.events.after(pause, self._emit, source)

    def _read(self, source: int) -> None:
        """Make one batch that waits for a worker to bring it in, if there is room for it, and come back."""
        if len(self.ports.queues[source]) >= max(2, self.capacity // 4):
            self._waits_for_intake[source] = True
            return
        batch, pause = self._make(source, self.operators[source])
        if batch is None:
            return
        self.ports.reserve(source)
        self.ports.put(source, batch)
        self._list(source)
        self.events.after(pause, self._read, source)

    def _make(self, source: int, own: Operator) -> tuple[Batch | None, float]:
        """Return the next batch of a source, unless it has made all that it makes, and when the one after it comes."""
        if own.batches is not None and self._made[source] >= own.batches:
            return None, 0.0
        self._made[source] += 1
        batch = Batch(float(self.rows), self.made, self.events.now)
        self.made += 1
        self.made_rows += self.rows
        # Where workers bring batches in, they take the time that it costs.
        pause = self.rows * own.cost if self.chooser is None else 0.0
        if own.rate is not None:
            pause = max(pause, self.rows / own.rate)
        return batch, pause
