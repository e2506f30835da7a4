"""Build the primitives of `order` without threads: in virtual time one thing happens after another.

The simulator then runs the shipped reorder buffer (`pe`) and the shipped queues of partitioned operators
(`partitioned`).
"""

from collections import deque
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from penstock.order.primitives import EMPTY, Empty

T = TypeVar("T")


class _Holders:
    """Serve as try-lock and as lock."""

    def __init__(self, permits: int | None) -> None:
        self._permits = permits
        self._held = 0

    def try_acquire(self) -> bool:
        """Take a place if one is free."""
        if self._permits is not None and self._held >= self._permits:
            return False
        self._held += 1
        return True

    def acquire(self) -> None:
        """Take the lock, which must be free: nobody could release it while this waits."""
        if not self.try_acquire():
            raise RuntimeError("a lock is taken twice within one moment of virtual time")

    def release(self) -> None:
        """Give the place back."""
        self._held -= 1


class _Cell(Generic[T]):
    def __init__(self, value: T) -> None:
        self._value = value

    def load(self) -> T:
        """Read the reference."""
        return self._value

    def store(self, value: T) -> None:
        """Replace the reference."""
        self._value = value


class _Counter(_Cell[int]):
    def add(self, delta: int) -> int:
        """Add and return the count from before."""
        before = self._value
        self._value = before + delta
        return before

    def exchange(self, value: int) -> int:
        """Set the count and return the one from before."""
        before, self._value = self._value, value
        return before


class _Ring(Generic[T]):
    def __init__(self, size: int, initial: T) -> None:
        self._slots = [initial] * size

    def load(self, index: int) -> T:
        """Read one slot."""
        return self._slots[index]

    def store(self, index: int, value: T) -> None:
        """Replace one slot."""
        self._slots[index] = value


class _Fifo(Generic[T]):
    def __init__(self) -> None:
        self._items: deque[T] = deque()

    def push(self, item: T) -> None:
        """Add an item at the back."""
        self._items.append(item)

    def push_front(self, item: T) -> None:
        """Put an item back where `pop` takes from."""
        self._items.appendleft(item)

    def pop(self) -> T | Empty:
        """Take the item at the front, or EMPTY."""
        return self._items.popleft() if self._items else EMPTY

    def discard(self, item: T) -> bool:
        """Remove the first equal item and say whether there was one."""
        found = item in self._items
        if found:
            self._items.remove(item)
        return found

    def size(self) -> int:
        """Count the items."""
        return len(self._items)


class _Table(Generic[T]):
    def __init__(self) -> None:
        self._values: dict[Hashable, T] = {}

    def put(self, key: Hashable, value: T) -> None:
        """Store a value under a key that is not present."""
        self._values[key] = value

    def take(self, key: Hashable) -> T | Empty:
        """Remove and return the value of a key, or EMPTY."""
        return self._values.pop(key, EMPTY)

    def size(self) -> int:
        """Count the entries."""
        return len(self._values)


class _Parker:
    def park(self, timeout: float | None) -> bool:
        """Refuse: virtual time passes in the event loop only."""
        raise RuntimeError("nothing may sleep within one moment of virtual time")

    def unpark(self) -> None:
        """Do nothing: nobody sleeps."""


class Virtual:
    """Make primitives for virtual time."""

    def try_lock(self, name: str, permits: int | None = 1) -> _Holders:
        """Make a try-lock."""
        return _Holders(permits)

    def lock(self, name: str) -> _Holders:
        """Make a lock."""
        return _Holders(1)

    def counter(self, name: str, initial: int = 0) -> _Counter:
        """Make a counter."""
        return _Counter(initial)

    def cell(self, name: str, initial: T) -> _Cell[T]:
        """Make a cell."""
        return _Cell(initial)

    def ring(self, name: str, size: int, initial: T) -> _Ring[T]:
        """Make so many cells."""
        return _Ring(size, initial)

    def fifo(self, name: str) -> _Fifo[Any]:
        """Make a queue."""
        return _Fifo()

    def table(self, name: str) -> _Table[Any]:
        """Make a table."""
        return _Table()

    def parker(self, name: str) -> _Parker:
        """Make a parker that refuses to sleep."""
        return _Parker()

    def pause(self, seconds: float) -> None:
        """Refuse: whoever would look again must be scheduled again."""
        raise RuntimeError("nothing may spin within one moment of virtual time")
