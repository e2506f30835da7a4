"""Find the keys that most of a shard's rows have, from a sample that costs next to nothing.

A key is a value of a row. Whether it is named is decided here, before it goes anywhere: what is shown, logged and
written has it from here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

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
