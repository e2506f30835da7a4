"""Hand the items of a partitioned operator to workers: each shard in order and by one worker at a time.

Three queues with one interface. Ordered's *hybrid* queue is the one to use; its *shared* and *partitioned*
queues are the baselines it was measured against (section 4).

`work()` is an iterator of (shard, item). Asking it for the next item says that the last one has been
processed; closing it says the same and that this worker stops, for example at the end of its time slice.
Nothing waits in here: when the iterator ends, everything that is left is in other workers' hands or was
put after the last look, and whoever puts an item sees to it that somebody looks again.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, Protocol, TypeVar

from penstock.order.primitives import EMPTY, Cell, Empty, Fifo, Primitives

T = TypeVar("T")

LOOK_IN_TURN, LOOK_AT_ONCE = 2, 8
"""Tokens among which a worker looks for one of its own shards: where threads run one at a time, and where at once."""


class Visitor:
    """A worker, as a queue knows it: its number, and what it remembers from visit to visit, for itself alone."""

    __slots__ = ("number", "passes")

    def __init__(self, number: int) -> None:
        self.number, self.passes = number, 0
        """How often it has passed older tokens by, one time after the other."""


class ShardQueue(Protocol[T]):
    """What an engine asks of a partitioned operator's queue."""

    def put(self, shard: int, item: T) -> None:
        """Add an item of a shard; producers take turns, so that arrival has an order."""

    def work(self, worker: Visitor | None = None) -> Generator[tuple[int, T], None, None]:
        """Iterate over items to process, each shard's in order and by one worker at a time.

        A queue may give a worker that says who it is shards that it had before.
        """

    def waiting(self) -> int:
        """Count the items that no worker has taken responsibility for."""


class HybridQueue(Generic[T]):
    """Take shards in the order of arrival, and leave an item to whoever is already busy with its shard.

    Items wait in a queue a shard. The master queue has one token an item, in order of arrival: the right
    to process one item of that shard, whichever is at its front. `counts[s]` is how many tokens of shard s
    were taken and not yet used up; the worker that raises it from zero has the shard, and the others, by
    raising it further, delegate to that worker and go on. Outputs so come out nearly in arrival order,
    which keeps the reorder buffer short, and no worker waits for another.

    Where the paper's worker takes the oldest token, one of ours that says who it is looks among the oldest ones for one
    of a shard that it had last: what one core has in its cache costs another one more. Without a GIL it costs far
    more, for what one thread has made, such as the state of each key, another one may not free: it hands it back,
    object by object, and both wait for each other. So there more of them are looked at.
    """

    def __init__(self, primitives: Primitives, shards: int) -> None:
        self._look = LOOK_IN_TURN if primitives.takes_turns else LOOK_AT_ONCE
        self._items: list[Fifo[T]] = [primitives.fifo(f"items[{shard}]") for shard in range(shards)]
        self._counts = [primitives.counter(f"count[{shard}]") for shard in range(shards)]
        self._homes: list[Cell[int | None]] = [primitives.cell(f"home[{shard}]", None) for shard in range(shards)]
        """Who had each shard last."""
        self._master: Fifo[int] = primitives.fifo("master")

    def put(self, shard: int, item: T) -> None:
        """Add an item of a shard; the item comes before its token, so a token always finds one."""
        self._items[shard].push(item)
        self._master.push(shard)

    def work(self, worker: Visitor | None = None) -> Generator[tuple[int, T], None, None]:
        """Iterate over items to process.

        The count goes down only after an item is processed: were it to go down before, it could reach
        zero, and admit a second worker to the shard, while the last item is still being worked on.
        """
        while True:
            shard = self._take(worker)
            if shard is EMPTY:
                return
            if self._counts[shard].add(1) > 0:
                continue
            if worker is not None:
                self._homes[shard].store(worker.number)
            more = True
            while more:
                item = self._items[shard].pop()
                assert item is not EMPTY, "a token without an item"
                try:
                    yield shard, item
                except GeneratorExit:
                    self._hand_back(shard)
                    raise
                more = self._counts[shard].add(-1) > 1

    def waiting(self) -> int:
        """Count the items that no worker has taken responsibility for."""
        return self._master.size()

    def _take(self, worker: Visitor | None) -> int | Empty:
        """Take the oldest token, or one of the next ones if that is of a shard that the worker had last.

        Tokens are looked at where they are: what one worker holds another one would not find. After as many times as
        it looks at tokens it takes the oldest in any case: the reorder buffer waits for it.
        """
        if worker is None:
            return self._master.pop()
        passes, worker.passes = worker.passes, 0
        if passes < self._look - 1:
            for place, shard in enumerate(self._master.peek(self._look)):
                if self._homes[shard].load() in (worker.number, None):
                    # Another worker may have taken it meanwhile; tokens of a shard are interchangeable.
                    if place and self._master.discard(shard):
                        worker.passes = passes + 1
                        return shard
                    break
        return self._master.pop()

    def _hand_back(self, shard: int) -> None:
        # Tokens are interchangeable, so those delegated here can simply go back. To the front: their items
        # arrived before everything in the master queue, and the reorder buffer waits for them.
        for _ in range(self._counts[shard].exchange(0) - 1):
            self._master.push_front(shard)


