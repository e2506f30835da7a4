"""Run one partitioned operator on the shipped queues and reorder buffer (Ordered, section 4), in virtual time.

Workers ask the queue of `order` for items, as in the engine; each takes its time; outputs leave through the reorder
buffer. Items of one shard come one after the other, so skewed shards show how the queues differ: the shared queue
stops at a head whose shard is busy, the partitioned one stays with a shard while others grow old, and the hybrid one
leaves the item to the worker that has its shard and goes on. Looking at a queue costs nothing here: what is compared
is the order in which each hands out work, not the price of its locks.
"""

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass

from penstock.lab.sim.events import Events
from penstock.order.queues import ShardQueue
from penstock.order.reorder import ReorderBuffer
from penstock.order.threads import RealThreads

MakeQueue = Callable[[RealThreads, int], ShardQueue[int]]
"""One of `HybridQueue`, `PartitionedQueue` and `SharedQueue`."""


@dataclass(frozen=True, slots=True)
class Load:
    """Describe what comes: so many items, all there from the start, of shards by Zipf's law, at this cost each."""

    items: int = 2000
    shards: int = 64
    skew: float = 0.5
    cost: float = 0.001
    seed: int = 0

    def shard_of_items(self) -> list[int]:
        """Draw the shard of each item."""
        weights = [1 / rank**self.skew for rank in range(1, self.shards + 1)]
        return random.Random(self.seed).choices(range(self.shards), weights, k=self.items)


@dataclass(frozen=True, slots=True)
class PartitionedRun:
    """Report a run: what left in which order, how long it took, and how long outputs waited for earlier ones."""

    left: tuple[int, ...]
    seconds: float
    waited: float
    """Seconds that an output waited in the reorder buffer, mean."""
    overlaps: int
    """Items that began while another of their shard was being processed; must be none."""


class _Operator:
    """Hold the workers, and what they have in hand."""

    def __init__(self, make: MakeQueue, load: Load, workers: int, ahead: int) -> None:
        primitives = RealThreads(gil=True)  # one thing happens after another
        self._events, self._load = Events(), load
        self._queue = make(primitives, load.shards)
        self._buffer: ReorderBuffer[int] = ReorderBuffer(primitives, ahead)
        self._shards = load.shard_of_items()
        self._entered = 0
        self._idle = list(range(workers))
        self._busy: set[int] = set()
        self._done_at: dict[int, float] = {}
        self._left: list[int] = []
        self._waited = 0.0
        self._last = 0.0
        self._overlaps = 0

    def run(self) -> PartitionedRun:
        self._admit()
        # An operator that does nothing but one item after the other needs no longer than this.
        self._events.run(until=self._load.items * self._load.cost * 1.001 + 1.0)
        return PartitionedRun(tuple(self._left), self._last, self._waited / max(1, len(self._left)), self._overlaps)

    def _admit(self) -> None:
        """Let items in as far as the reorder buffer reaches, and have idle workers look."""
        while self._entered < len(self._shards) and self._buffer.has_room(self._entered):
            self._queue.put(self._shards[self._entered], self._entered)
            self._entered += 1
        idle, self._idle = self._idle, []
        for worker in idle:
            self._next((worker, self._queue.work()))

    def _next(self, hand: tuple[int, Generator[tuple[int, int], None, None]]) -> None:
        worker, work = hand
        found = next(work, None)
        if found is None:
            self._idle.append(worker)
            return
        shard, item = found
        self._overlaps += shard in self._busy
        self._busy.add(shard)
        self._events.after(self._load.cost, self._finish, (hand, shard, item))

    def _finish(self, done: tuple[tuple[int, Generator[tuple[int, int], None, None]], int, int]) -> None:
        hand, shard, item = done
        self._busy.discard(shard)
        now = self._last = self._events.now
        self._done_at[item] = now
        accepted = self._buffer.offer(item, item)
        assert accepted, "the buffer had room when the item entered"
        for out in self._buffer.drain():
            self._left.append(out)
            self._waited += now - self._done_at.pop(out)
        self._next(hand)
        # What left made room, and a shard that was busy may not be any more.
        self._admit()


def run_partitioned(make: MakeQueue, load: Load, *, workers: int, ahead: int = 256) -> PartitionedRun:
    """Process a load with so many workers, with items in flight that are at most `ahead` apart."""
    return _Operator(make, load, workers, ahead).run()
