"""Calling the workers of an elastic executor, run through every interleaving: nothing waits without a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.order.called_executor import CalledExecutor, spread
from penstock.testing.explorer import Program, World, explore
from penstock.testing.stepped import comparable
from tests.order.sharded import Action, Items


def calling(
    before: list[Action],
    *actions: list[Action],
    workers: int = 2,
    arriving: bool = False,
    executor_type: type[CalledExecutor[int]] = CalledExecutor,
) -> Callable[[World], Program]:
    """Do some actions beforehand; then each thread does its own, makes the calls, and answers those of its worker.

    Shard s starts with worker s. A worker that nobody has called does not look into its queue.
    """

    def build(world: World) -> Program:
        parkers = [world.parker(f"parker[{worker}]") for worker in range(workers)]
        executor = executor_type(world, list(range(workers)), workers, arriving)
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


def test_shards_are_taken_over_while_items_come(sound: Any) -> None:
    program = calling([("submit", 0, 0)], [("submit", 0, 1)], [("hand over", 0, 0), ("hand over", 1, 0)], arriving=True)
    sound(explore(program))


def test_a_shard_is_moved_before_it_is_taken_over_with_three_preemptions(sound: Any) -> None:
    program = calling([("submit", 0, 0)], [("reassign", 0, 1), ("submit", 0, 1)], [("hand over", 0, 0)], arriving=True)
    sound(explore(program, preemptions=3))


class CallsAsItStarts(CalledExecutor[int]):
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
