"""Change nothing, ever: the static baseline of every controller."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.elastic.base import Actions, NoState


@dataclass(frozen=True, slots=True)
class Static:
    """Hold no settings."""

    name: ClassVar[str] = "static"

    def start(self) -> NoState:
        return NoState()

    def step(self, state: NoState, statistics: object) -> tuple[NoState, Actions]:
        return state, ()
