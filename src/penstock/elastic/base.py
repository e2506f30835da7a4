"""Define what all controllers share: an action with its reason, and the shape of a controller.

A controller is a frozen dataclass of settings with two methods: `start()` makes its first state, and
`step(state, statistics)` returns the next state and what to do. Both arguments are immutable, nothing reads a
clock or a random source, and what a step returns depends on its arguments alone: the same object therefore
serves the engine, the simulator, the page and the replay of a log.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

Value = int | float | str | bool | None
"""What an action may change: a number, a name, or nothing."""

State = TypeVar("State")
Statistics_contra = TypeVar("Statistics_contra", contravariant=True)


Figures = tuple[tuple[str, float], ...]
"""What a reason was weighed by: a name and a number each."""


@dataclass(frozen=True, slots=True)
class ShardTable:
    """Say which task, or replica, has each shard of an operator."""

    operator: str
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """Say what to change, from what to what, and why: in a sentence for a person, with the numbers beside it."""

    what: str
    target: str
    before: Value
    after: Value
    why: str
    numbers: Figures = ()
    _: KW_ONLY
    tables: tuple[ShardTable, ...] = ()
    """The tables that go with it, where shards change hands."""


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
    return max(low, min(high, value))


_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def things(number: int, noun: str) -> str:
    """Write a number of things as a person would: one task, two tasks, 16 tasks."""
    return f"{in_words(number)} {noun}{'' if number == 1 else 's'}"


def instead(after: int, before: int, noun: str) -> str:
    """Write a change: two tasks instead of one."""
    return f"{things(after, noun)} instead of {in_words(before)}"


def in_words(number: int) -> str:
    return _WORDS[number] if 0 <= number < len(_WORDS) else f"{number:,}"


def time_text(seconds: float) -> str:
    """Write a time in the unit in which a person would say it, with two significant digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.0995 * size or unit == "µs" or seconds == 0:
            break
    return f"{seconds / size:.2g} {unit}" if seconds < 99.5 * size else f"{seconds / size:,.0f} {unit}"


def percent(part: float) -> str:
    """Write a fraction as a percentage that keeps three significant digits."""
    return f"{100 * part:.3g} %"
