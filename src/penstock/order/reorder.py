"""Put the outputs of concurrent workers back into the order of their inputs.

Several workers run one operator at once and finish in any order; batch `n` must leave after batch `n - 1`.
Each batch carries one serial number, and every number must be offered exactly once: an operator whose
result is empty still offers its empty batch, or the order would stop there.

`ReorderBuffer` is Ordered's non-blocking scheme (section 3.2). It is a *try-lock* scheme, not a lock-free
one: a worker that finds another one emitting leaves its batch in the ring and goes back to work.
`LockedReorderBuffer` is the paper's baseline, where that worker waits.

Both have two halves, so that an engine can stop half-way when the queue below is full: `offer` stores an
output, `drain` is an iterator over whatever may leave now. Asking the iterator for the next output says
that the last one was accepted downstream; only then does its slot become free.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import repeat
from operator import is_not
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from penstock.order.primitives import EMPTY, Cell, Empty, Primitives, Ring

T = TypeVar("T")


class Reorder(Protocol[T]):
    """What an engine asks of a reorder buffer."""

    def has_room(self, number: int) -> bool:
        """Say whether `offer` would take this number now; once true it stays true until it is offered."""

    def offer(self, number: int, value: T) -> bool:
        """Store the output of a batch; False if the buffer does not reach that far yet."""

    def drain(self) -> Generator[T, None, None]:
        """Iterate over the outputs that may leave now; none if another worker is at it."""

    def progress(self) -> tuple[int, int]:
        """Return the oldest number not yet emitted and how many later outputs wait for it (a snapshot)."""


@runtime_checkable
class MakeReorder(Protocol):
    """Make a reorder buffer of so many slots, whose first batch has a number."""

    def __call__(self, primitives: Primitives, size: int, *, first: int = 0) -> Reorder[Any]:
        """Make a buffer."""


class ReorderBuffer(Generic[T]):
    """Reorder without making a worker wait for the one that emits.

    A worker is refused only if its number is `size` or more ahead of the oldest missing one. An engine that
    asks `has_room` before a batch *enters* the operator is never refused when the batch leaves, and then no
    worker ever spins here; the paper's workers retry.
    """

    def __init__(self, primitives: Primitives, size: int, *, first: int = 0) -> None:
        if size < 1:
            raise ValueError(f"a reorder buffer needs at least one slot, not {size}")
        self.size = size
        self._slots: Ring[T | Empty] = primitives.ring("slots", size, EMPTY)
        self._next: Cell[int] = primitives.cell("next", first)
        self._emitting = primitives.try_lock("emitting")

    def has_room(self, number: int) -> bool:
        """Say whether `offer` would take this number now; once true it stays true until it is offered."""
        return number < self._next.load() + self.size

    def offer(self, number: int, value: T) -> bool:
        """Store the output of a batch; False if the ring does not reach that far yet.

        While the oldest missing number is in (number - size, number], the slot belongs to this number
        alone, so a plain store is enough.
        """
        if not self.has_room(number):
            return False
        self._slots.store(number % self.size, value)
        return True

    def drain(self) -> Generator[T, None, None]:
        """Iterate over the outputs that may leave now; none if another worker is emitting.

        The worker that emits looks once more after it has let go. Without that second look, an output
        stored between the last look and the release would find nobody: its own worker saw the try-lock
        taken and left.
        """
        slots, size = self._slots, self.size
        while self._emitting.try_acquire():
            try:
                number = self._next.load()
                while (value := slots.load(number % size)) is not EMPTY:
                    yield value
                    slots.store(number % size, EMPTY)
                    number += 1
                    self._next.store(number)  # only the holder of the try-lock moves it
            finally:
                self._emitting.release()
            if slots.load(number % size) is EMPTY:
                return

    def send(self, number: int, value: T, emit: Callable[[T], None]) -> bool:
        """Offer one output and emit all that may leave: the paper's `send` in one call."""
        stored = self.offer(number, value)
        for output in self.drain():
            emit(output)
        return stored

    def progress(self) -> tuple[int, int]:
        """Return the oldest number not yet emitted and how many later outputs wait for it (a snapshot)."""
        return self._next.load(), sum(map(is_not, map(self._slots.load, range(self.size)), repeat(EMPTY)))


class LockedReorderBuffer(ReorderBuffer[T]):
    """Reorder under one lock, held while emitting: the baseline that makes workers wait."""

    def __init__(self, primitives: Primitives, size: int, *, first: int = 0) -> None:
        super().__init__(primitives, size, first=first)
        self._lock = primitives.lock("lock")

    def offer(self, number: int, value: T) -> bool:
        """Store the output of a batch, after waiting for whoever is emitting."""
        self._lock.acquire()
        try:
            return super().offer(number, value)
        finally:
            self._lock.release()

    def drain(self) -> Generator[T, None, None]:
        """Iterate over the outputs that may leave now, with the lock held."""
        self._lock.acquire()
        try:
            yield from super().drain()
        finally:
            self._lock.release()
