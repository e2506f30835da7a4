"""Check the shipped queues of partitioned operators in virtual time, and what sets the hybrid one apart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lab.sim.partitioned import Load, MakeQueue, run_partitioned
from penstock.order.queues import HybridQueue, PartitionedQueue, SharedQueue

QUEUES: list[MakeQueue] = [HybridQueue, PartitionedQueue, SharedQueue]


@pytest.mark.parametrize("make", QUEUES)
@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 300), st.integers(1, 20), st.floats(0, 2), st.integers(1, 12), st.integers(1, 64), st.integers(0, 99)
)
def test_everything_leaves_in_order_and_a_shard_has_one_worker(
    make: MakeQueue, items: int, shards: int, skew: float, workers: int, ahead: int, seed: int
) -> None:
    run = run_partitioned(make, Load(items, shards, skew, seed=seed), workers=workers, ahead=ahead)
    assert run.left == tuple(range(items))
    assert run.overlaps == 0


@pytest.mark.parametrize("make", QUEUES)
def test_times_by_hand(make: MakeQueue) -> None:
    # One shard is one worker's, however many there are; outputs of one worker need not wait.
    one = run_partitioned(make, Load(items=100, shards=1, cost=0.01), workers=4)
    assert one.seconds == pytest.approx(1.0)
    assert one.waited == 0.0


def test_the_hybrid_queue_is_as_fast_as_the_partitioned_one_and_outputs_wait_less() -> None:
    """Ordered's point: the shared queue leaves workers idle, the partitioned one fills the reorder buffer."""
    load = Load(skew=0.5)
    hybrid, partitioned, shared = (run_partitioned(make, load, workers=8) for make in QUEUES)
    # Eight workers need at least 2,000 / 8 ms.
    assert hybrid.seconds <= 1.1 * 0.25
    assert hybrid.seconds <= 1.05 * partitioned.seconds
    assert shared.seconds > 1.2 * hybrid.seconds
    assert hybrid.waited < 0.1 * partitioned.waited
