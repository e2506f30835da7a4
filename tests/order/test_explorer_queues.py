"""The queues of a partitioned operator, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any

import pytest

from penstock.order.primitives import EMPTY, Primitives
from penstock.order.queues import LOOK_AT_ONCE, LOOK_IN_TURN, HybridQueue, PartitionedQueue, SharedQueue, Visitor
from penstock.order.threads import RealThreads
from penstock.testing.explorer import Program, World, explore

Item = tuple[int, str]
Queue = Callable[[Primitives, int], Any]
A, B, C, D = "abcd"


def consuming(
    make: Queue,
    before: Sequence[Item],
    *later: Sequence[Item],
    slice_: int | None = None,
    homes: Sequence[int] | None = None,
    once: bool = False,
) -> Callable[[World], Program]:
    """Let each thread put its items and then work until nothing is left; some items are there before.

    The later items of a shard are put by one thread, so that they have an order. With `slice_`, a worker
    stops after so many items and comes back, unless it works only `once`. With `homes`, workers say who
    they are, and had these shards before.
    """
    everything = [*before, *(item for items in later for item in items)]
    shards = 1 + max(shard for shard, _ in everything)

    def build(world: World) -> Program:
        queue = make(world, shards)
        processed = [world.log(f"processed[{shard}]") for shard in range(shards)]
        inside: set[int] = set()  # not a primitive: who is where follows from where the threads are
        for shard, worker in enumerate(homes or ()):
            queue.put(shard, "before")
            for _ in queue.work(Visitor(worker)):
                pass
        for shard, item in before:
            queue.put(shard, item)

        def run(me: int, mine: Sequence[Item]) -> None:
            for shard, item in mine:
                queue.put(shard, item)
            visitor = None if homes is None else Visitor(me)
            while stopped_early(visitor) and not once:
                pass

        def stopped_early(visitor: Visitor | None) -> bool:
            world.landmark("working")
            with closing(queue.work(visitor)) as items:
                for count, (shard, item) in enumerate(items, start=1):
                    assert shard not in inside, f"two workers in shard {shard}"
                    inside.add(shard)
                    processed[shard].append(item)
                    inside.remove(shard)
                    if count == slice_:
                        return True
            return False

        def check() -> None:
            for shard in range(shards):
                expected = [item for where, item in everything if where == shard]
                assert processed[shard].entries == expected, f"shard {shard}: {processed[shard].entries}"

        return Program([lambda me=me, mine=mine: run(me, mine) for me, mine in enumerate(later)], check)

    return build


@pytest.mark.parametrize("make", [HybridQueue, PartitionedQueue, SharedQueue])
@pytest.mark.parametrize(
    "items",
    [
        ([(0, A), (0, B), (0, C)], [], []),
        ([(0, A), (1, B), (0, C)], [], []),
        ([(0, A), (1, B)], [(0, C)], [(1, D)]),
        ([], [(0, A), (0, B)], [(1, C)]),
    ],
)
def test_two_workers(make: Queue, items: tuple[list[Item], ...], sound: Any) -> None:
    sound(explore(consuming(make, *items)))


@pytest.mark.parametrize("make", [HybridQueue, PartitionedQueue])
def test_two_workers_that_stop_and_give_their_shard_back(make: Queue, sound: Any) -> None:
    sound(explore(consuming(make, [(0, A), (0, B), (1, C)], [], [], slice_=1)))


@pytest.mark.parametrize("make", [HybridQueue, PartitionedQueue, SharedQueue])
def test_three_workers(make: Queue, sound: Any) -> None:
    sound(explore(consuming(make, [(0, A), (0, B)], [], [], [])))


@pytest.mark.parametrize("make", [HybridQueue, PartitionedQueue, SharedQueue])
def test_three_workers_and_a_late_item(make: Queue, sound: Any) -> None:
    sound(explore(consuming(make, [(0, A), (1, B), (0, C)], [], [], [(0, D)]), preemptions=2))


@pytest.mark.parametrize(
    ("items", "slice_"),
    [
        (([(0, A), (1, B), (0, C)], [], []), None),
        (([(0, A), (1, B)], [(0, C)], []), None),
        (([(0, A), (1, B), (0, C)], [], []), 1),
    ],
)
def test_two_workers_that_had_shards_before(items: tuple[list[Item], ...], slice_: int | None, sound: Any) -> None:
    sound(explore(consuming(HybridQueue, *items, slice_=slice_, homes=(1, 0))))


@pytest.mark.parametrize("homes", [(1, 0), (0, 0), (1, 1), (2, 2)])
def test_each_of_two_workers_finds_one_of_two_items(homes: tuple[int, ...], sound: Any) -> None:
    """None is in the hands of a worker that only looks at it: the other one would go, and leave it to that one."""
    sound(explore(consuming(HybridQueue, [(0, A), (1, B)], [], [], slice_=1, homes=homes, once=True)))


@pytest.mark.parametrize(
    ("worker", "taken"), [(0, [(1, "b"), (0, "a")]), (1, [(0, "a"), (1, "b")]), (None, [(0, "a"), (1, "b")])]
)
def test_a_worker_takes_the_shard_that_it_had_before_if_that_is_among_the_two_oldest(
    worker: int | None, taken: list[Item]
) -> None:
    queue: HybridQueue[str] = HybridQueue(RealThreads(gil=True), 2)
    for shard, had in enumerate([1, 0]):
        queue.put(shard, "before")
        assert list(queue.work(Visitor(had))) == [(shard, "before")]
    queue.put(0, "a")
    queue.put(1, "b")
    assert list(queue.work(None if worker is None else Visitor(worker))) == taken


@pytest.mark.parametrize(("gil", "passes"), [(True, LOOK_IN_TURN - 1), (False, LOOK_AT_ONCE - 1)])
def test_what_was_passed_by_comes_at_last(gil: bool, passes: int) -> None:
    """Also where the worker looks around after each item, and so asks anew."""
    queue: HybridQueue[int] = HybridQueue(RealThreads(gil=gil), 2)
    for shard, had in enumerate([1, 0]):
        queue.put(shard, -1)
        assert list(queue.work(Visitor(had))) == [(shard, -1)]
    for item in range(LOOK_AT_ONCE + 1):
        queue.put(int(item > 0), item)
    taken, worker = [], Visitor(0)
    while queue.waiting():
        with closing(queue.work(worker)) as items:
            taken.append(next(items))
    assert taken.index((0, 0)) == passes
    assert [item for shard, item in taken if shard == 1] == list(range(1, LOOK_AT_ONCE + 1))


@pytest.mark.parametrize(("gil", "first"), [(True, (0, "a")), (False, (2, "c"))])
def test_where_threads_run_at_once_a_worker_looks_further_for_its_shards(gil: bool, first: Item) -> None:
    queue: HybridQueue[str] = HybridQueue(RealThreads(gil=gil), 3)
    for shard, had in enumerate([1, 1, 0]):
        queue.put(shard, "before")
        assert list(queue.work(Visitor(had))) == [(shard, "before")]
    for shard, item in enumerate("abc"):
        queue.put(shard, item)
    with closing(queue.work(Visitor(0))) as items:
        assert next(items) == first
    assert list(queue.work()) == [(shard, item) for shard, item in enumerate("abc") if (shard, item) != first]


class ForgetsTheOther(HybridQueue[str]):
    """Look at two tokens and let one of them fall."""

    def _take(self, worker: Visitor | None) -> Any:
        oldest = self._master.pop()
        if worker and oldest is not EMPTY and self._homes[oldest].load() != worker.number:
            second = self._master.pop()
            return oldest if second is EMPTY else second
        return oldest


class CountsDownTooEarly(HybridQueue[str]):
    """Give up a token before its item is processed."""

    def work(self, worker: Visitor | None = None) -> Generator[tuple[int, str], None, None]:
        while (shard := self._master.pop()) is not EMPTY:
            if self._counts[shard].add(1) > 0:
                continue
            more = True
            while more:
                item = self._items[shard].pop()
                assert item is not EMPTY
                more = self._counts[shard].add(-1) > 1
                yield shard, item


class TokenBeforeItem(HybridQueue[str]):
    """Announce an item before it is there."""

    def put(self, shard: int, item: str) -> None:
        self._master.push(shard)
        self._items[shard].push(item)


class ForgetsDelegatedItems(HybridQueue[str]):
    """Stop without giving back what others delegated."""

    def _hand_back(self, shard: int) -> None:
        self._counts[shard].exchange(0)


class ListsTooLate(PartitionedQueue[str]):
    """Look whether the shard is listed before the item counts."""

    def put(self, shard: int, item: str) -> None:
        self._items[shard].push(item)
        if self._counts[shard].load() == 0:
            self._ready.push(shard)
        self._counts[shard].add(1)


class TakesShardOutsideTheLock(SharedQueue[str]):
    """Take an item and its shard in two steps (the paper's figure 5)."""

    def _take_head(self) -> tuple[int, str] | None:
        head = self._queue.pop()
        if head is EMPTY:
            return None
        while not self._busy[head[0]].try_acquire():
            self._world.pause(0)
        return head

    def __init__(self, world: World, shards: int) -> None:
        super().__init__(world, shards)
        self._world = world


@pytest.mark.parametrize(
    ("make", "items", "slice_", "symptom"),
    [
        (CountsDownTooEarly, ([(0, A), (0, B)], [], []), None, "two workers in shard 0"),
        (TokenBeforeItem, ([], [(0, A)], []), None, "a token without an item"),
        (ForgetsDelegatedItems, ([(0, A), (0, B)], [], []), 1, "shard 0: ['a']"),
        (ListsTooLate, ([], [(0, A), (0, B)], []), None, "shard 0"),
        (TakesShardOutsideTheLock, ([(0, A), (0, B)], [], []), None, "shard 0: ['b', 'a']"),
    ],
)
def test_planted_bugs_are_found(
    make: Queue, items: tuple[list[Item], ...], slice_: int | None, symptom: str, broken: Any
) -> None:
    broken(explore(consuming(make, *items, slice_=slice_)), symptom)


class HoldsWhatItLooksAt(HybridQueue[str]):
    """Take two tokens to look at them, and put one back."""

    def _take(self, worker: Visitor | None) -> Any:
        oldest, second = self._master.pop(), self._master.pop()
        if second is not EMPTY:
            self._master.push_front(second)
        return oldest


def test_a_token_that_is_held_by_who_looks_at_it_is_missed(broken: Any) -> None:
    broken(explore(consuming(HoldsWhatItLooksAt, [(0, A), (1, B)], [], [], slice_=1, homes=(1, 0), once=True)), "shard")


def test_a_token_that_falls_is_missed(broken: Any) -> None:
    broken(explore(consuming(ForgetsTheOther, [(0, A), (1, B)], [], [], homes=(1, 0))), "shard")
