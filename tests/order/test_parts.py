"""A batch that is split by shard, and put together again."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.order import EMPTY, RealThreads, SplitBatch, split_by_shard


def test_the_last_part_brings_the_merged_batch() -> None:
    batch: SplitBatch[list[int], list[int]] = SplitBatch(RealThreads(), 3, lambda parts: sorted(chain(*parts)))
    assert batch.finish(2, [5]) is EMPTY
    assert batch.finish(0, []) is EMPTY
    assert batch.finish(1, [4, 6]) == [4, 5, 6]


def test_a_batch_without_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="offer its empty result"):
        SplitBatch(RealThreads(), 0, list)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_a_split_keeps_every_row_once_and_in_order(shards: list[int]) -> None:
    parts = split_by_shard(np.array(shards, np.int64))
    assert [shard for shard, _ in parts] == sorted(set(shards))
    for shard, rows in parts:
        assert rows.tolist() == [row for row, where in enumerate(shards) if where == shard]
