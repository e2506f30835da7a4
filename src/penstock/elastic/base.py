"""Define what all controllers share: an action with its reason, and the shape of a controller.

A controller is a frozen dataclass of settings with two methods: `start()` makes its first state, and
`step(state, statistics)` returns the next state and what to do. Both arguments are immutable, nothing reads a
clock or a random source, and what a step returns depends on its arguments alone: the same object therefore
serves the engine, the simulator, the page and the replay of a log.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

Value = int | float | str | bool | None
"""What an action may change: a number, a name, or nothing."""

State = TypeVar("State")
Statistics_contra = TypeVar("Statistics_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Action:
    """Say what to change, from what to what, and why in words and numbers."""

    what: str
    target: str
    before: Value
    after: Value
    why: str


Actions = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class NoState:
    """Hold nothing: what such a controller needs to know is in force, and so in the statistics."""


@runtime_checkable
class Controller(Protocol[State, Statistics_contra]):
    """Turn statistics into actions, one period at a time."""

    name: ClassVar[str]

    def start(self) -> State:
        """Make the state before the first step."""
        ...

    def step(self, state: State, statistics: Statistics_contra) -> tuple[State, Actions]:
        """Return the next state and the actions that these statistics call for."""
        ...


def clamp(value: int, low: int, high: int) -> int:
    """Return the value, or the bound that it exceeds."""
    return max(low, min(high, value))


def percent(part: float) -> str:
    """Write a fraction as a percentage that keeps three significant digits."""
    return f"{100 * part:.3g} %"
