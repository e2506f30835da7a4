"""Join several ordered streams into one ordered stream.

A pure state machine with one owner: the operator that it belongs to admits one worker. Nothing here depends on which
port's data came first, and nothing waits: what cannot leave yet is held. All streams come from one numbering: every
port brings exactly one batch `n`, empty if need be, so batch `n` is complete when all ports have brought theirs.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchFanIn(Generic[T]):
    """Bring batch `n` of every port together, in order of `n`."""

    def __init__(self, ports: int, *, first: int = 0) -> None:
        self._held: list[deque[T]] = [deque() for _ in range(ports)]
        self._expected = [first] * ports

    def add(self, port: int, number: int, batch: T) -> list[list[T]]:
        """Take a port's batch and return what can leave now: the batches of all ports under one number, in order."""
        if number != self._expected[port]:
            raise ValueError(f"port {port} brought batch {number}; {self._expected[port]} was next")
        self._expected[port] += 1
        self._held[port].append(batch)
        ready = []
        while all(self._held):
            ready.append([queue.popleft() for queue in self._held])
        return ready
