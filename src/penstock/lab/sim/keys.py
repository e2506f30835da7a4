"""Make skewed keys whose popularity changes: Elasticutor's micro-benchmark (section 5.1)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def sum_by(index: Indices, values: Vector, size: int) -> Vector:
    return np.asarray(np.bincount(index, weights=values, minlength=size), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class KeySpace:
    """Hold how many keys there are, how skewed they are, and over how many shards they are hashed."""

    keys: int = 10_000
    skew: float = 0.5
    shards: int = 8192


class ShardPopularity:
    """Give each shard's part of the tuples; a shuffle deals the frequencies out anew among the keys."""

    def __init__(self, space: KeySpace, seed: int) -> None:
        """Hash the keys to shards, once, and deal out the frequencies a first time."""
        self._space = space
        self._random = np.random.default_rng(seed)
        frequencies = 1.0 / np.arange(1, space.keys + 1) ** space.skew
        self._frequencies = frequencies / frequencies.sum()
        self._shard_of_key = self._random.integers(0, space.shards, space.keys)
        self.shares: Vector = np.zeros(space.shards)
        self.shuffle()

    def shuffle(self) -> None:
        """Apply a random permutation to the frequencies of the keys."""
        dealt = self._random.permutation(self._frequencies)
        self.shares = sum_by(self._shard_of_key, dealt, self._space.shards)
