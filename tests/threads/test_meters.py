"""The latency of the last batches, summed up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.threads.meters import Latencies

SECONDS = st.lists(st.floats(0, 100), min_size=1, max_size=60)


@given(SECONDS, st.integers(1, 40))
def test_it_is_that_of_the_last_batches_as_numpy_has_it(seconds, kept):
    latencies = Latencies(kept)
    for each in seconds:
        latencies.add(each)
    last = np.sort(seconds[-kept:])
    found = latencies.summary()
    assert found is not None
    assert found.batches == len(last)
    assert [found.p50, found.p99] == pytest.approx(np.quantile(last, [0.5, 0.99]).tolist())


@given(SECONDS)
def test_the_trimmed_mean_leaves_out_the_begin_and_the_end_of_the_run(seconds):
    """Ordered trims by place in the run: slow batches in its middle count, however slow they are."""
    latencies = Latencies(len(seconds))
    for each in seconds:
        latencies.add(each)
    found = latencies.summary()
    assert found is not None
    cut = len(seconds) // 5
    assert found.trimmed_mean == pytest.approx(np.mean(seconds[cut : len(seconds) - cut]))


def test_a_long_run_is_trimmed_as_a_whole():
    """The first fifth of the run is slow and the last one, too, though all that is remembered came after the first."""
    latencies = Latencies(64)
    for batch in range(10_000):
        latencies.add(1.0 if 2_500 < batch < 7_500 else 9.0)
    found = latencies.summary()
    assert found is not None
    assert found.p50 == 9.0
    assert 1.0 <= found.trimmed_mean < 3.0


def test_it_is_summed_up_again_only_when_a_batch_came():
    latencies = Latencies()
    assert latencies.summary() is None
    latencies.add(1.0)
    first = latencies.summary()
    assert latencies.summary() is first
    latencies.add(3.0)
    found = latencies.summary()
    assert found is not None
    assert (found.batches, found.p50) == (2, 2.0)
