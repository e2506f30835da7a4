"""A whole partitioned operator made of the parts: split, queue, part by part, merge, reorder.

This is how an engine puts them together; the result must be that of a loop over the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.order import (
    EMPTY,
    ElasticExecutor,
    HybridQueue,
    PartitionedQueue,
    RealThreads,
    ReorderBuffer,
    SharedQueue,
    SplitBatch,
    split_by_shard,
)
from tests.patience import PATIENCE

Output = tuple[int, int]
"""A key and how many rows of that key there were up to this one."""
SHARDS, WORKERS = 4, 3


@dataclass(frozen=True)
class Part:
    """The rows of one batch that belong to one shard."""

    number: int
    place: int
    keys: tuple[int, ...]
    positions: np.ndarray[Any, np.dtype[np.int64]]
    whole: SplitBatch[tuple[Any, list[Output]], list[Output]]


def merge(parts: Any) -> list[Output]:
    rows = [row for _, outputs in parts for row in outputs]
    return [rows[index] for index in np.argsort(np.concatenate([positions for positions, _ in parts]))]


class Routed:
    """The elastic executor behind the interface of the queues, with a shard moved at every put."""

    def __init__(self, primitives: RealThreads, shards: int) -> None:
        self._executor: ElasticExecutor[Part] = ElasticExecutor(primitives, [0] * shards, WORKERS)
        self._puts = 0

    def put(self, shard: int, part: Part) -> None:
        self._executor.submit(shard, part)
        self._puts += 1
        self._executor.reassign(self._puts % SHARDS, self._puts % WORKERS)

    def work(self, worker: int) -> Iterator[tuple[int, Part]]:
        return self._executor.work(worker)


def run(primitives: RealThreads, make: Any, batches: list[list[int]]) -> list[list[Output]]:
    queue = make(primitives, SHARDS)
    reorder: ReorderBuffer[list[Output]] = ReorderBuffer(primitives, len(batches) + 1)
    states: list[Counter[int]] = [Counter() for _ in range(SHARDS)]
    emitted: list[list[Output]] = []
    done = Event()
    if not batches:
        done.set()

    def emit(batch: list[Output]) -> None:
        emitted.append(batch)
        if len(emitted) == len(batches):
            done.set()

    def split() -> None:
        for number, keys in enumerate(batches):
            parts = split_by_shard(np.array(keys, np.int64) % SHARDS)
            if not parts:
                reorder.send(number, [], emit)  # an empty batch keeps the order moving
                continue
            whole: SplitBatch[Any, list[Output]] = SplitBatch(primitives, len(parts), merge)
            for place, (shard, rows) in enumerate(parts):
                queue.put(shard, Part(number, place, tuple(keys[row] for row in rows), rows, whole))

    def work(worker: int) -> None:
        while not done.is_set():
            for shard, part in queue.work(worker) if make is Routed else queue.work():
                outputs = []
                for key in part.keys:
                    states[shard][key] += 1
                    outputs.append((key, states[shard][key]))
                merged = part.whole.finish(part.place, (part.positions, outputs))
                if merged is not EMPTY:
                    reorder.send(part.number, merged, emit)

    threads = [Thread(target=split, daemon=True)]
    threads += [Thread(target=work, args=(worker,), daemon=True) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    assert done.wait(PATIENCE), f"{len(emitted)} of {len(batches)} batches came out"
    done.set()
    for thread in threads:
        thread.join(PATIENCE)
    return emitted


@pytest.mark.parametrize("gil", [True, False], ids=["bare", "guarded"])
@pytest.mark.parametrize("make", [HybridQueue, PartitionedQueue, SharedQueue, Routed])
@given(batches=st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=30))
@settings(max_examples=15, deadline=None)
def test_it_equals_a_loop_over_the_rows(gil: bool, make: Any, batches: list[list[int]]) -> None:
    seen: Counter[int] = Counter()
    expected: list[list[Output]] = []
    for keys in batches:
        expected.append([])
        for key in keys:
            seen[key] += 1
            expected[-1].append((key, seen[key]))
    assert run(RealThreads(gil=gil), make, batches) == expected
