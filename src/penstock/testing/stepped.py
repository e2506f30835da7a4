"""Describe one atomic step on one shared object, so that a controller can decide when it is taken.

Every object keeps its value in a comparable form too, so that two moments of two runs can be recognized as
the same state.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

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
        """Bring the comparable value up to date."""
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
