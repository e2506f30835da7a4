"""An elastic executor whose workers are called by whoever has just given them something to do.

In an engine a worker is called by putting something into its port, which may mean to wait for room; the executor's
receiver must not do that in the middle of its turn. So it only notes whom to call, and everybody who has used the
executor asks `called` afterwards and makes the calls. A note may be made by one thread and found by another; what
counts is that whoever makes one asks after that, so none is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from penstock.order.elastic_executor import ElasticExecutor
from penstock.order.primitives import EMPTY, Fifo, Primitives

T = TypeVar("T")


class CalledExecutor(ElasticExecutor[T]):
    """Route shards to worker queues; after each `submit`, `reassign`, `labelled` and step of `work`, ask `called`."""

    def __init__(self, primitives: Primitives, routes: Sequence[int], workers: int, arriving: bool = False) -> None:
        self._calls: Fifo[int] = primitives.fifo("calls")
        super().__init__(primitives, routes, workers, self._calls.push, arriving)

    def called(self) -> list[int]:
        """Return the workers that have got something to do and are not called yet; the caller calls them."""
        found: dict[int, None] = {}
        while (worker := self._calls.pop()) is not EMPTY:
            found[worker] = None
        return list(found)


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
