"""The state of a keyed operator in memory: shards, each with the state of its keys, their timers, and the hottest keys.

A key is a value of a row. Whether it is named is decided here (`HotKeys`), before it goes anywhere: what is shown,
logged and written has it from here.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np

from penstock.kernels.join_states import JoinStates
from penstock.kernels.state_columns import ColumnStates, Ints
from penstock.operators.base import Logic
from penstock.plan.graph import KeyedNode
from penstock.rows.timing import Ticks

Position = tuple[int, ...]

FEW_KEYS = 64
"""As many keys may be there before anybody looks whether some of them are forgotten."""


@dataclass
class Forgetting:
    """Whether an operator forgets keys: its tight loop then leaves None behind, for to look costs every row.

    It is looked for when there are twice as many keys as the last time, so that a key is looked at about once. What was
    left behind until then is no more than the state itself, and stays.
    """

    seen: bool = False
    most_keys: int = FEW_KEYS

    def look(self, states: MutableMapping[Any, Any]) -> None:
        """Look, if it is time to."""
        if self.seen or len(states) <= self.most_keys:
            return
        try:
            found = list(states.values())
            self.most_keys = 2 * len(found)
            if any(state is None for state in found):
                self.seen = True  # and never back: workers of other partitions look, too, and may have seen none
        except RuntimeError:  # another worker added a key of its own meanwhile: the next batch will do
            pass


@dataclass
class Shard:
    """The state of one shard of one operator, as it is held in memory."""

    states: MutableMapping[Any, Any] = field(default_factory=dict)
    timers: list[tuple[Ticks, Position, int, Any]] = field(default_factory=list)
    touched: set[Any] = field(default_factory=set)
    all_touched: bool = False
    """Set once tracking single keys costs more than writing the whole shard."""
    registered: int = 0
    rows: int = 0
    _: KW_ONLY
    seconds: float = 0.0
    forgetting: Forgetting = field(default_factory=Forgetting)

    def begin(self) -> None:
        self.touched, self.all_touched, self.rows, self.seconds = set(), False, 0, 0.0
        if isinstance(self.states, ColumnStates | JoinStates):
            self.states.settle()

    @property
    def in_columns(self) -> bool:
        return isinstance(self.states, ColumnStates) or (
            isinstance(self.states, JoinStates) and not self.states.by_rows
        )

    @property
    def next_timer(self) -> Ticks | None:
        if isinstance(self.states, JoinStates) and not self.states.by_rows:
            return self.states.next_timer
        return self.timers[0][0] if self.timers else None

    def take_apart(self, logic: Logic) -> None:
        """Have states that rows can be taken into one by one."""
        if isinstance(self.states, JoinStates) and not self.states.by_rows:
            self.states.to_rows()
            self.load_timers(logic)
            self.touched, self.all_touched = set(self.states), True

    def load_timers(self, logic: Logic) -> None:
        """Build the heap of timers from the states."""
        self.timers = []
        if isinstance(self.states, JoinStates) and not self.states.by_rows:
            return  # which have their own
        for key, state in self.states.items():
            for fire, opened in logic.timers(state):
                self.register(fire, opened, key)
        heapq.heapify(self.timers)

    def register(self, fire: Ticks, opened: Position, key: Any) -> None:
        self.registered += 1
        heapq.heappush(self.timers, (fire, opened, self.registered, key))

    def touch(self, keys: list[Any], start: int, stop: int) -> None:
        """Note keys whose state changed, those from one index to another; columns note that themselves."""
        if not self.all_touched and not isinstance(self.states, ColumnStates):
            self.touched.update(keys[start:stop])
            self.all_touched = 2 * len(self.touched) > len(self.states)

    def forget(self, keys: list[Any], start: int, stop: int) -> None:
        """Drop what a tight loop left behind of keys that it forgot; those from one index to another are this shard's.

        Others may have the dict, too, but no key in common with it.
        """
        if isinstance(self.states, ColumnStates):
            return  # whose keys are never forgotten
        self.forgetting.look(self.states)
        if self.forgetting.seen:
            for key in set(keys[start:stop]):
                if self.states.get(key) is None:
                    self.states.pop(key, None)


class Aside(Protocol):
    """State of some keys that is kept as columns, and not with the others."""

    def settle(self, shards: Shards) -> None:
        """Put it to the state of its keys, and set its timers."""

    def states(self) -> Mapping[Any, Any]:
        """Return it by key, for one who only looks."""


class Shards(Protocol):
    """Where shards come from; loading one may read files."""

    aside: Any
    """What is kept as columns, an `Aside`, or None: who takes the states of keys has it settled first."""

    def get(self, shard: int) -> Shard:
        """Return a shard, loaded."""

    def due(self, mark: Ticks) -> Iterable[int]:
        """Return the shards that may have timers at or before a mark."""


@dataclass(frozen=True)
class AtWork:
    """A keyed operator at work in one process, for one epoch."""

    node: KeyedNode
    width: int
    """Components of the positions of its input rows."""
    epoch: int
    shards: Shards


def settle(shards: Shards) -> None:
    """Have the states of keys whole, and all timers set."""
    aside, shards.aside = shards.aside, None
    if aside is not None:
        aside.settle(shards)


class Partitions:
    """The shards of some partitions, as a keyed runner asks for them."""

    def __init__(self, shards: dict[int, Shard]) -> None:
        self._shards = shards
        self.aside: Any = None

    def get(self, shard: int) -> Shard:
        return self._shards[shard]

    def due(self, mark: int) -> list[int]:
        return due_shards(self._shards, mark)


def due_shards(shards: Mapping[int, Shard], mark: Ticks) -> list[int]:
    """Return the numbers of the shards with a timer at or before a mark."""
    return [n for n, shard in shards.items() if (fire := shard.next_timer) is not None and fire <= mark]


def shard_order(shards: Ints) -> Ints:
    """Return the order that puts rows of one shard together, each shard's as they were."""
    # NumPy sorts 16 bits by counting, several times as fast as 64 by merging.
    return np.argsort(shards.astype(np.uint16), kind="stable")


