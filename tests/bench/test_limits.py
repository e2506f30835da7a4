"""What the benchmarks of limits and of large state work out themselves."""

from __future__ import annotations

import numpy as np
import pytest

from bench import limits
from bench.large_state import FEW, Rows


def test_the_lowest_limit_counts() -> None:
    speeds = {
        "w1_threads_function": [50.0, 60.0, 70.0],
        "loop": [100.0] * 3,
        "read": [80.0] * 3,
        "w1_spark_function": [90.0],
    }
    rows = {row["workload"]: row for row in limits.table(speeds, seed=1)}
    assert rows["w1_threads_function"]["limit"] == "read"
    assert rows["w1_threads_function"]["fraction"] == pytest.approx(0.75)
    assert rows["w1_spark_function"]["limits"] == {"2 x loop": 200, "read": 80}


def test_a_workload_without_a_limit_is_left_out() -> None:
    assert limits.table({"session_declared": [1.0]}, seed=1) == []


def test_the_same_keys_are_touched_with_few_keys_and_with_all() -> None:
    keys, touching = 1000, 300
    made = Rows(keys, touching)
    # Whatever the epochs are cut from.
    found = np.concatenate([made(at, at + 100)["key"].to_numpy() for at in range(0, made.rows, 100)])
    few = keys // FEW
    assert len(set(found.tolist())) == keys
    assert len(set(found[:few].tolist())) == few
    assert (found[few : few + touching] == found[-touching:]).all()
    assert set(found[few : few + touching].tolist()) == set(found[:few].tolist())
    assert len(set(found[few + touching : keys + touching].tolist())) == keys - few
