"""Draw numbers that depend on the row alone, so that a stream is the same however it is cut."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.lab.workloads.scatter import GOLDEN, MASK, mixed

Numbers = npt.NDArray[np.int64]
Uniform = npt.NDArray[np.float64]


def stream_seed(seed: int, stream: int) -> int:
    """Return where one stream of draws begins; streams of one seed are independent."""
    return int(mixed((mixed(seed & MASK) + GOLDEN * (stream + 1)) & MASK))


def uniform(row: int, seed: int, stream: int = 0) -> float:
    return float((mixed((row + stream_seed(seed, stream)) & MASK) >> 11) / (1 << 53))


def uniforms(rows: Numbers, seed: int, stream: int = 0) -> Uniform:
    """Draw from [0, 1) for many rows: what `uniform` gives for each."""
    bits = mixed(rows.astype(np.uint64) + np.uint64(stream_seed(seed, stream)))
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) / (1 << 53), dtype=np.float64)


def normals(rows: Numbers, seed: int, stream: int = 0) -> Uniform:
    """Draw from the standard normal distribution for many rows (Box and Muller)."""
    radius = np.sqrt(-2 * np.log(1 - uniforms(rows, seed, 2 * stream)))
    return np.asarray(radius * np.cos(2 * np.pi * uniforms(rows, seed, 2 * stream + 1)), dtype=np.float64)


def copies(row: int, selectivity: float, seed: int) -> int:
    """Return how many rows an operator makes of this one: the selectivity on average."""
    whole = int(selectivity)
    return whole + (uniform(row, seed) < selectivity - whole)


class ZipfKeys:
    """Draw keys whose frequencies follow Zipf's law, and change hands every so many rows: Elasticutor's shuffles."""

    def __init__(self, keys: int, skew: float, seed: int, shuffle_rows: int = 0) -> None:
        """Make so many keys; a `shuffle_rows` of 0 never shuffles."""
        if keys < 1:
            raise ValueError(f"keys={keys}; there must be at least one")
        self._keys, self._seed, self._shuffle_rows = keys, seed, shuffle_rows
        weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
        self._cumulative = np.cumsum(weights) / weights.sum()

    def __call__(self, rows: Numbers) -> Numbers:
        ranks = np.searchsorted(self._cumulative, uniforms(rows, self._seed, 0), side="right").clip(max=self._keys - 1)
        if not self._shuffle_rows:
            return np.asarray(self._dealt(0)[ranks], dtype=np.int64)
        rounds = rows // self._shuffle_rows
        found = np.empty(len(rows), dtype=np.int64)
        for number in np.unique(rounds).tolist():
            mine = rounds == number
            found[mine] = self._dealt(number)[ranks[mine]]
        return found

    def _dealt(self, number: int) -> Numbers:
        """Return which key has which rank after so many shuffles."""
        return np.random.default_rng([self._seed, number]).permutation(self._keys).astype(np.int64)
