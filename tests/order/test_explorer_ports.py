"""The claim and free-list protocol of ports, with sleeping, waking and pausing, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.order.parking import ParkingLot
from penstock.order.primitives import EMPTY
from penstock.order.reorder import ReorderBuffer
from penstock.testing.explorer import Program, World, explore, sample
from penstock.threads.ports import PAUSE, Begun, OperatorGate, Outputs, Port, PortScheduler

Execute = Callable[[Port[int], int], Outputs[int]]


def work(world: World, ports: PortScheduler[int], execute: Execute, number: int, whole: bool) -> None:
    """Be a worker, for ever, with time for whole batches or for none."""
    while True:
        world.landmark("worker")
        found = ports.wait_for_work(number, None)
        if found is not None:
            ports.drain(found, execute, lambda: whole, lambda: False)


def chain(
    *,
    before: int = 0,
    pushed: int = 0,
    workers: int,
    entry: str = "last",
    capacity: int = 1,
    permits: int | None = 1,
    parts: int = 1,
    through: bool = False,
    scheduler: type[PortScheduler[int]] = PortScheduler,
    port: type[Port[int]] = Port,
    gate: type[OperatorGate[int]] = OperatorGate,
    lot: type[ParkingLot] = ParkingLot,
) -> Callable[[World], Program]:
    """Run first -> last, or last alone: a source thread pushes batches, and workers take care of the rest.

    With several permits, `first` is a stateless operator with a reorder buffer behind it. With several `parts`, `last`
    is put aside before each part of a batch: no worker has time for more. With `through`, the source runs its batch
    itself, while workers go on with what was there before. Workers sleep when there is nothing to do, and nobody tells
    them to stop: a lost wake-up leaves batches behind.
    """
    total = before + pushed

    def build(world: World) -> Program:
        parking = lot(world, workers)
        ports: PortScheduler[int] = scheduler(world, parking)
        first = port(world, "first", OperatorGate(world, "first", permits), max(capacity, before))
        room = capacity if entry == "first" else max(capacity, before)
        last = port(world, "last", gate(world, "last"), room)
        reorder: ReorderBuffer[int] = ReorderBuffer(world, 8)
        inside: list[int] = []  # not a primitive: who is here follows from where the threads are
        arrived = world.log("arrived")
        entrance = first if entry == "first" else last

        def execute(port: Port[int], batch: int) -> Outputs[int]:
            if port is last:
                for part in range(parts):
                    if parts > 1:
                        yield PAUSE
                    assert not inside, "two workers in a stateful operator"
                    inside.append(batch)
                    arrived.append((batch, part))
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
                if through:
                    ports.pass_through(entrance, batch, execute, lambda: parts == 1, lambda: False)
                else:
                    ports.deliver(entrance, batch, execute, lambda: False)

        def check() -> None:
            expected = [(batch, part) for batch in range(total) for part in range(parts)]
            assert arrived.entries == expected, f"{arrived.entries}"

        threads: list[Callable[[], None]] = [
            lambda n=n: work(world, ports, execute, n, parts == 1) for n in range(workers)
        ]
        if pushed:
            threads.append(source)
        return Program(threads, check, sleepers=range(workers))

    return build


def two_ports(
    scheduler: type[PortScheduler[int]] = PortScheduler, *, parts: int = 1, helps: bool = True
) -> Callable[[World], Program]:
    """Run one stateful operator with two input ports; the source thread serves the second one.

    With several `parts`, it is put aside before each part of a batch; unless it `helps`, the source thread only brings
    its batch.
    """

    def build(world: World) -> Program:
        ports: PortScheduler[int] = scheduler(world, ParkingLot(world, 2))
        gate: OperatorGate[int] = OperatorGate(world, "join")
        left, right = Port(world, "left", gate, 1), Port(world, "right", gate, 1)
        inside: list[int] = []
        arrived = world.log("arrived")

        def execute(port: Port[int], batch: int) -> Outputs[int]:
            for _ in range(parts):
                if parts > 1:
                    yield PAUSE
                assert not inside, "two workers in a stateful operator"
                inside.append(batch)
                arrived.append(port.name)
                inside.clear()
            yield from ()

        assert ports.push(left, 0)

        def source() -> None:
            ports.deliver(right, 0, execute, lambda: False)
            world.landmark("delivered")
            if helps:
                work(world, ports, execute, 1, parts == 1)

        def check() -> None:
            # A batch that was begun is done before the other one is.
            both = (["left"] * parts + ["right"] * parts, ["right"] * parts + ["left"] * parts)
            assert arrived.entries in both, f"{arrived.entries}"

        return Program([lambda: work(world, ports, execute, 0, parts == 1), source], check, sleepers=[0, 1])

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


@pytest.mark.parametrize("batches", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_two_workers_on_an_operator_that_is_put_aside(batches: int, sound: Any) -> None:
    sound(explore(chain(before=batches, workers=2, parts=2)))


def test_two_workers_on_two_operators_of_which_one_is_put_aside(sound: Any) -> None:
    sound(explore(chain(before=1, workers=2, entry="first", parts=2)))


@pytest.mark.parametrize(
    ("capacity", "preemptions"), [(1, 2), pytest.param(1, None, marks=pytest.mark.slow), (2, None)]
)
def test_a_source_drains_an_operator_that_is_put_aside(capacity: int, preemptions: int | None, sound: Any) -> None:
    sound(explore(chain(pushed=2, workers=1, capacity=capacity, parts=2), preemptions=preemptions))


def test_an_operator_with_two_ports_is_put_aside(sound: Any) -> None:
    sound(explore(two_ports(parts=2, helps=False)))


def test_two_workers_on_an_operator_with_two_ports_that_is_put_aside(sound: Any) -> None:
    sound(explore(two_ports(parts=2), preemptions=2))


@pytest.mark.parametrize("preemptions", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_source_and_two_workers_on_an_operator_that_is_put_aside(preemptions: int, sound: Any) -> None:
    sound(explore(chain(pushed=2, workers=2, parts=2), preemptions=preemptions))


@pytest.mark.parametrize("permits", [1, None])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_source_runs_its_batch_itself(permits: int | None, parts: int, sound: Any) -> None:
    sound(explore(chain(pushed=1, workers=2, entry="first", permits=permits, parts=parts, through=True)))


@pytest.mark.parametrize(("parts", "preemptions"), [(1, None), (2, 2)])
def test_a_source_that_runs_its_batch_meets_a_worker(parts: int, preemptions: int | None, sound: Any) -> None:
    sound(explore(chain(before=1, pushed=1, workers=1, parts=parts, through=True), preemptions=preemptions))


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

    def find(self, worker: int = 0) -> Port[int] | None:
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


class RunsWithoutAPermit(PortScheduler[int]):
    """Take an operator that nobody seems to be in."""

    def pass_through(
        self, port: Port[int], batch: int, execute: Any, keep_going: Callable[[], bool], stopped: Callable[[], bool]
    ) -> None:
        if port.has_work():
            self.deliver(port, batch, execute, stopped)
            return
        for output in execute(port, batch):
            self.pass_through(*output, execute, keep_going, stopped)


class ForgetsWhatItPutAside(PortScheduler[int]):
    """List ports with batches only, not one whose operator is in the middle of a batch."""

    def release(self, port: Port[int]) -> None:
        port.gate.permits.release()
        for sibling in port.gate.ports:
            if sibling.size() > 0:
                self._list(sibling)


class FindsBatchesOnly(PortScheduler[int]):
    """Take a port without a batch for one without work."""

    def find(self, worker: int = 0) -> Port[int] | None:
        while (port := self._free.pop()) is not EMPTY:
            port.listed.release()
            if not self.claim(port):
                continue
            if port.size() > 0:
                return port
            port.gate.permits.release()
        return None


class TakesNewerBatchesFirst(OperatorGate[int]):
    """Go on with what was put aside only when no batch waits."""

    def take_begun(self) -> Begun[int] | None:
        return super().take_begun() if not any(port.size() for port in self.ports) else None


@pytest.mark.parametrize(
    ("program", "symptom"),
    [
        (chain(pushed=2, workers=1, port=KeepsTheProducerLock), "waits for ever in world.pause"),
        (two_ports(scheduler=LetsGoWithoutLooking), "check: "),
        (chain(pushed=2, workers=1, scheduler=UnlistsTooLate), "check: "),
        (chain(pushed=1, workers=1, scheduler=SleepsAtOnce), "check: []"),
        (two_ports(scheduler=LooksAtItsOwnPortOnly), "check: ['left']"),
        (chain(before=1, pushed=1, workers=1, through=True, scheduler=RunsWithoutAPermit), "two workers in"),
        (chain(before=1, workers=2, parts=2, scheduler=ForgetsWhatItPutAside), "check: []"),
        (two_ports(parts=2, helps=False, scheduler=FindsBatchesOnly), "check: ['left', 'left']"),
        (chain(before=2, workers=2, parts=2, gate=TakesNewerBatchesFirst), "check: "),
    ],
    ids=[
        "producer lock kept",
        "no look after release",
        "unlisted late",
        "no second look",
        "own port only",
        "no permit",
        "put aside and forgotten",
        "put aside and not found",
        "newer batches first",
    ],
)
def test_planted_bugs_are_found(program: Callable[[World], Program], symptom: str, broken: Any) -> None:
    broken(explore(program), symptom)
