"""State inside a Python worker: shards are kept from epoch to epoch, and catch up from what they last saw.

A shard in the cache is worth something only if the last file that was applied to it is in the chain that the driver
names: a rerun or failed epoch leaves shards behind that were changed and never committed.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import repeat
from operator import is_
from typing import Any

from penstock.kernels.join_runs import join_form
from penstock.kernels.join_states import JoinStates
from penstock.kernels.running import new_states
from penstock.kernels.shards import HotKeys, Shard, due_shards, settle, state_bytes
from penstock.kernels.state_columns import ColumnStates
from penstock.plan.graph import KeyedNode
from penstock.rows.keys import hash_value
from penstock.rows.timing import Ticks
from penstock.spark.measured import Spent
from penstock.spark.stages import EpochSpec, StatePointers
from penstock.store.state_files import Block, FileReader, apply_block, make_block, write_file

HOT_PART = 0.1
"""A shard with as large a part of its task's rows is worth naming its hottest keys."""
LANE = "PENSTOCK_LANE"
"""A variable of a worker's environment: its lane and how many there are ("0/2"), where tasks stay with their worker."""
OTHERS_BYTES = 256 << 20
"""Memory for shards of the flow that are with another task by now: where they come back, they only catch up."""
LEFT_BYTES = 32 << 20
"""The same in a lane, whose tasks do not change workers: shards come back where a table changes, and back again."""
FLOWS_BYTES = 512 << 20
"""Memory for shards of other flows, which run beside this one."""

Place = tuple[str, str, int]
"""Flow, operator and shard."""


@dataclass
class _Cached:
    version: str | None
    """The last file that was applied; None for a shard that never had one."""
    shard: Shard
    size: int = 0
    """The bytes that it takes in memory, about."""
    sized_at: int = 0
    """How many keys it had when that was found out."""

    def weigh(self, again: bool) -> None:
        """Find out how much memory the shard takes, where it has grown much, or where it is time to look again."""
        keys = len(self.shard.states)
        if again or keys < self.sized_at or keys > self.sized_at + self.sized_at // 4:
            self.size, self.sized_at = state_bytes([self.shard.states]) or self.size, keys


class ShardCache:
    """Shards of all flows of this process: what its own tasks need stays, of the rest the oldest goes first."""

    def __init__(self, others: int = OTHERS_BYTES, flows: int = FLOWS_BYTES) -> None:
        self._others, self._flows = others, flows
        self._shards: OrderedDict[Place, _Cached] = OrderedDict()

    def take(self, key: Place) -> _Cached | None:
        """Take a shard out; it comes back with `put` when its changes are written."""
        return self._shards.pop(key, None)

    def put(self, key: Place, cached: _Cached) -> None:
        self._shards[key] = cached

    def keep_only(self, flows: Collection[str]) -> None:
        """Let go of the shards of flows that are over: Spark's workers outlive a run."""
        for key in [key for key in self._shards if key[0] not in flows]:
            del self._shards[key]

    def trim(self, flow: str, own: dict[str, set[int]], most: int = OTHERS_BYTES) -> None:
        """Drop what there is too much of: shards of a flow that are not its own, and those of other flows."""
        left, elsewhere = min(most, self._others), self._flows
        for key in reversed(list(self._shards)):
            if key[0] != flow:
                elsewhere -= self._shards[key].size
                dropped = elsewhere < 0
            elif key[1] in own and key[2] not in own[key[1]]:
                left -= self._shards[key].size
                dropped = left < 0
            else:
                dropped = False
            if dropped:
                del self._shards[key]

    @property
    def objects(self) -> int:
        """How many keys have states that are objects, about: those of columns are none."""
        return sum(c.sized_at for c in self._shards.values() if not c.shard.in_columns)

    def held(self, flow: str, operator: str, shards: Iterable[int]) -> int:
        """Return the memory that shards of an operator take, about."""
        found = (self._shards.get((flow, operator, shard)) for shard in shards)
        return sum(cached.size for cached in found if cached is not None)


