"""The routing rules of the elastic executor, without threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.order import ElasticExecutor, RealThreads
from penstock.order.executor import Label, RoutedItem, ShardRouter


def test_a_moving_shard_holds_its_items_until_the_label_is_back() -> None:
    router: ShardRouter[str] = ShardRouter([0, 1])
    assert router.route(RoutedItem(0, "a")) == [(0, RoutedItem(0, "a"))]
    assert router.reassign(0, 1) == [(0, Label(0))]
    assert router.route(RoutedItem(0, "b")) == []
    assert router.route(RoutedItem(1, "x")) == [(1, RoutedItem(1, "x"))]  # other shards never notice
    assert router.labelled(0) == [(1, RoutedItem(0, "b"))]
    assert router.routes == (1, 1)
    assert router.route(RoutedItem(0, "c")) == [(1, RoutedItem(0, "c"))]


def test_a_second_request_changes_the_destination_without_a_second_label() -> None:
    router: ShardRouter[str] = ShardRouter([0])
    assert router.reassign(0, 1) == [(0, Label(0))]
    assert router.reassign(0, 2) == []
    assert router.route(RoutedItem(0, "a")) == []
    assert router.labelled(0) == [(2, RoutedItem(0, "a"))]


def test_a_move_to_where_the_shard_is_does_nothing() -> None:
    assert ShardRouter[str]([3]).reassign(0, 3) == []


def test_a_worker_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        ElasticExecutor(RealThreads(), [0, 2], workers=2)
    with pytest.raises(ValueError, match="no worker 2"):
        ElasticExecutor(RealThreads(), [0, 1], workers=2).reassign(0, 2)


@given(st.data(), st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 2)), max_size=30))
def test_each_shard_is_processed_in_order_by_whoever_has_it(
    data: st.DataObject, events: list[tuple[int, int | None]]
) -> None:
    executor: ElasticExecutor[int] = ElasticExecutor(RealThreads(), [0, 1, 2], workers=3)
    submitted: list[list[int]] = [[], [], []]
    seen: list[list[int]] = [[], [], []]
    for number, (shard, to) in enumerate(events):
        if to is None:
            submitted[shard].append(number)
            executor.submit(shard, number)
        else:
            executor.reassign(shard, to)
        if data.draw(st.booleans()):
            worker = data.draw(st.integers(0, 2))
            items = executor.work(worker)
            for shard_, item in items:
                seen[shard_].append(item)
                break  # one item, then the worker turns to something else
            items.close()
    for _ in range(2 * len(events) + 1):  # a label may send a shard on to a worker that had finished
        for worker in range(3):
            for shard, item in executor.work(worker):
                seen[shard].append(item)
    assert seen == submitted
    assert [executor.waiting(worker) for worker in range(3)] == [0, 0, 0]
