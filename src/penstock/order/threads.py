"""Build the primitives on `threading` locks: what every engine uses.

Where the interpreter has a GIL, reading or writing one reference, and appending to or popping from a deque,
are already atomic steps in one total order, so those primitives are the bare built-ins (bound C methods: no
Python frame at all). On a free-threaded interpreter the same operations are atomic but *not* totally
ordered: "release the flag, then look at the slot" may be seen the other way round by another core, and a
batch would stay behind. There each primitive is guarded by a lock of its own, which orders them. Which
of the two is right is asked of the interpreter, not assumed.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from itertools import islice
from threading import Lock as _Mutex
from typing import Any, Generic, TypeVar, cast

from penstock.order.primitives import EMPTY, Cell, Empty, Fifo, Lock, Parker, Ring, Table, TryLock

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def gil_enabled() -> bool:
    """Say whether this interpreter runs one thread of bytecode at a time."""
    ask = cast("Callable[[], bool] | None", getattr(sys, "_is_gil_enabled", None))
    return ask is None or ask()  # interpreters before 3.13 cannot be asked, and have one


class RealThreads:
    """Make primitives for real threads."""

    def __init__(self, *, gil: bool | None = None) -> None:
        self.takes_turns = gil_enabled() if gil is None else gil

    def try_lock(self, name: str, permits: int | None = 1) -> TryLock:
        """Make a try-lock for `permits` holders at once; None admits any number."""
        if permits is None:
            return _OpenTryLock()
        return _SingleTryLock() if permits == 1 else _CountingTryLock(permits)

    def lock(self, name: str) -> Lock:
        """Make a waiting lock."""
        return cast(Lock, _Mutex())

    def counter(self, name: str, initial: int = 0) -> _Counter:
        """Make a counter."""
        return _Counter(initial)

    def cell(self, name: str, initial: T) -> Cell[T]:
        """Make a cell."""
        return _BareCell(initial) if self.takes_turns else _GuardedCell(initial)

    def ring(self, name: str, size: int, initial: T) -> Ring[T]:
        """Make `size` cells."""
        return _BareRing(size, initial) if self.takes_turns else _GuardedRing(size, initial)

    def fifo(self, name: str) -> Fifo[Any]:
        """Make a queue."""
        return _BareFifo() if self.takes_turns else _GuardedFifo()

    def table(self, name: str) -> Table[Any, Any]:
        """Make a table; its one owner at a time is handed it through another primitive."""
        return _Table()

    def parker(self, name: str) -> Parker:
        """Make a parker."""
        return _Parker()

    def pause(self, seconds: float) -> None:
        """Sleep, which lets other threads run even for zero seconds."""
        time.sleep(seconds)


class _SingleTryLock:
    def __init__(self) -> None:
        mutex = _Mutex()
        self.try_acquire = partial(mutex.acquire, False)
        self.release = mutex.release


class _OpenTryLock:
    def try_acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class _CountingTryLock:
    def __init__(self, permits: int) -> None:
        self._free = permits
        self._mutex = _Mutex()

    def try_acquire(self) -> bool:
        with self._mutex:
            if self._free == 0:
                return False
            self._free -= 1
            return True

    def release(self) -> None:
        with self._mutex:
            self._free += 1


class _Counter:
    def __init__(self, initial: int) -> None:
        self._value = initial
        self._mutex = _Mutex()

    def load(self) -> int:
        with self._mutex:
            return self._value

    def add(self, delta: int) -> int:
        with self._mutex:
            before = self._value
            self._value = before + delta
            return before

    def exchange(self, value: int) -> int:
        with self._mutex:
            before, self._value = self._value, value
            return before


class _BareCell(Generic[T]):
    def __init__(self, initial: T) -> None:
        slot = [initial]
        self.load = partial(slot.__getitem__, 0)
        self.store = partial(slot.__setitem__, 0)


class _GuardedCell(Generic[T]):
    def __init__(self, initial: T) -> None:
        self._value = initial
        self._mutex = _Mutex()

    def load(self) -> T:
        with self._mutex:
            return self._value

    def store(self, value: T) -> None:
        with self._mutex:
            self._value = value


class _BareRing(Generic[T]):
    def __init__(self, size: int, initial: T) -> None:
        slots = [initial] * size
        self.load: Callable[[int], T] = slots.__getitem__
        self.store: Callable[[int, T], None] = slots.__setitem__


class _GuardedRing(Generic[T]):
    def __init__(self, size: int, initial: T) -> None:
        self._slots = [_GuardedCell(initial) for _ in range(size)]

    def load(self, index: int) -> T:
        return self._slots[index].load()

    def store(self, index: int, value: T) -> None:
        self._slots[index].store(value)


class _BareFifo:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self.push = self._items.append
        self.push_front = self._items.appendleft
        self.size = self._items.__len__

    def pop(self) -> Any | Empty:
        try:
            return self._items.popleft()
        except IndexError:
            return EMPTY

    def peek(self, most: int) -> tuple[Any, ...]:
        while True:
            try:
                return tuple(islice(self._items, most))
            except RuntimeError:  # it was changed meanwhile: what it gives else is as of one moment
                continue

    def discard(self, item: object) -> bool:
        try:
            self._items.remove(item)  # comparing ints or strings runs no bytecode, so this is one step
        except ValueError:
            return False
        return True


class _GuardedFifo:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._mutex = _Mutex()

    def push(self, item: object) -> None:
        with self._mutex:
            self._items.append(item)

    def push_front(self, item: object) -> None:
        with self._mutex:
            self._items.appendleft(item)

    def pop(self) -> Any | Empty:
        with self._mutex:
            return self._items.popleft() if self._items else EMPTY

    def peek(self, most: int) -> tuple[Any, ...]:
        with self._mutex:
            return tuple(islice(self._items, most))

    def discard(self, item: object) -> bool:
        with self._mutex:
            if item not in self._items:
                return False
            self._items.remove(item)
            return True

    def size(self) -> int:
        with self._mutex:
            return len(self._items)


class _Table:
    def __init__(self) -> None:
        self._entries: dict[Any, Any] = {}
        self.put = self._entries.__setitem__
        self.size = self._entries.__len__

    def take(self, key: Hashable) -> Any | Empty:
        return self._entries.pop(key, EMPTY)


class _Parker:
    """A mutex that is normally taken: to park is to take it again, to wake is to release it."""

    def __init__(self) -> None:
        self._mutex = _Mutex()
        self._mutex.acquire()

    def park(self, timeout: float | None) -> bool:
        return self._mutex.acquire(timeout=-1 if timeout is None else timeout)

    def unpark(self) -> None:
        with suppress(RuntimeError):  # two wake-ups before one sleep count as one
            self._mutex.release()
