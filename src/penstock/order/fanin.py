"""Join several ordered streams into one ordered stream.

Both merges are pure state machines with one owner: the operator they belong to admits one worker. Nothing
here depends on which port's data came first, and nothing waits: what cannot leave yet is held.

`BatchFanIn` serves streams that come from one numbering (a union below a fan-out): every port brings
exactly one batch `n`, empty if need be, so batch `n` is complete when all ports have brought theirs.
`PositionFanIn` serves streams whose rows must interleave by a key whatever batches they came in (a merge
by time): a port's frontier says that nothing smaller will come, and an empty batch can raise it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class BatchFanIn(Generic[T, R]):
    """Merge batch `n` of every port into batch `n`, in order of `n`."""

    def __init__(self, ports: int, merge: Callable[[Sequence[T]], R], *, first: int = 0) -> None:
        if ports < 1:
            raise ValueError(f"a fan-in needs at least one port, not {ports}")
        self._held: list[deque[T]] = [deque() for _ in range(ports)]
        self._merge = merge
        self._expected = [first] * ports
        self._next = first

    @property
    def next_number(self) -> int:
        """The number of the batch that leaves next."""
        return self._next

    def held(self, port: int) -> int:
        """Count the batches of a port that wait for the other ports."""
        return len(self._held[port])

    def add(self, port: int, number: int, batch: T) -> list[tuple[int, R]]:
        """Take a port's batch and return what can leave now: numbers with their merged batches."""
        if number != self._expected[port]:
            raise ValueError(f"port {port} brought batch {number}; {self._expected[port]} was next")
        self._expected[port] += 1
        self._held[port].append(batch)
        ready = []
        while all(self._held):
            ready.append((self._next, self._merge([queue.popleft() for queue in self._held])))
            self._next += 1
        return ready


class PositionFanIn(Generic[T]):
    """Merge rows of several ports by key; equal keys leave in port order.

    A row leaves once no port can still bring one that belongs before it: its key is below every other
    port's frontier, or equal to the frontier of ports that come later in port order.
    """

    def __init__(self, ports: int, key: Callable[[T], Any]) -> None:
        if ports < 1:
            raise ValueError(f"a fan-in needs at least one port, not {ports}")
        self._key = key
        self._held: list[deque[tuple[Any, T]]] = [deque() for _ in range(ports)]
        self._frontier: list[Any] = [None] * ports  # None: nothing is known yet, so nothing may pass
        self._ended = [False] * ports

    def held(self, port: int) -> int:
        """Count the rows of a port that wait for the other ports."""
        return len(self._held[port])

    def add(self, port: int, rows: Sequence[T], frontier: Any = None) -> list[T]:
        """Take a port's next rows, in key order, and return the rows that can leave now.

        `frontier` is the smallest key that the port may still bring; without it, the last key stands.
        """
        if self._ended[port]:
            raise ValueError(f"port {port} has ended")
        for row in rows:
            key = self._key(row)
            self._advance(port, key)
            self._held[port].append((key, row))
        if frontier is not None:
            self._advance(port, frontier)
        return self._release()

    def end(self, port: int) -> list[T]:
        """Note that a port brings nothing more, and return the rows that can leave now."""
        self._ended[port] = True
        return self._release()

    def _advance(self, port: int, key: Any) -> None:
        if self._frontier[port] is not None and key < self._frontier[port]:
            raise ValueError(f"port {port} went back from {self._frontier[port]!r} to {key!r}")
        self._frontier[port] = key

    def _release(self) -> list[T]:
        open_ports = [port for port, ended in enumerate(self._ended) if not ended]
        if any(self._frontier[port] is None for port in open_ports):
            return []
        # A row's (key, port) is never beyond its own port's (frontier, port), so one bound serves all ports.
        bound = min(((self._frontier[port], port) for port in open_ports), default=None)
        heads = [(queue[0][0], port) for port, queue in enumerate(self._held) if queue]
        heapq.heapify(heads)
        released = []
        while heads and (bound is None or heads[0] <= bound):
            port = heads[0][1]
            released.append(self._held[port].popleft()[1])
            if self._held[port]:
                heapq.heapreplace(heads, (self._held[port][0][0], port))
            else:
                heapq.heappop(heads)
        return released
