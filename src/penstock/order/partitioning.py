"""Map keys to shards, by hash or by range, and split a batch accordingly.

Shards bound the parallelism of a partitioned operator and are fixed for its life; which worker, task or
executor serves a shard is decided elsewhere and may change at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

K_contra = TypeVar("K_contra", contravariant=True)
_UNSIGNED = 0xFFFF_FFFF_FFFF_FFFF


class Partitioning(Protocol[K_contra]):
    """Map a key to one of a fixed number of shards."""

    @property
    def shards(self) -> int:
        """The number of shards."""

    def shard(self, key: K_contra) -> int:
        """Map one key."""

    def shards_of(self, keys: Sequence[K_contra] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Map many keys at once."""


@dataclass(frozen=True, slots=True)
class HashPartitioning:
    """Spread keys by a 64-bit hash that is already canonical: the same in every process, engine and run.

    This class never hashes: `hash()` differs between processes, so the caller brings the key's own hash.
    """

    shards: int

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ValueError(f"a partitioned operator needs at least one shard, not {self.shards}")

    def shard(self, key: int) -> int:
        """Map one hash; a signed one counts as the unsigned number with the same bits."""
        return (key & _UNSIGNED) % self.shards

    def shards_of(self, keys: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Map an array of signed or unsigned 64-bit hashes."""
        unsigned = (key & _UNSIGNED for key in keys)
        hashes = keys if isinstance(keys, np.ndarray) else np.fromiter(unsigned, np.uint64, len(keys))
        if hashes.dtype.kind not in "iu" or hashes.dtype.itemsize != 8:
            raise TypeError(f"hashes must be 64-bit integers, not {hashes.dtype}")
        return (hashes.astype(np.uint64, copy=False) % np.uint64(self.shards)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class RangePartitioning:
    """Keep neighbouring keys together: shard i has the keys from bounds[i-1] up to below bounds[i]."""

    bounds: tuple[Any, ...]

    def __post_init__(self) -> None:
        for low, high in zip(self.bounds, self.bounds[1:], strict=False):
            if not low < high:
                raise ValueError(f"range bounds must increase: {low!r} comes before {high!r}")

    @classmethod
    def from_sample(cls, keys: Iterable[Any], shards: int) -> RangePartitioning:
        """Choose bounds that cut a sample of keys into equal parts, fewer if the sample repeats itself."""
        ordered = sorted(keys)
        cuts = [ordered[len(ordered) * i // shards] for i in range(1, shards)] if ordered else []
        # A key as heavy as two parts gives the same bound twice; a bound at the minimum cuts nothing off.
        return cls(tuple(sorted({cut for cut in cuts if cut > ordered[0]})))

    @property
    def shards(self) -> int:
        """The number of shards: one more than there are bounds."""
        return len(self.bounds) + 1

    def shard(self, key: Any) -> int:
        """Map one key."""
        return bisect_right(self.bounds, key)

    def shards_of(self, keys: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Map many keys at once; arrays of numbers are mapped without a Python loop."""
        if isinstance(keys, np.ndarray) and keys.dtype.kind in "iuf":
            return np.searchsorted(np.asarray(self.bounds), keys, side="right").astype(np.int64)
        return np.fromiter((self.shard(key) for key in keys), np.int64, len(keys))


def split_by_shard(shards: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return, for each shard that occurs, the indices of its rows in their original order."""
    if not len(shards):
        return []
    order = np.argsort(shards, kind="stable")
    grouped = shards[order]
    starts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
    parts = np.split(order, starts[1:])
    return [(int(grouped[start]), part) for start, part in zip(starts, parts, strict=True)]
