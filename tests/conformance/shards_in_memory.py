"""The shards of one operator, for tests that run it by itself."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

from penstock.kernels.shards import Shard
from penstock.operators.base import Logic

SHARDS = 3


class InMemory:
    """The shards of one operator."""

    def __init__(self, logic: Logic) -> None:
        self.logic = logic
        self.shards: dict[int, Shard] = {}

    def get(self, shard: int) -> Shard:
        return self.shards.setdefault(shard, Shard())

    def due(self, mark: int) -> Iterable[int]:
        return [number for number, shard in self.shards.items() if shard.timers and shard.timers[0][0] <= mark]

    def reload(self) -> None:
        """Save and load, as a shard that moves to another process."""
        for number, shard in self.shards.items():
            loaded = self.shards[number] = Shard(pickle.loads(pickle.dumps(shard.states)))
            loaded.load_timers(self.logic)

    def shown(self) -> str:
        states = {key: state for shard in self.shards.values() for key, state in shard.states.items()}
        return repr(sorted(states.items()))
