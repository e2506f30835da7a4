"""The claim and free-list protocol of ports, with sleeping and waking, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.order.parking import ParkingLot
from penstock.order.primitives import EMPTY
from penstock.order.reorder import ReorderBuffer
from penstock.pe.ports import OperatorGate, Outputs, Port, PortScheduler
from penstock.testing.explorer import Program, World, explore, sample

Execute = Callable[[Port[int], int], Outputs[int]]


def work(world: World, ports: PortScheduler[int], execute: Execute, number: int) -> None:
    """Be a worker, for ever."""
    while True:
        world.landmark("worker")
        found = ports.wait_for_work(number, None)
        if found is not None:
            ports.drain(found, execute, lambda: True, lambda: False)


def chain(
    *,
    before: int = 0,
    pushed: int = 0,
    workers: int,
    entry: str = "last",
    capacity: int = 1,
    permits: int | None = 1,
    scheduler: type[PortScheduler[int]] = PortScheduler,
    port: type[Port[int]] = Port,
    lot: type[ParkingLot] = ParkingLot,
) -> Callable[[World], Program]:
    """Run first -> last, or last alone: a source thread pushes batches, and workers take care of the rest.

    With several permits, `first` is a stateless operator with a reorder buffer behind it. Workers sleep
    when there is nothing to do, and nobody tells them to stop: a lost wake-up leaves batches behind.
    """
    total = before + pushed

    def build(world: World) -> Program:
        parking = lot(world, workers)
        ports: PortScheduler[int] = scheduler(world, parking)
        first = port(world, "first", OperatorGate(world, "first", permits), max(capacity, before))
        room = capacity if entry == "first" else max(capacity, before)
        last = port(world, "last", OperatorGate(world, "last"), room)
        reorder: ReorderBuffer[int] = ReorderBuffer(world, 8)
        inside: list[int] = []  # not a primitive: who is here follows from where the threads are
        arrived = world.log("arrived")
        entrance = first if entry == "first" else last

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
            assert ports.push(entrance, batch)

        def source() -> None:
            for batch in range(before, total):
                world.landmark(batch)
                ports.deliver(entrance, batch, execute, lambda: False)

        def check() -> None:
            assert arrived.entries == list(range(total)), f"{arrived.entries}"

        threads: list[Callable[[], None]] = [lambda n=n: work(world, ports, execute, n) for n in range(workers)]
        if pushed:
            threads.append(source)
        return Program(threads, check, sleepers=range(workers))

    return build


def two_ports(scheduler: type[PortScheduler[int]] = PortScheduler) -> Callable[[World], Program]:
    """Run one stateful operator with two input ports; the source thread serves the second one."""

    def build(world: World) -> Program:
        ports: PortScheduler[int] = scheduler(world, ParkingLot(world, 2))
        gate: OperatorGate[int] = OperatorGate(world, "join")
        left, right = Port(world, "left", gate, 1), Port(world, "right", gate, 1)
        inside: list[int] = []
        arrived = world.log("arrived")

        def execute(port: Port[int], batch: int) -> Outputs[int]:
            assert not inside, "two workers in a stateful operator"
            inside.append(batch)
            arrived.append(port.name)
            inside.clear()
            yield from ()

        assert ports.push(left, 0)

        def source() -> None:
            ports.deliver(right, 0, execute, lambda: False)
            world.landmark("delivered")
            work(world, ports, execute, 1)

        def check() -> None:
            assert sorted(arrived.entries) == ["left", "right"], f"{arrived.entries}"

        return Program([lambda: work(world, ports, execute, 0), source], check, sleepers=[0, 1])

    return build


@pytest.mark.parametrize("capacity", [1, 2])
def test_a_source_and_a_worker(capacity: int, sound: Any) -> None:
    sound(explore(chain(pushed=2, workers=1, capacity=capacity)))


def test_a_source_and_a_worker_on_two_operators(sound: Any) -> None:
    sound(explore(chain(pushed=2, workers=1, entry="first")))


@pytest.mark.parametrize("entry", ["first", "last"])
def test_two_workers(entry: str, sound: Any) -> None:
    sound(explore(chain(before=1 if entry == "first" else 3, workers=2, entry=entry)))


def test_two_workers_on_an_operator_with_two_ports(sound: Any) -> None:
    sound(explore(two_ports()))


def test_two_workers_on_a_stateless_operator_with_two_preemptions(sound: Any) -> None:
    sound(explore(chain(before=2, workers=2, permits=None, entry="first", capacity=2), preemptions=2))


def test_a_source_and_two_workers_with_two_preemptions(sound: Any) -> None:
    sound(explore(chain(pushed=2, workers=2), preemptions=2))


def test_three_workers_on_two_permits_with_one_preemption(sound: Any) -> None:
    sound(explore(chain(before=3, workers=3, permits=2, entry="first"), preemptions=1))


def test_random_schedules_of_what_is_too_large_to_explore(sound: Any) -> None:
    program = chain(before=4, pushed=2, workers=3, permits=2, entry="first", capacity=2)
    sound(sample(program, schedules=300, seed=1))


class KeepsTheProducerLock(Port[int]):
    """Release the producer lock on failure only, as the paper's figure 2 does."""

    def try_push(self, batch: int) -> bool:
        if not self._producer.try_acquire():
            return False
        if self._queue.size() < self.capacity:
            self._queue.push(batch)
            return True
        self._producer.release()
        return False


class LetsGoWithoutLooking(PortScheduler[int]):
    """Do not look at the queues after giving the permit back."""

    def release(self, port: Port[int]) -> None:
        port.gate.permits.release()


class LooksAtItsOwnPortOnly(PortScheduler[int]):
    """Forget that a permit keeps workers from the operator's other ports too."""

    def release(self, port: Port[int]) -> None:
        port.gate.permits.release()
        if port.size() > 0:
            self._list(port)


class UnlistsTooLate(PortScheduler[int]):
    """Look into the queue before others can list the port again."""

    def find(self) -> Port[int] | None:
        while (port := self._free.pop()) is not EMPTY:
            waiting = port.size()
            port.listed.release()
            if waiting > 0 and self.claim(port):
                return port
        return None


class SleepsAtOnce(PortScheduler[int]):
    """Go to sleep without a second look."""

    def wait_for_work(self, worker: int, timeout: float | None) -> Port[int] | None:
        port = self.find()
        if port is None:
            self._lot.announce(worker)
            self._lot.sleep(worker, timeout)
        return port


@pytest.mark.parametrize(
    ("program", "symptom"),
    [
        (chain(pushed=2, workers=1, port=KeepsTheProducerLock), "waits for ever in world.pause"),
        (two_ports(scheduler=LetsGoWithoutLooking), "check: "),
        (chain(pushed=2, workers=1, scheduler=UnlistsTooLate), "check: "),
        (chain(pushed=1, workers=1, scheduler=SleepsAtOnce), "check: []"),
        (two_ports(scheduler=LooksAtItsOwnPortOnly), "check: ['left']"),
    ],
    ids=["producer lock kept", "no look after release", "unlisted late", "no second look", "own port only"],
)
def test_planted_bugs_are_found(program: Callable[[World], Program], symptom: str, broken: Any) -> None:
    broken(explore(program), symptom)
