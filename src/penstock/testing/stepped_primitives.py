"""Build the primitives so that a controller is asked before every single step: what the explorer uses.

Values are kept in plain fields, since steps are taken one at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from penstock.order.primitives import EMPTY
from penstock.testing.stepped import AtomicStep, Stepped

S = TypeVar("S", bound=Stepped)
T = TypeVar("T")


class SteppedTryLock(Stepped):
    """The value is the number of places taken."""

    def __init__(self, perform: Callable[[AtomicStep], Any], name: str, permits: int | None) -> None:
        super().__init__(perform, name, 0)
        self._permits = permits

    def try_acquire(self) -> bool:
        return bool(self.update("try_acquire", self._has_place, self._take))

    def release(self) -> None:
        self.write("release", self._give)

    def _has_place(self) -> bool:
        return self._permits is None or self.value < self._permits

    def _take(self) -> None:
        if self._permits is not None:  # unlimited holders cannot be told apart, so they are not counted
            self.value += self._has_place()

    def _give(self) -> None:
        if self._permits is not None:
            assert self.value > 0, f"{self.name} was released by somebody who did not hold it"
            self.value -= 1


class SteppedLock(Stepped):
    """The value is whether the lock is free."""

    def acquire(self) -> None:
        self.update("acquire", lambda: None, lambda: self.set(False), enabled=lambda: bool(self.value))

    def release(self) -> None:
        self.write("release", lambda: self.set(True))


class SteppedCounter(Stepped):
    """The value is the count."""

    def load(self) -> int:
        return int(self.read("load", lambda: self.value))

    def add(self, delta: int) -> int:
        return int(self.update("add", lambda: self.value, lambda: self.set(self.value + delta), delta))

    def exchange(self, value: int) -> int:
        return int(self.update("exchange", lambda: self.value, lambda: self.set(value), value))


class SteppedCell(Stepped):
    """The value is the reference."""

    def load(self) -> Any:
        return self.read("load", lambda: self.value)

    def store(self, value: Any) -> None:
        self.write("store", lambda: self.set(value), value)


class SteppedRing:
    """Every slot is an object of its own, so steps on different slots are independent."""

    def __init__(self, slots: Sequence[SteppedCell]) -> None:
        self._slots = slots

    def load(self, index: int) -> Any:
        return self._slots[index].load()

    def store(self, index: int, value: Any) -> None:
        self._slots[index].store(value)


class SteppedFifo(Stepped):
    """The value is a deque."""

    def push(self, item: Any) -> None:
        self.write("push", lambda: self.value.append(item), item)

    def push_front(self, item: Any) -> None:
        self.write("push_front", lambda: self.value.appendleft(item), item)

    def pop(self) -> Any:
        return self.update("pop", lambda: self.value[0] if self.value else EMPTY, self._drop)

    def discard(self, item: Any) -> bool:
        return bool(self.update("discard", lambda: item in self.value, lambda: self._remove(item), item))

    def size(self) -> int:
        return int(self.read("size", lambda: len(self.value)))

    def _drop(self) -> None:
        if self.value:
            self.value.popleft()

    def _remove(self, item: Any) -> None:
        if item in self.value:
            self.value.remove(item)


class SteppedTable(Stepped):
    """The value is a dict."""

    def put(self, key: Hashable, value: Any) -> None:
        self.write("put", lambda: self.value.__setitem__(key, value), key)

    def take(self, key: Hashable) -> Any:
        return self.update("take", lambda: self.value.get(key, EMPTY), lambda: self._drop(key), key)

    def size(self) -> int:
        return int(self.read("size", lambda: len(self.value)))

    def _drop(self, key: Hashable) -> None:
        self.value.pop(key, None)


class SteppedParker(Stepped):
    """The value is whether a wake-up is there. Time-outs never strike: polling must not hide a lost one."""

    def park(self, timeout: float | None) -> bool:
        woken = self.update("park", lambda: True, lambda: self.set(False), enabled=lambda: bool(self.value))
        return bool(woken)

    def unpark(self) -> None:
        self.write("unpark", lambda: self.set(True))


class SteppedLog(Stepped):
    """The value is a list that threads append to and the final check reads."""

    def append(self, item: Any) -> None:
        self.write("append", lambda: self.value.append(item), item)

    @property
    def entries(self) -> list[Any]:
        """All that was appended, in order."""
        return list(self.value)


class SteppedPrimitives(ABC):
    """Make primitives whose steps are given to `perform`, and know the value of all of them."""

    takes_turns = False

    def __init__(self) -> None:
        self._objects: list[Stepped] = []
        self._made: dict[int, int] = {}
        self.whole = self._new(Stepped(self.perform, "world"))
        self.whole.everything = True

    @abstractmethod
    def perform(self, step: AtomicStep) -> Any:
        """Take a step, now or later, and return its result."""

    @abstractmethod
    def maker(self) -> int:
        """Return a number for the thread that is running."""

    def values(self) -> Hashable:
        """Return the values of all objects in comparable form."""
        return tuple(made.key for made in self._objects)

    def log(self, name: str) -> SteppedLog:
        """Make a log that threads append to and the check reads; appending is a step like any other."""
        return self._new(SteppedLog(self.perform, name, []))

    def expose(self, thing: T, *names: str) -> T:
        """Make each read and each write of these attributes a step of its own, as they are for threads without a GIL.

        For what several threads share that is no primitive: `thing.count += 1` is then a read and a write.
        """
        cells = {name: self.cell(f"{type(thing).__name__}.{name}", getattr(thing, name)) for name in names}
        ways: dict[str, Any] = {name: _stepped_property(cell) for name, cell in cells.items()}
        thing.__class__ = type(type(thing).__name__, (type(thing),), ways)
        return thing

    def try_lock(self, name: str, permits: int | None = 1) -> SteppedTryLock:
        """Make a try-lock."""
        return self._new(SteppedTryLock(self.perform, name, permits))

    def lock(self, name: str) -> SteppedLock:
        """Make a waiting lock."""
        return self._new(SteppedLock(self.perform, name, True))

    def counter(self, name: str, initial: int = 0) -> SteppedCounter:
        """Make a counter."""
        return self._new(SteppedCounter(self.perform, name, initial))

    def cell(self, name: str, initial: Any) -> SteppedCell:
        """Make a cell."""
        return self._new(SteppedCell(self.perform, name, initial))

    def ring(self, name: str, size: int, initial: Any) -> SteppedRing:
        """Make `size` cells."""
        return SteppedRing([self.cell(f"{name}[{index}]", initial) for index in range(size)])

    def fifo(self, name: str) -> SteppedFifo:
        """Make a queue."""
        return self._new(SteppedFifo(self.perform, name, deque()))

    def table(self, name: str) -> SteppedTable:
        """Make a table."""
        return self._new(SteppedTable(self.perform, name, {}))

    def parker(self, name: str) -> SteppedParker:
        """Make a parker."""
        return self._new(SteppedParker(self.perform, name, False))

    def _new(self, made: S) -> S:
        # An object is known by who made it and as which, so that it has one identity in every schedule.
        maker = self.maker()
        self._made[maker] = self._made.get(maker, 0) + 1
        made.identity = (maker, self._made[maker])
        self._objects.append(made)
        self._objects.sort(key=lambda known: known.identity)
        return made


def _stepped_property(cell: SteppedCell) -> property:
    return property(lambda _: cell.load(), lambda _, value: cell.store(value))
