"""Move operators between workers that run on: Rebinding's protocol, and its barrier baseline.

Every operator is bound to one worker, which alone runs it. A binding changes by a *rebind task* that goes,
ahead of all others, to the worker that has the operator; only that worker rewrites the operator's entry in
the table, between two tasks, so it cannot be running the operator, and the new worker starts only after it
has seen the entry. Tasks that are queued in the wrong place are passed on when they come up. That may
reorder them, so tasks carry sequence numbers, and an operator takes them in sequence. A task that a worker has
no more time for is put aside in the middle: it goes to the back of the queue under the same number, so nothing
newer of its operator comes before it, and it goes along where the operator moves.

Where this differs from the paper:

- *A rebind task checks the table before it stores.* Two requests may be on their way to the same worker;
  after the first one the operator is somewhere else, and storing the second would start it a second time.
  The task is passed on to wherever the operator now is. A request overtaken by a later one is dropped.
- *A task that is early waits with its operator*, in a table that moves with it. The paper puts it back into
  the queue, which keeps a worker busy without getting anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from penstock.order.primitives import EMPTY, Cell, Counter, Empty, Fifo, Primitives, Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BoundTask(Generic[T]):
    """A piece of work for an operator; the operator's tasks are numbered without gaps."""

    operator: int
    sequence: int
    payload: T


@dataclass(frozen=True, slots=True)
class Rebind:
    """A request to move an operator; of two requests the one with the larger number is the later one."""

    operator: int
    to: int
    request: int


class BindingTable(Generic[T]):
    """Bind operators to workers, and rebind them without stopping any.

    `wake(worker)` is called after something was put into a worker's queue. Each worker calls `work` with
    its own number, and again whenever it is woken. A worker that is to go has its operators moved away; as
    a sender may have looked at the table before that, somebody must go on answering its wake-ups.
    """

    def __init__(
        self, primitives: Primitives, owners: Sequence[int], workers: int, wake: Callable[[int], None]
    ) -> None:
        self._owners: list[Cell[int]] = []
        self._expected: list[Cell[int]] = []
        self._early: list[Table[int, BoundTask[T]]] = []
        self._requests: list[Counter] = []
        self._granted: list[Cell[int]] = []
        self._urgent: list[Fifo[Rebind]] = [primitives.fifo(f"urgent[{w}]") for w in range(workers)]
        self._tasks: list[Fifo[BoundTask[T]]] = [primitives.fifo(f"tasks[{w}]") for w in range(workers)]
        self._aside: list[BoundTask[T] | None] = [None] * workers
        """What each worker has put aside; its own business until it asks for the next task."""
        self._wake, self._primitives = wake, primitives
        for owner in owners:
            self.add(owner)

    def add(self, owner: int, first: int = 0) -> int:
        """Bind one more operator, whose first task has the number `first`; return the operator's own number.

        One thread adds operators, and submits their first tasks; the others hear of them by those tasks.
        """
        number, primitives = len(self._owners), self._primitives
        self._expected.append(primitives.cell(f"expected[{number}]", first))
        self._early.append(primitives.table(f"early[{number}]"))
        self._requests.append(primitives.counter(f"requests[{number}]"))
        self._granted.append(primitives.cell(f"granted[{number}]", -1))
        self._owners.append(primitives.cell(f"owner[{number}]", owner))
        return number

    def submit(self, operator: int, sequence: int, payload: T) -> None:
        """Queue a task with the worker that has the operator, as far as the caller can see."""
        self._send(BoundTask(operator, sequence, payload))

    def rebind(self, operator: int, to: int) -> None:
        """Ask for an operator to be moved; returns at once."""
        if not 0 <= to < len(self._tasks):
            raise ValueError(f"no worker {to}; there are {len(self._tasks)}")
        self._request(Rebind(operator, to, self._requests[operator].add(1)))

    def owners(self) -> tuple[int, ...]:
        """Return the worker of each operator (a snapshot)."""
        return tuple(owner.load() for owner in self._owners)

    def work(self, worker: int) -> Generator[BoundTask[T], None, None]:
        """Iterate over the tasks that this worker may run now.

        Asking for the next task, or closing the iterator, says that the last one was run or put aside.
        """
        while (task := self._next(worker)) is not EMPTY:
            try:
                yield task
            finally:
                rest, self._aside[worker] = self._aside[worker], None
                if rest is None:
                    self._finish(worker, task)
                else:
                    self._tasks[worker].push(rest)

    def put_aside(self, worker: int, task: BoundTask[T], rest: T) -> None:
        """Say that this worker leaves the task that it is at, with this still to be done; others come first."""
        self._aside[worker] = replace(task, payload=rest)

    def release(self) -> None:
        """Let go whoever waits for other workers, because all are to end; nobody is given a task any more."""

    def left(self) -> Iterator[T]:
        """Take out all that was to be done, when no worker runs any more."""
        for tasks in self._tasks:
            while (task := tasks.pop()) is not EMPTY:
                yield task.payload

    def _next(self, worker: int) -> BoundTask[T] | Empty:
        while True:
            if not self._serve_requests(worker):
                return EMPTY
            task = self._tasks[worker].pop()
            if task is EMPTY:
                return EMPTY
            if self._owners[task.operator].load() != worker:
                self._send(task)
            elif task.sequence == self._expected[task.operator].load():
                return task
            else:
                self._early[task.operator].put(task.sequence, task)

    def _finish(self, worker: int, task: BoundTask[T]) -> None:
        following = task.sequence + 1
        self._expected[task.operator].store(following)
        early = self._early[task.operator].take(following)
        if early is not EMPTY:
            self._tasks[worker].push_front(early)  # not run here: a request to move comes first

    def _serve_requests(self, worker: int) -> bool:
        """Do what this worker was asked for; return whether it may go on with its tasks."""
        while (rebind := self._urgent[worker].pop()) is not EMPTY:
            self._apply(worker, rebind)
        return True

    def _apply(self, worker: int, rebind: Rebind) -> None:
        if self._owners[rebind.operator].load() != worker:
            self._request(rebind)
        elif rebind.request > self._granted[rebind.operator].load():
            self._granted[rebind.operator].store(rebind.request)
            self._owners[rebind.operator].store(rebind.to)

    def _request(self, rebind: Rebind) -> None:
        owner = self._owners[rebind.operator].load()
        self._urgent[owner].push(rebind)
        self._wake(owner)

    def _send(self, task: BoundTask[T]) -> None:
        owner = self._owners[task.operator].load()
        self._tasks[owner].push(task)
        self._wake(owner)


