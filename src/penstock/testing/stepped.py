"""Build the primitives of atomic steps on shared objects, so that a controller can decide when each is taken.

Every object keeps its value in a comparable form too, so that two moments of two runs can be recognized as
the same state. Values are kept in plain fields, since steps are taken one at a time.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from penstock.order.primitives import EMPTY


class Access(Enum):
    """What a step does with the value of its object."""

    READ = "the thread learns something, the value stays"
    WRITE = "the value is replaced or extended unseen"
    UPDATE = "the thread learns something and the value may change"


READ, WRITE, UPDATE = Access.READ, Access.WRITE, Access.UPDATE


@dataclasses.dataclass(slots=True, eq=False)
class AtomicStep:
    """One operation on one object, about to be performed."""

    target: Stepped
    name: str
    access: Access
    effect: Callable[[], Any]
    argument: object = EMPTY
    enabled: Callable[[], bool] | None = None
    """Whether the step can be taken now; None stands for always."""
    _: dataclasses.KW_ONLY
    look: Callable[[], Any] | None = None
    """What the step would return if it were taken now; None if nothing is learnt from it."""

    def depends_on(self, other: AtomicStep) -> bool:
        """Say whether the order of the two steps can matter."""
        if self.access is READ and other.access is READ:
            return False
        return self.target is other.target or self.target.everything or other.target.everything

    def __str__(self) -> str:
        argument = "" if self.argument is EMPTY else repr(self.argument)
        return f"{self.target.name}.{self.name}({argument})"


class Stepped:
    """An object whose operations are steps."""

    everything = False
    """Whether this stands for all objects together: what a pause waits for."""

    def __init__(self, perform: Callable[[AtomicStep], Any], name: str, value: Any = None) -> None:
        self.name = name
        self.value = value
        self.identity: tuple[int, int] = (0, 0)
        self.key: Hashable = comparable(value)
        self._perform = perform

    def refresh(self) -> None:
        self.key = comparable(self.value)

    def read(self, name: str, look: Callable[[], Any], enabled: Callable[[], bool] | None = None) -> Any:
        """Take a step that learns something and changes nothing."""
        return self._perform(AtomicStep(self, name, READ, look, enabled=enabled, look=look))

    def write(self, name: str, effect: Callable[[], None], argument: object = EMPTY) -> None:
        """Take a step that changes the value unseen."""
        self._perform(AtomicStep(self, name, WRITE, effect, argument))

    def update(
        self,
        name: str,
        look: Callable[[], Any],
        effect: Callable[[], None],
        argument: object = EMPTY,
        enabled: Callable[[], bool] | None = None,
    ) -> Any:
        """Take a step that learns what `look` shows and then has its effect."""

        def both() -> Any:
            seen = look()
            effect()
            return seen

        return self._perform(AtomicStep(self, name, UPDATE, both, argument, enabled, look=look))

    def set(self, value: Any) -> None:
        """Replace the value: the effect of many steps."""
        self.value = value


_PLAIN = frozenset({type(None), bool, int, float, str})


def comparable(value: Any) -> Hashable:
    """Turn a value into one that equals another exactly if the two are the same to the code under test.

    Containers and dataclasses go by their content, other objects by their `name`; an object with neither
    is refused, for two of them could not be told apart from run to run.
    """
    if type(value) in _PLAIN or isinstance(value, Enum):
        return value  # type: ignore[no-any-return]
    if isinstance(value, (tuple, list, deque)):
        return tuple(comparable(item) for item in value)
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    if isinstance(value, dict):
        return tuple(sorted((comparable(key), comparable(item)) for key, item in value.items()))
    if isinstance(value, Stepped):
        return value.identity
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        content = tuple(comparable(getattr(value, field.name)) for field in dataclasses.fields(value))
        return (type(value).__name__, content)
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return (type(value).__name__, name)
    raise TypeError(f"cannot compare {value!r} between runs: give it a name or make it a dataclass")


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
            assert self.value > 0, f"{self.name} was released by a thread that did not hold it"
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

    def peek(self, most: int) -> tuple[Any, ...]:
        return tuple(self.read("peek", lambda: tuple(islice(self.value, most))))

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
        return self._new(SteppedTryLock(self.perform, name, permits))

    def lock(self, name: str) -> SteppedLock:
        return self._new(SteppedLock(self.perform, name, True))

    def counter(self, name: str, initial: int = 0) -> SteppedCounter:
        return self._new(SteppedCounter(self.perform, name, initial))

    def cell(self, name: str, initial: Any) -> SteppedCell:
        return self._new(SteppedCell(self.perform, name, initial))

    def ring(self, name: str, size: int, initial: Any) -> SteppedRing:
        return SteppedRing([self.cell(f"{name}[{index}]", initial) for index in range(size)])

    def fifo(self, name: str) -> SteppedFifo:
        return self._new(SteppedFifo(self.perform, name, deque()))

    def table(self, name: str) -> SteppedTable:
        return self._new(SteppedTable(self.perform, name, {}))

    def parker(self, name: str) -> SteppedParker:
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
