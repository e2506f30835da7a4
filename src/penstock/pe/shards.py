"""The state of a keyed operator in memory: shards, each with the state of its keys and their timers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.operators.base import Logic
from penstock.timing import Ticks

Position = tuple[int, ...]


@dataclass
class Shard:
    """The state of one shard of one operator, as it is held in memory."""

    states: dict[Any, Any] = field(default_factory=dict)
    timers: list[tuple[Ticks, Position, int, Any]] = field(default_factory=list)
    touched: set[Any] = field(default_factory=set)
    all_touched: bool = False
    """Set once tracking single keys costs more than writing the whole shard."""
    registered: int = 0
    rows: int = 0
    seconds: float = 0.0

    def load_timers(self, logic: Logic) -> None:
        """Build the heap of timers from the states."""
        self.timers = []
        for key, state in self.states.items():
            for fire, opened in logic.timers(state):
                self.register(fire, opened, key)
        heapq.heapify(self.timers)

    def register(self, fire: Ticks, opened: Position, key: Any) -> None:
        """Add a timer."""
        self.registered += 1
        heapq.heappush(self.timers, (fire, opened, self.registered, key))

    def touch(self, keys: Iterable[Any]) -> None:
        """Note keys whose state changed."""
        if not self.all_touched:
            self.touched.update(keys)
            self.all_touched = 2 * len(self.touched) > len(self.states)


class Shards(Protocol):
    """Where shards come from; loading one may read files."""

    def get(self, shard: int) -> Shard:
        """Return a shard, loaded."""

    def due(self, mark: Ticks) -> Iterable[int]:
        """Return the shards that may have timers at or before a mark."""
