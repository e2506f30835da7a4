"""Name the synchronization primitives that the concurrent parts stand on.

Every piece of mutable state that two workers may touch lives in one of these objects, and each method
below is one atomic step, in one total order (sequential consistency). The protocols in `order` and `threads`
never import `threading`: they are handed a `Primitives`. In production that is `threads.Threads`; in the
tests it is the explorer, which stops before every step and tries every order of them. So what the explorer
checks is the shipped code, line for line, and not a model of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class _Sentinel(Enum):
    EMPTY = "EMPTY"

    def __repr__(self) -> str:
        return self.value


EMPTY: Final = _Sentinel.EMPTY
"""What a queue, slot or table gives when nothing is there; `None` stays free to be a value."""

Empty: TypeAlias = Literal[_Sentinel.EMPTY]


class TryLock(Protocol):
    """Grant one or several holders, and refuse instead of waiting."""

    def try_acquire(self) -> bool:
        """Take a place if one is free, and say whether that worked."""

    def release(self) -> None:
        """Give the place back; any thread may do so."""


class Lock(Protocol):
    """Grant one holder and make the others wait: for the papers' baselines only."""

    def acquire(self) -> None:
        """Wait for the lock and take it."""

    def release(self) -> None:
        """Give the lock back."""


class Counter(Protocol):
    """Count atomically."""

    def load(self) -> int:
        """Read the count."""

    def add(self, delta: int) -> int:
        """Add `delta` and return the count from *before*."""

    def exchange(self, value: int) -> int:
        """Set the count and return the one from before."""


class Cell(Protocol[T]):
    """Hold one reference."""

    def load(self) -> T:
        """Read the reference."""

    def store(self, value: T) -> None:
        """Replace the reference."""


class Ring(Protocol[T]):
    """Hold a fixed number of references, each a cell of its own."""

    def load(self, index: int) -> T:
        """Read one slot."""

    def store(self, index: int, value: T) -> None:
        """Replace one slot."""


class Fifo(Protocol[T]):
    """Queue items for any number of producers and consumers; each operation is linearizable."""

    def push(self, item: T) -> None:
        """Add an item at the back."""

    def push_front(self, item: T) -> None:
        """Put an item back where `pop` takes from."""

    def pop(self) -> T | Empty:
        """Take the item at the front, or `EMPTY`."""

    def peek(self, most: int) -> Sequence[T]:
        """Read the items at the front, so many at most, and leave them there."""

    def discard(self, item: T) -> bool:
        """Remove the first equal item (an int or a string) and say whether there was one."""

    def size(self) -> int:
        """Count the items."""


class Table(Protocol[K_contra, T]):
    """Map keys to values; at any time the protocol around it names one owner."""

    def put(self, key: K_contra, value: T) -> None:
        """Store a value under a key that is not present."""

    def take(self, key: K_contra) -> T | Empty:
        """Remove and return the value of a key, or `EMPTY`."""

    def size(self) -> int:
        """Count the entries."""


class Parker(Protocol):
    """Let one thread sleep until it is woken; a wake-up that comes first is kept (once)."""

    def park(self, timeout: float | None) -> bool:
        """Sleep until woken or, if `timeout` is not None, that many seconds; say whether woken."""

    def unpark(self) -> None:
        """Wake the sleeper, or spare the next one its sleep."""


class Primitives(Protocol):
    """Make primitives; names appear in the explorer's traces and nowhere else."""

    takes_turns: bool
    """Whether one thread runs at a time: then what several write to costs none of them more."""

    def try_lock(self, name: str, permits: int | None = 1) -> TryLock:
        """Make a try-lock for `permits` holders at once; None admits any number."""

    def lock(self, name: str) -> Lock:
        """Make a waiting lock."""

    def counter(self, name: str, initial: int = 0) -> Counter:
        """Make a counter."""

    def cell(self, name: str, initial: T) -> Cell[T]:
        """Make a cell."""

    def ring(self, name: str, size: int, initial: T) -> Ring[T]:
        """Make `size` cells."""

    def fifo(self, name: str) -> Fifo[T]:
        """Make a queue."""

    def table(self, name: str) -> Table[K_contra, T]:
        """Make a table."""

    def parker(self, name: str) -> Parker:
        """Make a parker."""

    def pause(self, seconds: float) -> None:
        """Let others run before the caller looks again at something that was not yet as it needs it."""