def drop_others(cache: ShardCache, nodes: Iterable[KeyedNode], spec: EpochSpec, task: int) -> None:
    """Make room for what a task will load: others have the newest version of shards that were this worker's."""
    lane, _, lanes = os.environ.get(LANE, "").partition("/")

    def stays(owner: int) -> bool:
        return owner == task or (lanes != "" and owner % int(lanes) == int(lane))

    tasks = {owner for owner in range(max(spec.tasks)) if stays(owner)}
    tables = ((node.name, spec.tables[node.name]) for node in nodes)
    own = {name: {n for n, owner in enumerate(table) if owner in tasks} for name, table in tables}
    cache.keep_only(spec.running)
    cache.trim(spec.flow_id, own, LEFT_BYTES if lanes else OTHERS_BYTES)


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
        self.aside: Any = None

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
        return [*waiting, *due_shards({number: cached.shard for number, cached in self._open.items()}, mark)]

    def _load(self, number: int) -> _Cached:
        chain = [self._pointers.files[i] for i in self._pointers.chains.get(number, ())]
        cached = self._cache.take((self._flow, self._node.name, number))
        if cached is not None and cached.version == (chain[-1] if chain else None):
            cached.shard.begin()
            return cached
        if cached is None or cached.version not in chain:
            cached = _Cached(None, Shard(new_states(self._node)))
        else:
            chain = chain[chain.index(cached.version) + 1 :]
        shard = cached.shard
        for name in chain:
            full, data = self._files.block(name, self._node.name, number)
            if full:
                shard.states.clear()
            shard.states = apply_block(shard.states, data, name)
            cached.version = name
        if join_form(self._node) is None:
            shard.take_apart(self._logic)  # columns of a join that has a function by now
        shard.begin()
        if self._logic.emits == "timed":
            shard.load_timers(self._logic)
        return cached

    def blocks(self) -> list[Block]:
        settle(self)
        blocks = []
        for number, cached in sorted(self._open.items()):
            shard, chain = cached.shard, self._pointers.chains.get(number, ())
            if isinstance(shard.states, ColumnStates):
                touched, keys = shard.states.touched, len(shard.states)
                if touched:
                    full = 2 * touched > keys or number in self._pointers.full or not chain
                    blocks.append(make_block(self._node.name, number, full, shard.states.saved(full), [], keys, None))
                continue
            if isinstance(shard.states, JoinStates) and not shard.states.by_rows:
                if shard.states.touched:
                    full = shard.states.is_mostly_new() or number in self._pointers.full or not chain
                    saved, keys, timer = shard.states.saved(full), len(shard.states), shard.next_timer
                    blocks.append(make_block(self._node.name, number, full, saved, [], keys, timer))
                continue
            if not shard.touched:
                continue
            full = shard.all_touched or number in self._pointers.full or not chain
            written, forgotten = in_fixed_order(shard.states if full else shard.touched), []
            states = list(map(shard.states.get, written))
            changed = dict(zip(written, states, strict=True))
            if any(map(is_, states, repeat(None))):  # a key that the logic has forgotten
                forgotten = [key for key, state in changed.items() if state is None]
                for key in forgotten:
                    shard.states.pop(key, None)
                    del changed[key]
            name, left = self._node.name, [] if full else forgotten
            blocks.append(make_block(name, number, full, changed, left, len(shard.states), shard.next_timer))
        return blocks

    def keep(self, name: str | None, written: dict[int, Block]) -> None:
        """Give the shards back to the cache under the name of the file that holds their changes."""
        for number, cached in self._open.items():
            block = written.get(number)
            if block is not None:
                cached.version = name
            cached.weigh(number in self._pointers.full)
            self._cache.put((self._flow, self._node.name, number), cached)

    def load(self) -> list[tuple[int, int, float]]:
        """Return (shard, rows, seconds) of the shards that had rows."""
        return [
            (number, cached.shard.rows, cached.shard.seconds)
            for number, cached in self._open.items()
            if cached.shard.rows
        ]

    def held(self) -> int:
        """Return the memory that the shards of this task take, about."""
        return self._cache.held(self._flow, self._node.name, self._mine)

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