class BarrierBinding(BindingTable[T]):
    """Rebind while all workers stand still: the baseline, in which everybody waits for the slowest task."""

    def __init__(
        self, primitives: Primitives, owners: Sequence[int], workers: int, wake: Callable[[int], None]
    ) -> None:
        super().__init__(primitives, owners, workers, wake)
        self._wanted: Fifo[Rebind] = primitives.fifo("wanted")
        self._meeting: Cell[bool] = primitives.cell("meeting", False)
        self._arrived = primitives.counter("arrived")
        self._gates = [primitives.parker(f"gate[{w}]") for w in range(workers)]
        self._released: Cell[bool] = primitives.cell("released", False)

    def release(self) -> None:
        """End all meetings: those who have left do not come to them, and the others would wait for ever."""
        self._released.store(True)
        for gate in self._gates:
            gate.unpark()

    def _request(self, rebind: Rebind) -> None:
        self._wanted.push(rebind)
        self._meeting.store(True)
        for worker in range(len(self._tasks)):
            self._wake(worker)

    def _serve_requests(self, worker: int) -> bool:
        if self._released.load():
            return False
        if not self._meeting.load():
            return True
        if self._arrived.add(1) < len(self._gates) - 1:
            self._gates[worker].park(None)
            # One who was let go must not run anything: the last to arrive may be rewriting the table.
            return not self._released.load()
        # The last to arrive does the work for all. The flag goes down first: a request that comes while
        # the table is being rewritten then calls a meeting of its own.
        self._meeting.store(False)
        while (rebind := self._wanted.pop()) is not EMPTY:
            self._owners[rebind.operator].store(rebind.to)
        self._arrived.exchange(0)
        for other, gate in enumerate(self._gates):
            if other != worker:
                gate.unpark()
        return True
