"""The labelled reassignment of shards, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.order.combiner import Combiner
from penstock.order.elastic_executor import ElasticExecutor
from penstock.order.primitives import EMPTY
from penstock.order.shard_router import Delivery, ShardRouter
from penstock.testing.explorer import Program, World, explore
from penstock.testing.stepped import comparable
from tests.order.sharded import Action, Items


def routing(
    before: list[Action],
    *actions: list[Action],
    workers: int = 2,
    router: type[ShardRouter[int]] = ShardRouter,
    combiner: type[Combiner[Any]] = Combiner,
) -> Callable[[World], Program]:
    """Do some actions beforehand; then each thread does its own and becomes a worker, if its number is one.

    Shard s starts with worker s. The items of a shard are submitted by one thread, in ascending order.
    """

    def build(world: World) -> Program:
        parkers = [world.parker(f"parker[{worker}]") for worker in range(workers)]
        executor: ElasticExecutor[int] = ElasticExecutor(
            world, list(range(workers)), workers, lambda worker: parkers[worker].unpark()
        )
        executor._router = router(list(range(workers)))
        executor._receiver = combiner(world, executor._receive)
        world.watch(lambda: comparable((executor.routes, executor._router._moving)))
        items = Items(world, workers, (before, *actions))

        def act(mine: list[Action]) -> None:
            for kind, shard, number in mine:
                if kind == "submit":
                    executor.submit(shard, number)
                else:
                    executor.reassign(shard, number)

        def thread(number: int, mine: list[Action]) -> None:
            act(mine)
            while number < workers:
                world.landmark("work")
                for shard, item in executor.work(number):
                    items.process(shard, item)
                parkers[number].park(None)

        act(before)
        threads = [lambda n=n, mine=mine: thread(n, mine) for n, mine in enumerate(actions)]
        return Program(threads, items.check, sleepers=range(workers))

    return build


def test_a_shard_moves_while_its_items_come(sound: Any) -> None:
    sound(explore(routing([("submit", 0, 0)], [], [("reassign", 0, 1), ("submit", 0, 1)])))


def test_a_shard_moves_there_and_back(sound: Any) -> None:
    sound(explore(routing([("submit", 0, 0), ("reassign", 0, 1)], [("reassign", 0, 0)], [("submit", 0, 1)])))


def test_the_old_worker_submits_and_moves(sound: Any) -> None:
    sound(explore(routing([], [("submit", 0, 0), ("reassign", 0, 1), ("submit", 0, 1)], [])))


def test_two_shards_change_places(sound: Any) -> None:
    before = [("submit", 0, 0), ("submit", 1, 0), ("reassign", 0, 1), ("reassign", 1, 0)]
    sound(explore(routing(before, [("submit", 1, 1)], [])))


def test_two_workers_and_a_source_with_two_preemptions(sound: Any) -> None:
    source = [("submit", 0, 1), ("reassign", 0, 1), ("submit", 0, 2)]
    sound(explore(routing([("submit", 0, 0)], [], [], source), preemptions=2))


def test_three_workers_with_one_preemption(sound: Any) -> None:
    before = [("submit", 0, 0), ("submit", 1, 0), ("reassign", 0, 1)]
    program = routing(before, [("reassign", 1, 2)], [("submit", 0, 1)], [("submit", 1, 1)], workers=3)
    sound(explore(program, preemptions=1))


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
    broken(explore(routing([("submit", 0, 0)], [], MOVE_AND_SUBMIT, **parts)), symptom)
