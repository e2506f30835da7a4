"""Run a partitioned operator as Elasticutor's elastic executor, in one process.

The rival of the hybrid queue: shards are *routed* to worker queues by a table, the table follows the load,
and a worker touches no queue but its own. Reassigning a shard costs one label and no state transfer, since
all workers share the process and so the state; other shards and workers run on meanwhile.

The table and the rules are in the pure `ShardRouter`; here are the queues around it. The paper's receiver
and its thread become a role: whoever submits an item, asks for a move or brings back a label runs the
router for everybody who came meanwhile. The paper's emitter is the operator's reorder buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.order.combiner import Combiner
from penstock.order.primitives import EMPTY, Fifo, Primitives
from penstock.order.shard_router import Entry, Label, RoutedItem, ShardRouter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Reassign:
    shard: int
    to: int


def _nobody(_worker: int) -> None:
    """Wake nobody: for callers that look for work by themselves."""


class ElasticExecutor(Generic[T]):
    """Route shards to worker queues, and move a shard between workers in order.

    `wake(worker)` is called after something has been put into a worker's queue. A worker's queue belongs to
    one thread at a time. To add a worker, `grow` and give it shards; to remove one, move its shards away and
    let it work until `owned` is empty. With `arriving`, the shards were somebody else's until now: what is
    submitted is held back until `labelled` says of each shard that the other one has done with it.
    """

    def __init__(
        self,
        primitives: Primitives,
        routes: Sequence[int],
        workers: int,
        wake: Callable[[int], None] = _nobody,
        arriving: bool = False,
    ) -> None:
        if not all(0 <= worker < workers for worker in routes):
            raise ValueError(f"every shard needs a worker from 0 to {workers - 1}: {list(routes)}")
        self._router: ShardRouter[T] = ShardRouter(routes, arriving)
        self._queues: list[Fifo[Entry[T]]] = [primitives.fifo(f"queue[{w}]") for w in range(workers)]
        self._wake, self._primitives = wake, primitives
        self._receiver: Combiner[Entry[T] | _Reassign] = Combiner(primitives, self._receive)
        self._states: list[dict[Any, Any]] = [{} for _ in routes]

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

    def grow(self) -> int:
        """Make a queue for one more worker and return the worker's number; by the thread that reassigns."""
        self._queues.append(self._primitives.fifo(f"queue[{len(self._queues)}]"))
        return len(self._queues) - 1

    def work(self, worker: int) -> Generator[tuple[int, T], None, None]:
        """Iterate over the items in a worker's queue, passing labels back.

        Asking for the next item says that the last one has been processed; a label that comes out then has
        everything of its shard behind it.
        """
        queue = self._queues[worker]
        while (entry := queue.pop()) is not EMPTY:
            if isinstance(entry, Label):
                self._receiver.submit(entry)
            else:
                yield entry.shard, entry.payload

    def state(self, shard: int) -> dict[Any, Any]:
        """Return a shard's state, which is shared by all workers and used by the one that has the shard."""
        return self._states[shard]

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
            self._wake(worker)
