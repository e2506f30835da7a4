"""The shards of one operator, for tests that run it by itself."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from penstock.kernels.shards import Shard, due_shards, settle
from penstock.operators.base import Logic

SHARDS = 3


class Held:
    """The shards of one operator; `make_states` makes what a new one keeps its states in."""

    def __init__(self, make_states: Callable[[], MutableMapping[Any, Any]] = dict) -> None:
        self.make_states = make_states
        self.shards: dict[int, Shard] = {}
        self.aside: Any = None

    def get(self, shard: int) -> Shard:
        return self.shards.setdefault(shard, Shard(self.make_states()))

    def due(self, mark: int) -> Iterable[int]:
        return due_shards(self.shards, mark)


class InMemory(Held):
    """Shards that can be shown, and loaded from what was saved of them."""

    def __init__(self, logic: Logic) -> None:
        super().__init__()
        self.logic = logic

    def reload(self) -> None:
        """Save and load, as a shard that moves to another process."""
        settle(self)
        for number, shard in self.shards.items():
            loaded = self.shards[number] = Shard(pickle.loads(pickle.dumps(shard.states)))
            loaded.load_timers(self.logic)

    def shown(self) -> str:
        """Show the states, wherever they are kept."""
        seen = InMemory(self.logic)
        seen.shards = {number: Shard(copy.deepcopy(shard.states)) for number, shard in self.shards.items()}
        if self.aside is not None:
            assert len(self.aside.states()) == len(dict(self.aside.states()))
            self.aside.settle(seen)
        states = {key: state for shard in seen.shards.values() for key, state in shard.states.items()}
        return repr(sorted(states.items(), key=repr))
