"""Check the balance of shards, and its resource-centric twin."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.base import Actions
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics, imbalance
from penstock.lab.baselines import ResourceCentric

CONTROLLER = ShardBalance()


def moves(statistics: ShardStatistics) -> list[tuple[int, int, int]]:
    _, actions = CONTROLLER.step(CONTROLLER.start(), statistics)
    after = apply(statistics, actions).table
    pairs = enumerate(zip(statistics.table, after, strict=True))
    return [(shard, before, then) for shard, (before, then) in pairs if before != then]


def apply(statistics: ShardStatistics, actions: Actions) -> ShardStatistics:
    """Return the shards with the table that was decided: all moves of a step are one decision."""
    tables = [table.tasks for action in actions for table in action.tables]
    assert len(tables) <= 1
    return ShardStatistics(statistics.loads, (*tables, statistics.table)[0], statistics.tasks)


def test_moves_the_one_shard_that_lowers_the_imbalance_most() -> None:
    # Tasks have 10 and 2, mean 6. Moving 4 leaves 6 and 6; moving 1 or 5 leaves more on one of them.
    statistics = ShardStatistics((1.0, 5.0, 4.0, 2.0), (0, 0, 0, 1), 2)
    assert moves(statistics) == [(2, 0, 1)]
    _, actions = CONTROLLER.step(CONTROLLER.start(), statistics)
    assert actions[0].why == "one shard moves: the busiest of two tasks would work 6 s instead of 10 s"
    assert dict(actions[0].numbers)["busiest_of_mean"] == pytest.approx(10 / 6)


def test_a_shard_that_moves_twice_in_one_step_moves_once() -> None:
    # 15, 16 and 4, mean 11.7. Shard 0 (4) goes to task 2, shard 3 (6) too, and shard 0 on to task 0.
    statistics = ShardStatistics((4.0, 9.0, 12.0, 6.0, 4.0), (1, 0, 1, 0, 2), 3)
    assert moves(statistics) == [(0, 1, 0), (3, 0, 2)]
    _, actions = CONTROLLER.step(CONTROLLER.start(), statistics)
    assert actions[0].why == "two shards move: the busiest of three tasks would work 13 s instead of 16 s"


def test_does_nothing_within_the_threshold() -> None:
    # 6 and 4, mean 5: 1.2 exactly.
    assert moves(ShardStatistics((3.0, 3.0, 2.0, 2.0), (0, 0, 1, 1), 2)) == []


def test_of_equal_shards_the_one_with_the_least_state_moves() -> None:
    statistics = ShardStatistics((2.0, 2.0, 2.0, 0.5), (0, 0, 0, 1), 2, state_bytes=(900, 100, 500, 0))
    assert moves(statistics) == [(1, 0, 1)]


def test_a_hot_shard_is_left_alone_and_reported_with_its_keys() -> None:
    keys = (ShardKeys(0, (HotKey("alice", 0.9), HotKey("bob", 0.05))),)
    statistics = ShardStatistics((90.0, 5.0, 5.0, 5.0), (0, 0, 1, 1), 2, hot_keys=keys)
    _, actions = CONTROLLER.step(CONTROLLER.start(), statistics)
    assert moves(statistics) == [(1, 0, 1)]
    assert [(each.what, each.target) for each in actions] == [("table", ""), ("hot_shard", "0")]
    assert actions[1].why == (
        "shard 0 alone has 1.71 times the work of a task, more than 1.2: no table can balance it; "
        "hottest keys: alice (90%), bob (5%)"
    )


def test_the_other_tasks_are_balanced_without_the_hot_one() -> None:
    # Task 0 has only the hot shard. Tasks 1 and 2 have 9 and 1: 4 goes over.
    statistics = ShardStatistics((100.0, 5.0, 4.0, 1.0), (0, 1, 1, 2), 3)
    assert moves(statistics) == [(2, 1, 2)]


def test_shards_of_tasks_that_are_gone_go_to_the_least_busy_heaviest_first() -> None:
    # Tasks 2 and 3 are gone. Shard 3 (5) goes to task 1 (2), then shard 2 (3) to task 0 (4): 7 and 7.
    statistics = ShardStatistics((4.0, 2.0, 3.0, 5.0), (0, 1, 2, 3), 2)
    assert moves(statistics) == [(2, 2, 0), (3, 3, 1)]


def test_new_tasks_fill_with_few_moves() -> None:
    statistics = ShardStatistics((1.0,) * 8, (0,) * 4 + (1,) * 4, 4)
    assert len(moves(statistics)) == 4
    assert imbalance((1.0,) * 8, (0, 0, 1, 1, 2, 2, 3, 3), 4) == 1


def test_resource_centric_makes_the_same_moves_by_repartitioning() -> None:
    statistics = ShardStatistics((1.0, 5.0, 4.0, 2.0), (0, 0, 0, 1), 2)
    _, actions = ResourceCentric().step(ResourceCentric().start(), statistics)
    assert [(each.what, each.tables[0].tasks) for each in actions] == [("repartition", (0, 0, 1, 1))]


def test_zipf_shards_need_few_moves() -> None:
    """Elasticutor's executor: of 256 shards on 8 tasks few move, and a mended table stays."""
    loads = tuple(1 / (1 + (shard * 97) % 256) ** 0.5 for shard in range(256))
    skewed = ShardStatistics(loads, tuple(min(7, shard // 24) for shard in range(256)), 8)
    assert imbalance(skewed.loads, skewed.table, 8) > 1.5
    _, actions = CONTROLLER.step(CONTROLLER.start(), skewed)
    after = apply(skewed, actions)
    assert imbalance(after.loads, after.table, 8) <= 1.2
    assert len(actions) == 1
    assert sum(a != b for a, b in zip(skewed.table, after.table, strict=True)) < 64
    assert moves(after) == []


statistics = st.builds(
    lambda tasks, shards: ShardStatistics(tuple(load for load, _ in shards), tuple(task for _, task in shards), tasks),
    st.integers(1, 12),
    st.lists(st.tuples(st.just(0.0) | st.floats(0.001, 1000), st.integers(0, 15)), max_size=120),
)


@settings(max_examples=300, deadline=None)
@given(statistics)
def test_ends_within_the_threshold_or_with_nothing_left_to_gain(before: ShardStatistics) -> None:
    """Any loads and any table, also with tasks that are gone."""
    _, actions = CONTROLLER.step(CONTROLLER.start(), before)
    after = apply(before, actions)
    assert all(0 <= task < before.tasks for task in after.table)
    # It settles after one step.
    assert moves(after) == []
    sums = [0.0] * before.tasks
    for load, task in zip(after.loads, after.table, strict=True):
        sums[task] += load
    hot = {after.table[int(each.target)] for each in actions if each.what == "hot_shard"}
    rest = [load for task, load in enumerate(sums) if task not in hot]
    if rest and sum(rest) > 0:
        # What is not hot is within the threshold, or no shard can leave the busiest without making another
        # worse.
        mean, top = sum(rest) / len(rest), max(rest)
        smallest = min(
            load for load, task in zip(after.loads, after.table, strict=True) if sums[task] == top and load > 0
        )
        assert top <= 1.2 * mean * (1 + 1e-9) or min(rest) + smallest >= top * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(statistics)
def test_the_busiest_task_never_gets_busier(before: ShardStatistics) -> None:
    valid = ShardStatistics(before.loads, tuple(task % before.tasks for task in before.table), before.tasks)
    _, actions = CONTROLLER.step(CONTROLLER.start(), valid)
    after = apply(valid, actions)
    assert imbalance(after.loads, after.table, after.tasks) <= imbalance(valid.loads, valid.table, valid.tasks) + 1e-9
