"""The labelled reassignment of shards, run through every interleaving: nothing is lost, and nothing waits uncalled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.order.executor import Combiner, Delivery, ElasticExecutor, ShardRouter, spread
from penstock.order.primitives import EMPTY
from penstock.testing.explorer import Program, World, explore
from penstock.testing.stepped import comparable
from tests.order.sharded import Action, Items


def calling(
    before: list[Action],
    *actions: list[Action],
    workers: int = 2,
    arriving: bool = False,
    executor_type: type[ElasticExecutor[int]] = ElasticExecutor,
    router: type[ShardRouter[int]] = ShardRouter,
    combiner: type[Combiner[Any]] = Combiner,
) -> Callable[[World], Program]:
    """Do some actions beforehand; then each thread does its own, makes the calls, and answers those of its worker.

    Shard s starts with worker s. A worker that nobody has called does not look into its queue. The items of a shard are
    submitted by one thread, in ascending order.
    """

    def build(world: World) -> Program:
        parkers = [world.parker(f"parker[{worker}]") for worker in range(workers)]
        executor = executor_type(world, list(range(workers)), workers, arriving)
        executor._router = router(list(range(workers)), arriving)
        executor._receiver = combiner(world, executor._receive)
        world.watch(lambda: comparable((executor.routes, executor._router._moving)))
        items = Items(world, workers, (before, *actions))

        def call() -> None:
            for worker in executor.called():
                parkers[worker].unpark()

        def act(mine: list[Action]) -> None:
            for kind, shard, number in mine:
                if kind == "submit":
                    executor.submit(shard, number)
                elif kind == "hand over":
                    executor.labelled(shard)
                else:
                    executor.reassign(shard, number)
                call()

        def thread(number: int, mine: list[Action]) -> None:
            act(mine)
            while number < workers:
                world.landmark("called")
                parkers[number].park(None)
                for shard, item in executor.work(number):
                    call()
                    items.process(shard, item)
                call()

        act(before)
        threads = [lambda n=n, mine=mine: thread(n, mine) for n, mine in enumerate(actions)]
        return Program(threads, items.check, sleepers=range(workers))

    return build


def test_a_shard_moves_while_its_items_come(sound: Any) -> None:
    sound(explore(calling([("submit", 0, 0)], [], [("reassign", 0, 1), ("submit", 0, 1)])))


def test_a_splitter_and_two_replicas_with_two_preemptions(sound: Any) -> None:
    splitter = [("submit", 0, 1), ("reassign", 0, 1), ("submit", 0, 2)]
    sound(explore(calling([("submit", 0, 0)], [], [], splitter), preemptions=2))


def test_a_shard_moves_there_and_back(sound: Any) -> None:
    sound(explore(calling([("submit", 0, 0), ("reassign", 0, 1)], [("reassign", 0, 0)], [("submit", 0, 1)])))


def test_the_old_worker_submits_and_moves(sound: Any) -> None:
    sound(explore(calling([], [("submit", 0, 0), ("reassign", 0, 1), ("submit", 0, 1)], [])))


def test_two_shards_change_places(sound: Any) -> None:
    before = [("submit", 0, 0), ("submit", 1, 0), ("reassign", 0, 1), ("reassign", 1, 0)]
    sound(explore(calling(before, [("submit", 1, 1)], [])))


def test_three_workers_with_one_preemption(sound: Any) -> None:
    before = [("submit", 0, 0), ("submit", 1, 0), ("reassign", 0, 1)]
    program = calling(before, [("reassign", 1, 2)], [("submit", 0, 1)], [("submit", 1, 1)], workers=3)
    sound(explore(program, preemptions=1))


def test_shards_are_taken_over_while_items_come(sound: Any) -> None:
    program = calling([("submit", 0, 0)], [("submit", 0, 1)], [("hand over", 0, 0), ("hand over", 1, 0)], arriving=True)
    sound(explore(program))


def test_a_shard_is_moved_before_it_is_taken_over_with_three_preemptions(sound: Any) -> None:
    program = calling([("submit", 0, 0)], [("reassign", 0, 1), ("submit", 0, 1)], [("hand over", 0, 0)], arriving=True)
    sound(explore(program, preemptions=3))


class MovesWithoutLabel(ShardRouter[int]):
    """Change the table at once."""

    def reassign(self, shard: int, to: int) -> list[Delivery[int]]:
        self._routes[shard] = to
        return []


class RoutesOnWhileMoving(ShardRouter[int]):
    """Send the label, but hold nothing back: the table is new at once."""

    def reassign(self, shard: int, to: int) -> list[Delivery[int]]:
        deliveries = super().reassign(shard, to)
        self._moving[shard].held = []
        self._routes[shard] = to
        return deliveries

    def route(self, item: Any) -> list[Delivery[int]]:
        return [(self._routes[item.shard], item)]


class ForgetsHeldItems(ShardRouter[int]):
    """Settle a shard without sending what was held back."""

    def labelled(self, shard: int) -> list[Delivery[int]]:
        super().labelled(shard)
        return []


class LooksOnlyOnce(Combiner[Any]):
    """Do not look again after giving up the turn."""

    def submit(self, event: Any) -> None:
        self._inbox.push(event)
        if self._turn.try_acquire():
            while (waiting := self._inbox.pop()) is not EMPTY:
                self._apply(waiting)
            self._turn.release()


MOVE_AND_SUBMIT: list[Action] = [("reassign", 0, 1), ("submit", 0, 1)]


@pytest.mark.parametrize(
    ("parts", "symptom"),
    [
        ({"router": MovesWithoutLabel}, "shard 0"),
        ({"router": RoutesOnWhileMoving}, "shard 0"),
        ({"router": ForgetsHeldItems}, "shard 0: [0]"),
        ({"combiner": LooksOnlyOnce}, "shard 0"),
    ],
    ids=["no label", "nothing held back", "held items forgotten", "no look after the turn"],
)
def test_planted_bugs_are_found(parts: dict[str, Any], symptom: str, broken: Any) -> None:
    broken(explore(calling([("submit", 0, 0)], [], MOVE_AND_SUBMIT, **parts)), symptom)


class CallsAsItStarts(ElasticExecutor[int]):
    """Forget the calls that were noted while a worker went through its queue."""

    def work(self, worker: int) -> Any:
        yield from super().work(worker)
        self.called()


def test_a_call_that_is_forgotten_is_found(broken: Any) -> None:
    program = calling([("submit", 0, 0), ("reassign", 0, 1), ("submit", 0, 1)], [], [], executor_type=CallsAsItStarts)
    broken(explore(program), "check")


@pytest.mark.parametrize(
    ("routes", "workers", "moves"),
    [
        ((0, 0, 0, 0), 2, 2),
        ((0, 1, 2, 3), 2, 2),
        ((0, 1, 0, 1), 2, 0),
        ((0, 0, 1, 1, 2, 2, 2, 2), 3, 1),
        ((5, 5, 5), 1, 3),
        ((0, 1, 2), 8, 0),
    ],
)
def test_shards_are_spread_evenly_with_few_moves(routes, workers, moves):
    found = spread(routes, workers)
    assert len(found) == moves
    after = list(routes)
    for shard, to in found:
        after[shard] = to
    counts = [after.count(worker) for worker in range(workers)]
    assert max(counts) - min(counts) <= 1