class PartitionedQueue(Generic[T]):
    """Give a worker a whole shard until the shard is empty: the baseline that lets shards drift apart.

    A shard is in the ready list, or with a worker, exactly while its count is above zero.
    """

    def __init__(self, primitives: Primitives, shards: int) -> None:
        self._items: list[Fifo[T]] = [primitives.fifo(f"items[{shard}]") for shard in range(shards)]
        self._counts = [primitives.counter(f"count[{shard}]") for shard in range(shards)]
        self._ready: Fifo[int] = primitives.fifo("ready")

    def put(self, shard: int, item: T) -> None:
        """Add an item of a shard, and list the shard if it had none."""
        self._items[shard].push(item)
        if self._counts[shard].add(1) == 0:
            self._ready.push(shard)

    def work(self, worker: Visitor | None = None) -> Generator[tuple[int, T], None, None]:
        """Iterate over items to process, shard after shard."""
        while (shard := self._ready.pop()) is not EMPTY:
            more = True
            while more:
                item = self._items[shard].pop()
                assert item is not EMPTY, "a listed shard without an item"
                try:
                    yield shard, item
                except GeneratorExit:
                    if self._counts[shard].add(-1) > 1:
                        self._ready.push(shard)
                    raise
                more = self._counts[shard].add(-1) > 1

    def waiting(self) -> int:
        """Count the shards with items that no worker has."""
        return self._ready.size()


class SharedQueue(Generic[T]):
    """Take items strictly in the order of arrival from one queue: the baseline that stops at its head.

    Taking an item and its shard must be one step, or two workers could take two items of a shard in one
    order and process them in the other; hence the lock. A worker that finds the head's shard busy leaves
    (the paper's worker waits): the one that is busy with the shard comes back for it.
    """

    def __init__(self, primitives: Primitives, shards: int) -> None:
        self._queue: Fifo[tuple[int, T]] = primitives.fifo("queue")
        self._busy = [primitives.try_lock(f"busy[{shard}]") for shard in range(shards)]
        self._lock = primitives.lock("head")

    def put(self, shard: int, item: T) -> None:
        """Add an item of a shard."""
        self._queue.push((shard, item))

    def work(self, worker: Visitor | None = None) -> Generator[tuple[int, T], None, None]:
        """Iterate over items to process, until the queue is empty or its head must wait."""
        while (head := self._take_head()) is not None:
            try:
                yield head
            finally:
                self._busy[head[0]].release()

    def waiting(self) -> int:
        """Count the items that no worker has."""
        return self._queue.size()

    def _take_head(self) -> tuple[int, T] | None:
        self._lock.acquire()
        try:
            head = self._queue.pop()
            if head is EMPTY:
                return None
            if not self._busy[head[0]].try_acquire():
                self._queue.push_front(head)
                return None
            return head
        finally:
            self._lock.release()
