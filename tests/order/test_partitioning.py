"""Keys to shards, and the split of a batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.order import HashPartitioning, RangePartitioning, split_by_shard


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 300))
def test_a_hash_has_one_shard_however_it_is_given(hashes: list[int], shards: int) -> None:
    partitioning = HashPartitioning(shards)
    one_by_one = [partitioning.shard(value) for value in hashes]
    assert all(0 <= shard < shards for shard in one_by_one)
    assert partitioning.shards_of(hashes).tolist() == one_by_one
    assert partitioning.shards_of(np.array(hashes, np.int64)).tolist() == one_by_one
    assert partitioning.shards_of(np.array(hashes, np.int64).view(np.uint64)).tolist() == one_by_one


def test_hashes_that_are_not_64_bits_wide_are_refused() -> None:
    with pytest.raises(TypeError, match="64-bit"):
        HashPartitioning(4).shards_of(np.array([1.5]))
    with pytest.raises(ValueError, match="at least one shard"):
        HashPartitioning(0)


def test_a_bound_belongs_to_the_shard_above_it() -> None:
    partitioning = RangePartitioning((10, 20))
    assert partitioning.shards == 3
    keys = [9, 10, 19, 20, 21]
    assert [partitioning.shard(key) for key in keys] == [0, 1, 1, 2, 2]
    assert partitioning.shards_of(np.array(keys)).tolist() == [0, 1, 1, 2, 2]
    assert RangePartitioning(("h", "p")).shards_of(["a", "h", "z"]).tolist() == [0, 1, 2]


def test_bounds_must_increase() -> None:
    with pytest.raises(ValueError, match="20 comes before 20"):
        RangePartitioning((10, 20, 20))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 8))
def test_bounds_from_a_sample_leave_no_shard_empty(sample: list[int], shards: int) -> None:
    partitioning = RangePartitioning.from_sample(sample, shards)
    assert partitioning.shards <= shards
    assert {partitioning.shard(key) for key in sample} == set(range(partitioning.shards))


def test_bounds_from_a_sample_cut_it_evenly() -> None:
    assert RangePartitioning.from_sample(range(100), 4).bounds == (25, 50, 75)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_a_split_keeps_every_row_once_and_in_order(shards: list[int]) -> None:
    parts = split_by_shard(np.array(shards, np.int64))
    assert [shard for shard, _ in parts] == sorted(set(shards))
    for shard, rows in parts:
        assert rows.tolist() == [row for row, where in enumerate(shards) if where == shard]
