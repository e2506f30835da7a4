"""Split a batch by shard, and put it together again.

A partitioned operator cuts batch `n` into parts, and several workers process them. The batch's slot in the
reorder buffer is filled once, by the worker that finishes the last part, with the rows merged by position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.order.primitives import EMPTY, Empty, Primitives, Ring

P = TypeVar("P")
T = TypeVar("T")


class SplitBatch(Generic[P, T]):
    """Collect the results of a batch's parts and merge them when the last one is in.

    A batch without rows has no parts and would never be finished: who splits the batch must offer the
    empty result itself, so zero parts are refused here.
    """

    def __init__(self, primitives: Primitives, parts: int, merge: Callable[[Sequence[P]], T]) -> None:
        if parts < 1:
            raise ValueError("a batch without parts is finished at once: offer its empty result instead")
        self._parts = parts
        self._merge = merge
        self._results: Ring[P | Empty] = primitives.ring("results", parts, EMPTY)
        self._missing = primitives.counter("missing", parts)

    def finish(self, part: int, result: P) -> T | Empty:
        """Hand in one part's result; the last one gets the merged batch, the others `EMPTY`.

        The result is stored before the count goes down, so the one that brings it to zero finds them all.
        """
        self._results.store(part, result)
        if self._missing.add(-1) > 1:
            return EMPTY
        results = [self._results.load(index) for index in range(self._parts)]
        return self._merge([result for result in results if result is not EMPTY])


def split_by_shard(shards: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return, for each shard that occurs, the indices of its rows in their original order."""
    if not len(shards):
        return []
    # NumPy sorts 16 bits by counting, several times as fast as 64 by merging.
    order = np.argsort(shards.astype(np.uint16) if shards.max() < 2**16 else shards, kind="stable")
    grouped = shards[order]
    starts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
    parts = np.split(order, starts[1:])
    return [(int(grouped[start]), part) for start, part in zip(starts, parts, strict=True)]
