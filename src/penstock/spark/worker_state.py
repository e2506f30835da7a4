"""State inside a Python worker: shards are kept from epoch to epoch, and catch up from what they last saw.

A shard in the cache is worth something only if the last file that was applied to it is in the chain that the driver
names: a rerun or failed epoch leaves shards behind that were changed and never committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.kernels.hot_keys import HotKeys
from penstock.kernels.running import new_states
from penstock.kernels.shards import Shard
from penstock.kernels.state_columns import ColumnStates
from penstock.plan.graph import KeyedNode
from penstock.rows.keys import hash_value
from penstock.rows.timing import Ticks
from penstock.spark.spent import Spent
from penstock.spark.stages import EpochSpec, StatePointers
from penstock.store.state_files import Block, FileReader, apply_block, make_block, write_file

CACHE_BYTES = 512 << 20
HOT_PART = 0.1
"""A shard with as large a part of its task's rows is worth naming its hottest keys."""


@dataclass
class _Cached:
    version: str | None
    """The last file that was applied; None for a shard that never had one."""
    shard: Shard
    size: int


class ShardCache:
    """Shards of all flows of this process, the least recently used dropped first."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit, self._size = limit, 0
        self._shards: OrderedDict[tuple[str, str, int], _Cached] = OrderedDict()

    def take(self, key: tuple[str, str, int]) -> _Cached | None:
        """Take a shard out; it comes back with `put` when its changes are written."""
        found = self._shards.pop(key, None)
        if found is not None:
            self._size -= found.size
        return found

    def put(self, key: tuple[str, str, int], cached: _Cached) -> None:
        """Keep a shard, and drop old ones where there are too many."""
        self._shards[key] = cached
        self._size += cached.size
        while self._size > self._limit and len(self._shards) > 1:
            _, old = self._shards.popitem(last=False)
            self._size -= old.size


CACHE = ShardCache()


class OperatorShards:
    """The shards of one operator in one task and epoch."""

    def __init__(
        self,
        node: KeyedNode,
        spec: EpochSpec,
        task: int,
        cache: ShardCache,
        files: FileReader,
        spent: Spent | None = None,
    ) -> None:
        self._node, self._logic = node, node.operator.logic
        self._pointers = spec.state.get(node.name, StatePointers())
        self._flow, self._cache, self._files = spec.flow_id, cache, files
        self._mine = {shard for shard, owner in enumerate(spec.tables[node.name]) if owner == task}
        self._open: dict[int, _Cached] = {}
        self._spent = spent or Spent()
        self.hot = HotKeys(spec.name_keys)

    def get(self, shard: int) -> Shard:
        """Return a shard, caught up with what was committed."""
        found = self._open.get(shard)
        if found is None:
            with self._spent.on("state"):
                found = self._open[shard] = self._load(shard)
        return found.shard

    def due(self, mark: Ticks) -> Iterable[int]:
        """Return the shards of this task with a timer at or before a mark."""
        waiting = [
            shard
            for shard, fire in self._pointers.due.items()
            if fire <= mark and shard in self._mine and shard not in self._open
        ]
        ready = [
            shard for shard, cached in self._open.items() if cached.shard.timers and cached.shard.timers[0][0] <= mark
        ]
        return [*waiting, *ready]

    def _load(self, number: int) -> _Cached:
        chain = [self._pointers.files[i] for i in self._pointers.chains.get(number, ())]
        cached = self._cache.take((self._flow, self._node.name, number))
        if cached is not None and cached.version == (chain[-1] if chain else None):
            cached.shard.begin()
            return cached
        shard, size = Shard(new_states(self._node)), 0
        if cached is not None and cached.version in chain:
            shard, size = cached.shard, cached.size
            chain = chain[chain.index(cached.version) + 1 :]
        for name in chain:
            full, data = self._files.block(name, self._node.name, number)
            if full:
                shard.states.clear()
                size = 0
            apply_block(shard.states, data, name)
            size += len(data)
        shard.begin()
        if self._logic.emits == "timed":
            shard.load_timers(self._logic)
        return _Cached(chain[-1] if chain else (cached.version if cached else None), shard, size)

    def blocks(self) -> list[Block]:
        blocks = []
        for number, cached in sorted(self._open.items()):
            shard, chain = cached.shard, self._pointers.chains.get(number, ())
            if isinstance(shard.states, ColumnStates):
                touched, keys = shard.states.touched, len(shard.states)
                if touched:
                    full = 2 * touched > keys or number in self._pointers.full or not chain
                    blocks.append(make_block(self._node.name, number, full, shard.states.saved(full), [], keys, None))
                continue
            # A state of None is a key that the logic has forgotten.
            forgotten = [key for key in shard.touched if shard.states.get(key) is None]
            if shard.all_touched:
                forgotten = [key for key, state in shard.states.items() if state is None]
            for key in forgotten:
                shard.states.pop(key, None)
            if not shard.touched:
                continue
            full = shard.all_touched or number in self._pointers.full or not chain
            kept = shard.states if full else [key for key in shard.touched if key in shard.states]
            changed = {key: shard.states[key] for key in in_fixed_order(kept)}
            timer = shard.timers[0][0] if shard.timers else None
            blocks.append(
                make_block(
                    self._node.name,
                    number,
                    full,
                    changed,
                    [] if full else in_fixed_order(forgotten),
                    len(shard.states),
                    timer,
                )
            )
        return blocks

    def keep(self, name: str | None, written: dict[int, Block]) -> None:
        """Give the shards back to the cache under the name of the file that holds their changes."""
        for number, cached in self._open.items():
            block = written.get(number)
            if block is not None:
                cached.version = name
                cached.size = len(block.data) if block.full else cached.size + len(block.data)
            self._cache.put((self._flow, self._node.name, number), cached)

    def load(self) -> list[tuple[int, int, float]]:
        """Return (shard, rows, seconds) of the shards that had rows."""
        return [
            (number, cached.shard.rows, cached.shard.seconds)
            for number, cached in self._open.items()
            if cached.shard.rows
        ]

    def hot_keys(self) -> dict[int, list[tuple[str, float]]]:
        """Return the hottest keys of the shards that are a large part of this task's rows, and their shares."""
        loads = self.load()
        large = HOT_PART * sum(rows for _, rows, _ in loads)
        return {number: self.hot.hottest(number) for number, rows, _ in loads if rows >= large}


def write_state(spec: EpochSpec, operators: dict[str, OperatorShards]) -> tuple[str | None, list[Block]]:
    """Write what all operators of a task changed as one file, and give the shards back to the cache."""
    found = {name: shards.blocks() for name, shards in operators.items()}
    blocks = [block for part in found.values() for block in part]
    name = write_file(f"{spec.checkpoint}/state", spec.epoch, spec.fence, blocks) if blocks else None
    for operator, shards in operators.items():
        shards.keep(name, {block.shard: block for block in found[operator]})
    return name, blocks


def in_fixed_order(keys: Iterable[Any]) -> list[Any]:
    """Sort keys, so that a retried task writes the same bytes whatever its cache had seen."""
    listed = list(keys)
    try:
        return sorted(listed)
    except TypeError:
        return sorted(listed, key=hash_value)
