"""What threads share that is no primitive, with a step between any two reads and writes of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.operators.coroutine import CoroutineLogic
from penstock.operators.ports import Wait
from penstock.order.parking import ParkingLot
from penstock.rows.chunk import Chunk, row_chunk
from penstock.testing.explorer import Program, World, explore
from penstock.threads.meters import Spells
from penstock.threads.models.base import Worker
from penstock.threads.policies import MeasuredFlow
from penstock.threads.ports import OperatorGate, Outputs, Port, PortScheduler


class Counted:
    """A counter as nobody may write one."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1


def test_a_count_that_two_threads_raise_is_lost(broken: Callable[..., None]) -> None:
    def build(world: World) -> Program:
        counted = world.expose(Counted(), "count")

        def check() -> None:
            assert counted.count == 2, f"{counted.count} of 2"

        return Program([counted.add, counted.add], check)

    broken(explore(build), "1 of 2")


READ = {
    "rows": lambda chunk: chunk.get_rows(),
    "select": lambda chunk: chunk.select(np.array([0, 1, 2])).get_rows(),
    "slice": lambda chunk: chunk.slice(0, 3).get_rows(),
    "widened": lambda chunk: chunk.widened(2).get_rows(),
}
"""Ways in which one of several readers of a stream gets at its rows."""


@pytest.mark.parametrize("second", READ)
@pytest.mark.parametrize("first", READ)
def test_two_readers_of_a_chunk_see_the_rows_in_order(sound: Callable[..., None], first: str, second: str) -> None:
    def build(world: World) -> Program:
        chunk = row_chunk(["b", "c", "a"], None).reordered(np.array([2, 0, 1]))
        names = [name for name in vars(chunk) if name not in ("positions", "times", "type")]
        shared: Chunk = world.expose(chunk, *names)
        seen = world.log("seen")

        def check() -> None:
            assert seen.entries == [["a", "b", "c"]] * 2, f"{seen.entries}"

        return Program([lambda: seen.append(READ[first](shared)), lambda: seen.append(READ[second](shared))], check)

    sound(explore(build))


def test_a_worker_that_leaves_is_seen_in_the_operator_or_out_of_it(sound: Callable[..., None]) -> None:
    def build(world: World) -> Program:
        # The clock stands still but for the one second that the worker is in the operator.
        now = world.cell("now", 0.0)
        worker = Worker(0, lambda _: None, now.load, lambda _: None)
        shared: Worker = world.expose(worker, *_plain(worker))
        seen = world.log("seen")

        def run() -> None:
            shared.enter("operator")
            now.store(1.0)
            shared.leave()

        def check() -> None:
            assert all(view.busy_seconds <= 1.0 for view in seen.entries), f"{seen.entries}"

        return Program([run, lambda: seen.append(shared.view())], check)

    sound(explore(build))


def _plain(worker: Worker) -> list[str]:
    """Name what a worker says about what it is doing."""
    flags = ("thread", "suspended", "leaving", "number")
    return [name for name, value in vars(worker).items() if name not in flags and not callable(value)]


def test_two_decisions_see_the_same_running_time(sound: Callable[..., None]) -> None:
    def build(world: World) -> Program:
        flow = MeasuredFlow(lambda: 0.0)
        operator = flow.add("operator", inputs=1, capacity=4, permits=1)
        operator.ports[0].came(0, 100, 0.0)
        operator.ports[0].went(0, 100)
        operator.add(batches=1, rows_in=100, wall=1.0)
        operator.ports[0].came(1, 50, 0.0)
        shared = world.expose(operator, *(name for name in vars(operator) if name.startswith(("_running", "_known"))))
        seen = world.log("seen")

        def check() -> None:
            assert seen.entries == [0.5, 0.5], f"{seen.entries}"

        return Program([lambda: seen.append(shared.running_time)] * 2, check)

    sound(explore(build))


def test_a_co_routine_that_goes_on_while_its_ports_are_looked_at(sound: Callable[..., None]) -> None:
    def build(world: World) -> Program:
        logic = CoroutineLogic.__new__(CoroutineLogic)
        held = _Waiting(done=False, wait=Wait(True, ((0, 1),)), pending=[SimpleNamespace(count=0)])
        shared = world.expose(held, "wait")

        def look() -> None:
            assert logic.pressure(shared) in (((), ()), ([], [0]))

        def go_on() -> None:
            shared.wait = None

        return Program([look, go_on], lambda: None)

    sound(explore(build))


class _Waiting(SimpleNamespace):
    """What a co-routine holds."""


@pytest.mark.parametrize("takers", [1, 2])
def test_a_spell_that_several_end_counts_once(sound: Callable[..., None], takers: int) -> None:
    def build(world: World) -> Program:
        spells = world.expose(Spells(lambda: 0.0, world.lock("lock")), "_since", "_ended")
        spells._since = -1.0  # it began a second ago

        def check() -> None:
            assert spells.seconds() == 1.0, f"{spells.seconds()}"

        def look() -> None:
            assert spells.seconds() == 1.0

        return Program([*[spells.end] * takers, look], check)

    sound(explore(build))


def held(look_again: bool) -> Callable[[World], Program]:
    """Run a batch in the source's thread, the one worker being held, while another thread brings one, too."""

    def build(world: World) -> Program:
        lot = ParkingLot(world, 1)
        ports: PortScheduler[int] = PortScheduler(world, lot)
        port = Port(world, "port", OperatorGate(world, "port"), 4)
        arrived = world.log("arrived")

        def execute(_: Port[int], batch: int) -> Outputs[int]:
            arrived.append(batch)
            yield from ()

        def run_what_is_there() -> None:
            while (found := ports.find()) is not None:
                ports.drain(found, execute, lambda: True, lambda: False)

        def source() -> None:
            lot.hold(True)
            run_what_is_there()
            lot.hold(False)
            if look_again:
                run_what_is_there()

        def bring() -> None:
            assert ports.push(port, 0)

        def work() -> None:
            while True:
                world.landmark("worker")
                if (found := ports.wait_for_work(0, None)) is not None:
                    ports.drain(found, execute, lambda: True, lambda: False)

        def check() -> None:
            assert arrived.entries == [0], f"{arrived.entries}"

        return Program([work, source, bring], check, sleepers=[0])

    return build


def test_what_comes_while_the_worker_is_held_is_found(sound: Callable[..., None]) -> None:
    sound(explore(held(look_again=True)))


def test_who_held_the_worker_and_does_not_look_again_leaves_it(broken: Callable[..., None]) -> None:
    broken(explore(held(look_again=False)), "check: []")