SAMPLED_KEYS = 16
"""Keys that are looked at, in all states together, at least one in each."""
BUDGET = 64
"""Objects that are looked at for one key."""


def state_bytes(states: Iterable[Mapping[Any, Any]]) -> int | None:
    """Guess the bytes in memory of all states; None where they changed while they were looked at."""
    total = 0.0
    states = list(states)
    keys = max(1, SAMPLED_KEYS // max(1, len(states)))
    for state in states:
        if isinstance(state, ColumnStates) or (isinstance(state, JoinStates) and not state.by_rows):
            total += state.bytes
            continue
        try:
            sampled = list(islice(state.items(), keys))
        except RuntimeError:  # a worker added a key meanwhile
            return None
        if sampled:
            mean = sum(_size(key) + _size(value) for key, value in sampled) / len(sampled)
            total += sys.getsizeof(state) + len(state) * mean
    return round(total)


def _size(value: Any, budget: int = BUDGET) -> float:
    """Guess the bytes of a value; of long containers only the first elements are looked at."""
    own = float(sys.getsizeof(value, 64))
    if budget <= 1:
        return own
    inside: list[Any] = []
    count = 0
    try:
        if isinstance(value, dict):
            inside, count = [part for pair in islice(value.items(), 8) for part in pair], 2 * len(value)
        elif isinstance(value, (tuple, list, set, frozenset)):
            inside, count = list(islice(value, 8)), len(value)
        elif hasattr(value, "__dict__"):
            inside, count = list(islice(vars(value).values(), 8)), len(vars(value))
    except RuntimeError:  # a worker changed it meanwhile
        return own
    if not inside:
        return own
    return own + count / len(inside) * sum(_size(part, budget // len(inside)) for part in inside)


STRIDE = 8
"""At first every so many-th key is taken."""
SAMPLE = 512
"""A sample of as many keys is thinned to half, and from then on half as many are taken."""
NAMED = 3
LONGEST_NAME = 80
HIDDEN = "hidden"
"""What a key is called where keys are not to be named; the name of a text has quotes around it."""


class Keys(Protocol):
    """The keys of rows."""

    def __getitem__(self, some: slice, /) -> list[Any]:
        """Return those of some rows."""


@dataclass
class _Sample:
    keys: list[Any] = field(default_factory=list)
    stride: int = STRIDE
    skip: int = 0


class HotKeys:
    """Sample the keys of the rows of each shard."""

    def __init__(self, named: bool = False) -> None:
        self._named = named
        self._samples: dict[int, _Sample] = {}

    def add(self, shard: int, keys: Keys, start: int, stop: int) -> None:
        """See the keys from one index to another."""
        found = self._samples.get(shard)
        if found is None:
            found = self._samples[shard] = _Sample()
        first = start + found.skip
        found.keys += keys[first : stop : found.stride]
        # Strides go on from call to call, so that short runs of rows count for what they are.
        found.skip = (first - stop) % found.stride if first < stop else first - stop
        while len(found.keys) > SAMPLE:
            found.keys, found.stride = found.keys[::2], 2 * found.stride

    def hottest(self, shard: int) -> list[tuple[str, float]]:
        """Return the hottest keys of a shard and their shares of its rows, the hottest first; by name if asked for."""
        found = self._samples.get(shard)
        keys = [] if found is None else list(found.keys)  # as of one moment: a worker may be adding to it
        counted = Counter(keys).most_common(NAMED)
        return [(repr(key)[:LONGEST_NAME] if self._named else HIDDEN, count / len(keys)) for key, count in counted]
