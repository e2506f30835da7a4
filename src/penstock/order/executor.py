"""Run a partitioned operator as Elasticutor's elastic executor, in one process.

The rival of the hybrid queue: shards are *routed* to worker queues by a table, the table follows the load,
and a worker touches no queue but its own. Reassigning a shard costs one label and no state transfer, since
all workers share the process and so the state; other shards and workers run on meanwhile.

The table and the rules are in the pure `ShardRouter`; the queues around it in `ElasticExecutor`. The paper's receiver
and its thread become a role: whoever submits an item, asks for a move or brings back a label runs the
router for everybody who came meanwhile (`Combiner`). The paper's emitter is the operator's reorder buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from penstock.order.primitives import EMPTY, Fifo, Primitives

E = TypeVar("E")
T = TypeVar("T")


class Combiner(Generic[E]):
    """Let many threads drive one single-threaded state machine, none of them waiting for another.

    This is the reorder buffer's try-lock idea on its own: events go into an inbox, and whichever thread finds nobody
    at work applies all of them, its own and the others', in the order in which they entered.
    """

    def __init__(self, primitives: Primitives, apply: Callable[[E], None]) -> None:
        self._inbox: Fifo[E] = primitives.fifo("inbox")
        self._turn = primitives.try_lock("turn")
        self._apply = apply

    def submit(self, event: E) -> None:
        """Leave an event, and apply what is there unless another thread is doing that.

        On return the event has been applied, or the thread that is applying will come to it: that thread
        looks at the inbox again after it has given up its turn. Should applying raise, the event that
        raised is gone and the thread that was applying gets the error; the others' events stay.
        """
        self._inbox.push(event)
        while self._turn.try_acquire():
            try:
                while (waiting := self._inbox.pop()) is not EMPTY:
                    self._apply(waiting)
            finally:
                self._turn.release()
            if self._inbox.size() == 0:
                return


@dataclass(frozen=True, slots=True)
class RoutedItem(Generic[T]):
    """An item of a shard, to be processed."""

    shard: int
    payload: T


@dataclass(frozen=True, slots=True)
class Label:
    """The mark that ends a shard's stay with a worker; it has nothing to process."""

    shard: int


@dataclass(frozen=True, slots=True)
class _Reassign:
    shard: int
    to: int


Entry: TypeAlias = RoutedItem[T] | Label
Delivery: TypeAlias = tuple[int, Entry[T]]
"""An instruction: append this entry to that worker's queue."""


@dataclass(slots=True)
class _Move(Generic[T]):
    to: int
    held: list[RoutedItem[T]] = field(default_factory=list)


class ShardRouter(Generic[T]):
    """Turn items, reassignments and returned labels into deliveries, to be carried out in order.

    A shard is in one of two states: *settled*, and its items go straight to the queue of the worker that the table
    names; or *moving*: a label is on its way through the old worker's queue, after everything that worker still has
    to do for the shard, and new items are held back here. When the label comes out, the old worker has finished with
    the shard: the table changes, the held items go to the new worker, and the shard is settled again.
    """

    def __init__(self, routes: Sequence[int], arriving: bool = False) -> None:
        """Begin with a table; with `arriving`, every shard is on its way in from elsewhere and has a label there."""
        self._routes = list(routes)
        self._moving: dict[int, _Move[T]] = {shard: _Move(to) for shard, to in enumerate(routes) if arriving}

    @property
    def routes(self) -> tuple[int, ...]:
        """The worker of each shard; a moving shard is still with its old one."""
        return tuple(self._routes)

    def route(self, item: RoutedItem[T]) -> list[Delivery[T]]:
        """Deliver an item, or hold it back while its shard moves."""
        move = self._moving.get(item.shard)
        if move is None:
            return [(self._routes[item.shard], item)]
        move.held.append(item)
        return []

    def reassign(self, shard: int, to: int) -> list[Delivery[T]]:
        """Begin to move a shard; one that is moving already gets a new destination, not a second label."""
        move = self._moving.get(shard)
        if move is not None:
            move.to = to
            return []
        if self._routes[shard] == to:
            return []
        self._moving[shard] = _Move(to)
        return [(self._routes[shard], Label(shard))]

    def labelled(self, shard: int) -> list[Delivery[T]]:
        """Note that a label has come out of the old worker's queue, and settle the shard."""
        move = self._moving.pop(shard)
        self._routes[shard] = move.to
        return [(move.to, item) for item in move.held]


