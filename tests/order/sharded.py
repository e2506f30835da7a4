"""Items of shards that workers process, for explorations of whatever brings them there."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.testing.explorer import World

Action = tuple[str, int, int]
"""("submit", shard, item), ("reassign", shard, worker) or ("hand over", shard, 0)."""


class Items:
    """Note what is processed; what is submitted must be, once, in order, by one worker of a shard at a time."""

    def __init__(self, world: World, shards: int, actions: Iterable[list[Action]]) -> None:
        self._submitted = [(shard, item) for some in actions for kind, shard, item in some if kind == "submit"]
        self._processed = [world.log(f"processed[{shard}]") for shard in range(shards)]
        self._inside: set[int] = set()  # not a primitive: who is where follows from where the threads are

    def process(self, shard: int, item: int) -> None:
        """Process an item."""
        assert shard not in self._inside, f"two workers in shard {shard}"
        self._inside.add(shard)
        self._processed[shard].append(item)
        self._inside.remove(shard)

    def check(self) -> None:
        """Look at all that was processed, at the end."""
        for shard, processed in enumerate(self._processed):
            expected = [item for where, item in self._submitted if where == shard]
            assert processed.entries == expected, f"shard {shard}: {processed.entries}"
