"""The claim and free-list protocol of ports, with sleeping and waking, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.order.parking import ParkingLot
from penstock.order.reorder import ReorderBuffer
from penstock.pe.ports import OperatorGate, Outputs, Port, PortScheduler
from penstock.testing.explorer import Program, World, explore


def chain(
    *,
    before: int = 0,
    pushed: int = 0,
    workers: int,
    capacity: int = 1,
    permits: int | None = 1,
    scheduler: type[PortScheduler[int]] = PortScheduler,
    port: type[Port[int]] = Port,
    lot: type[ParkingLot] = ParkingLot,
) -> Callable[[World], Program]:
    """Run first -> last: a source thread pushes `pushed` batches, and workers take care of the rest.

    With several permits, `first` is a stateless operator with a reorder buffer behind it. Workers sleep
    when there is nothing to do, and nobody tells them to stop: a lost wake-up leaves batches behind.
    """
    total = before + pushed

    def build(world: World) -> Program:
        parking = lot(world, workers)
        ports: PortScheduler[int] = scheduler(world, parking)
        first = port(world, "first", OperatorGate(world, "first", permits), max(capacity, before))
        last = port(world, "last", OperatorGate(world, "last"), capacity)
        reorder: ReorderBuffer[int] = ReorderBuffer(world, 8)
        inside: list[int] = []  # not a primitive: who is here follows from where the threads are
        arrived = world.log("arrived")

        def execute(port: Port[int], batch: int) -> Outputs[int]:
            if port is last:
                assert not inside, "two workers in a stateful operator"
                inside.append(batch)
                arrived.append(batch)
                inside.clear()
            elif permits == 1:
                yield last, batch
            else:
                assert reorder.offer(batch, batch)
                for output in reorder.drain():
                    yield last, output

        for batch in range(before):
            assert ports.push(first, batch)

        def source() -> None:
            for batch in range(before, total):
                world.landmark(batch)
                ports.deliver(first, batch, execute, lambda: False)

        def worker(number: int) -> None:
            while True:
                world.landmark("worker")
                found = ports.wait_for_work(number, None)
                if found is not None:
                    ports.drain(found, execute, lambda: True, lambda: False)

        def check() -> None:
            assert arrived.entries == list(range(total)), f"{arrived.entries}"

        threads: list[Callable[[], None]] = [lambda number=number: worker(number) for number in range(workers)]
        if pushed:
            threads.append(source)
        return Program(threads, check, sleepers=range(workers))

    return build


def test_a_source_and_a_worker(sound: Any) -> None:
    sound(explore(chain(pushed=2, workers=1)))


def test_two_workers_on_stateful_operators(sound: Any) -> None:
    sound(explore(chain(before=2, workers=2)))


def test_two_workers_on_a_stateless_operator(sound: Any) -> None:
    sound(explore(chain(before=2, workers=2, permits=None)))


def test_two_workers_and_a_source(sound: Any) -> None:
    sound(explore(chain(pushed=2, workers=2), preemptions=2))


def test_three_workers(sound: Any) -> None:
    sound(explore(chain(before=3, workers=3, permits=2), preemptions=1))