class ElasticExecutor(Generic[T]):
    """Route shards to worker queues, and move a shard between workers in order.

    A worker's queue belongs to one thread at a time. To add a worker, `grow` and give it shards; to remove one, move
    its shards away and let it work until `owned` is empty. With `arriving`, the shards were somebody else's until now:
    what is submitted is held back until `labelled` says of each shard that the other one has done with it.

    In an engine a worker is called by putting something into its port, which may mean to wait for room; the receiver
    must not do that in the middle of its turn. So it only notes whom to call, and everybody who has used the executor
    (`submit`, `reassign`, `labelled`, a step of `work`) asks `called` afterwards and makes the calls. A note may be
    made by one thread and found by another; whoever makes one asks after that, so none is left behind.
    """

    def __init__(self, primitives: Primitives, routes: Sequence[int], workers: int, arriving: bool = False) -> None:
        if not all(0 <= worker < workers for worker in routes):
            raise ValueError(f"every shard needs a worker from 0 to {workers - 1}: {list(routes)}")
        self._router: ShardRouter[T] = ShardRouter(routes, arriving)
        self._queues: list[Fifo[Entry[T]]] = [primitives.fifo(f"queue[{w}]") for w in range(workers)]
        self._primitives = primitives
        self._calls: Fifo[int] = primitives.fifo("calls")
        self._receiver: Combiner[Entry[T] | _Reassign] = Combiner(primitives, self._receive)

    def submit(self, shard: int, payload: T) -> None:
        """Send an item to the worker that has its shard; the order of calls is the order of processing."""
        self._receiver.submit(RoutedItem(shard, payload))

    def reassign(self, shard: int, to: int) -> None:
        """Ask for a shard to be moved; it has moved once the old worker has come to the label."""
        if not 0 <= to < len(self._queues):
            raise ValueError(f"no worker {to}; there are {len(self._queues)}")
        self._receiver.submit(_Reassign(shard, to))

    def labelled(self, shard: int) -> None:
        """Note that whoever had an arriving shard has come to its label."""
        self._receiver.submit(Label(shard))

    def called(self) -> list[int]:
        """Return the workers that have got something to do and are not called yet; the caller calls them."""
        found: dict[int, None] = {}
        while (worker := self._calls.pop()) is not EMPTY:
            found[worker] = None
        return list(found)

    def grow(self) -> int:
        """Make a queue for one more worker and return the worker's number; by the thread that reassigns."""
        self._queues.append(self._primitives.fifo(f"queue[{len(self._queues)}]"))
        return len(self._queues) - 1

    def work(self, worker: int) -> Generator[tuple[int, T], None, None]:
        """Iterate over the items in a worker's queue, passing labels back.

        Asking for the next item says that the last one has been processed; a label that comes out then has
        everything of its shard after it.
        """
        queue = self._queues[worker]
        while (entry := queue.pop()) is not EMPTY:
            if isinstance(entry, Label):
                self._receiver.submit(entry)
            else:
                yield entry.shard, entry.payload

    def waiting(self, worker: int) -> int:
        """Count the entries in a worker's queue."""
        return self._queues[worker].size()

    @property
    def routes(self) -> tuple[int, ...]:
        """The worker of each shard (a snapshot)."""
        return self._router.routes

    @property
    def workers(self) -> int:
        """How many workers have a queue."""
        return len(self._queues)

    def owned(self, worker: int) -> list[int]:
        """List the shards that a worker has or will not be rid of before its label comes out."""
        return [shard for shard, owner in enumerate(self._router.routes) if owner == worker]

    def _receive(self, event: Entry[T] | _Reassign) -> None:
        if isinstance(event, RoutedItem):
            deliveries = self._router.route(event)
        elif isinstance(event, Label):
            deliveries = self._router.labelled(event.shard)
        else:
            deliveries = self._router.reassign(event.shard, event.to)
        for worker, entry in deliveries:
            self._queues[worker].push(entry)
            self._calls.push(worker)


def spread(routes: Sequence[int], workers: int) -> list[tuple[int, int]]:
    """Return the moves (shard, worker) that share shards out evenly among so many workers, and no move more.

    Shards of workers that are no more go first, each to the worker with the fewest.
    """
    owned: list[list[int]] = [[] for _ in range(workers)]
    homeless: list[int] = []
    for shard, worker in enumerate(routes):
        (owned[worker] if worker < workers else homeless).append(shard)
    moves: dict[int, int] = {}

    def move(shard: int) -> None:
        least = min(range(workers), key=lambda worker: len(owned[worker]))
        owned[least].append(shard)
        moves[shard] = least

    for shard in homeless:
        move(shard)
    while max(map(len, owned)) - min(map(len, owned)) > 1:
        move(max(owned, key=len).pop())
    return [(shard, to) for shard, to in moves.items() if routes[shard] != to]
