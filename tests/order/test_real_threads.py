"""Order and completeness on real threads, with both implementations of the primitives.

The explorer shows that no interleaving of a few steps is wrong; these runs show that the production
primitives carry the same code over many steps. Nothing sleeps and no time is assumed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from random import Random
from threading import Event, Thread, get_ident
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.order import (
    ElasticExecutor,
    HybridQueue,
    LockedReorderBuffer,
    ParkingLot,
    PartitionedQueue,
    RealThreads,
    ReorderBuffer,
    SharedQueue,
    Visitor,
)
from penstock.threads.ports import OperatorGate, Outputs, Port, PortScheduler
from penstock.threads.rebinding import BarrierBinding, BindingTable
from tests.patience import PATIENCE

BOTH = [RealThreads(gil=True), RealThreads(gil=False)]
fixtures = [HealthCheck.function_scoped_fixture]
threaded = settings(max_examples=25, deadline=None, suppress_health_check=fixtures)


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def run_all(bodies: Sequence[Callable[[], None]]) -> None:
    """Run each body on its own thread; fail if one raises or does not come back."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    running = [Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(PATIENCE)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in running), "stuck"


@pytest.mark.parametrize("primitives", BOTH, ids=["bare", "guarded"])
def test_a_look_at_the_front_of_a_queue_is_one_step(primitives: RealThreads) -> None:
    queue = primitives.fifo("queue")
    for number in range(8):
        queue.push(number)

    done = Event()

    def pass_on() -> None:
        while not done.is_set():
            queue.push(queue.pop())

    def look() -> None:
        try:
            for _ in range(10_000):
                seen = queue.peek(4)
                assert list(seen) == [(seen[0] + step) % 8 for step in range(4)]
        finally:
            done.set()

    run_all([pass_on, look])


@pytest.mark.parametrize("primitives", BOTH, ids=["bare", "guarded"])
@pytest.mark.parametrize("make", [ReorderBuffer, LockedReorderBuffer])
@given(workers=st.integers(2, 4), total=st.integers(0, 200), size=st.integers(1, 8))
@threaded
def test_reorder(primitives: RealThreads, make: Any, workers: int, total: int, size: int) -> None:
    buffer = make(primitives, size)
    ticket = primitives.counter("ticket")
    emitted: list[int] = []

    def work() -> None:
        while (number := ticket.add(1)) < total:
            while not buffer.send(number, number, emitted.append):
                primitives.pause(0)

    run_all([work] * workers)
    assert emitted == list(range(total))
    assert buffer.progress() == (total, 0)


@pytest.mark.parametrize("primitives", BOTH, ids=["bare", "guarded"])
@pytest.mark.parametrize("make", [HybridQueue, PartitionedQueue, SharedQueue])
@given(
    shards=st.lists(st.integers(0, 3), max_size=200),
    workers=st.integers(2, 4),
    slice_=st.none() | st.integers(1, 5),
)
@threaded
def test_a_partitioned_operator_in_order(
    primitives: RealThreads, make: Any, shards: list[int], workers: int, slice_: int | None
) -> None:
    queue = make(primitives, 4)
    reorder: ReorderBuffer[tuple[int, int]] = ReorderBuffer(primitives, len(shards) + 1)
    state = [0] * 4
    emitted: list[tuple[int, int]] = []
    done = Event()

    def produce() -> None:
        for number, shard in enumerate(shards):
            queue.put(shard, number)
        reorder.send(len(shards), (-1, -1), finish)

    def finish(output: tuple[int, int]) -> None:
        emitted.append(output)
        if output == (-1, -1):
            done.set()

    def work() -> None:
        visitor = Visitor(get_ident())
        while not done.is_set():
            with closing(queue.work(visitor)) as items:
                for count, (shard, number) in enumerate(items, start=1):
                    value = state[shard]
                    state[shard] = value + 1  # lost if two workers are in the shard at once
                    reorder.send(number, (shard, value), finish)
                    if count == slice_:
                        break

    run_all([produce, *[work] * workers])
    seen = [0] * 4
    for shard, output in zip(shards, emitted, strict=False):
        assert output == (shard, seen[shard])
        seen[shard] += 1
    assert len(emitted) == len(shards) + 1


def run_chain(
    primitives: RealThreads, *, operators: int, batches: int, workers: int, capacity: int, permits: Random | None
) -> list[int]:
    """Push batches through a chain of operators; each worker sleeps when it finds nothing to do."""
    lot = ParkingLot(primitives, workers)
    ports: PortScheduler[int] = PortScheduler(primitives, lot)
    chain: list[Port[int]] = []
    below: dict[Port[int], Port[int]] = {}
    buffers: dict[Port[int], ReorderBuffer[int]] = {}
    for place in range(operators):
        admitted = None if permits is not None and permits.random() < 0.5 and place < operators - 1 else 1
        gate: OperatorGate[int] = OperatorGate(primitives, f"o{place}", admitted)
        port = Port(primitives, f"o{place}", gate, capacity)
        buffers[port] = ReorderBuffer(primitives, batches + 1)
        if chain:
            below[chain[-1]] = port
        chain.append(port)
    arrived: list[int] = []
    done = Event()

    def execute(port: Port[int], batch: int) -> Outputs[int]:
        if port is chain[-1]:
            arrived.append(batch)
            if len(arrived) == batches:
                done.set()
        else:
            assert buffers[port].offer(batch, batch)
            for output in buffers[port].drain():
                yield below[port], output

    def source() -> None:
        for batch in range(batches):
            ports.deliver(chain[0], batch, execute, lambda: False)
        assert done.wait(PATIENCE), f"{len(arrived)} of {batches} arrived"
        for worker in range(workers):
            lot.wake(worker)

    def work(worker: int) -> None:
        while not done.is_set():
            port = ports.wait_for_work(worker, None)
            if port is not None:
                ports.drain(port, execute, lambda: True, lambda: False)

    run_all([source, *[lambda worker=worker: work(worker) for worker in range(workers)]])
    return arrived


@pytest.mark.parametrize("primitives", BOTH, ids=["bare", "guarded"])
@given(
    operators=st.integers(1, 6),
    batches=st.integers(1, 60),
    workers=st.integers(1, 4),
    capacity=st.integers(1, 6),
    seed=st.integers(0, 99),
)
@threaded
def test_ports(primitives: RealThreads, seed: int, **sizes: int) -> None:
    assert run_chain(primitives, permits=Random(seed), **sizes) == list(range(sizes["batches"]))


@pytest.mark.parametrize("workers", [1, 8])
def test_a_thousand_operators_do_not_meet_the_recursion_limit(workers: int) -> None:
    arrived = run_chain(RealThreads(), operators=1_000, batches=30, workers=workers, capacity=2, permits=None)
    assert arrived == list(range(30))


@pytest.mark.parametrize("primitives", BOTH, ids=["bare", "guarded"])
@pytest.mark.parametrize("make", [BindingTable, BarrierBinding])
@given(workers=st.integers(2, 4), batches=st.integers(1, 60), seed=st.integers(0, 99))
@threaded
def test_rebinding(primitives: RealThreads, make: Any, workers: int, batches: int, seed: int) -> None:
    random = Random(seed)
    operators = 3
    parkers = [primitives.parker("") for _ in range(workers)]
    start = [random.randrange(workers) for _ in range(operators)]
    binding = make(primitives, start, workers, lambda worker: parkers[worker].unpark())
    ran: list[list[int]] = [[] for _ in range(operators)]
    done = Event()

    def source() -> None:
        for batch in range(batches):
            binding.submit(0, batch, batch)
            if random.random() < 0.3:
                binding.rebind(random.randrange(operators), random.randrange(workers))
        assert done.wait(PATIENCE), [len(seen) for seen in ran]
        for parker in parkers:
            parker.unpark()

    def work(worker: int) -> None:
        while not done.is_set():
            for task in binding.work(worker):
                ran[task.operator].append(task.sequence)
                if task.operator + 1 < operators:
                    binding.submit(task.operator + 1, task.sequence, task.payload)
                elif len(ran[-1]) == batches:
                    done.set()
            if not done.is_set():
                parkers[worker].park(None)
        if make is BarrierBinding:  # a worker that leaves must not be waited for by the others
            for parker in binding._gates:
                parker.unpark()

    run_all([source, *[lambda worker=worker: work(worker) for worker in range(workers)]])
    assert ran == [list(range(batches))] * operators


@pytest.mark.parametrize("primitives", BOTH, ids=["bare", "guarded"])
@given(shards=st.lists(st.integers(0, 3), min_size=1, max_size=200), seed=st.integers(0, 99))
@threaded
def test_elastic_executor(primitives: RealThreads, shards: list[int], seed: int) -> None:
    random = Random(seed)
    workers = 3
    parkers = [primitives.parker("") for _ in range(workers)]
    executor: ElasticExecutor[int] = ElasticExecutor(primitives, [shard % workers for shard in range(4)], workers)
    seen: list[list[int]] = [[] for _ in range(4)]
    remaining = primitives.counter("remaining", len(shards))
    done = Event()

    def call() -> None:
        for worker in executor.called():
            parkers[worker].unpark()

    def source() -> None:
        for number, shard in enumerate(shards):
            executor.submit(shard, number)
            if random.random() < 0.3:
                executor.reassign(random.randrange(4), random.randrange(workers))
            call()
        assert done.wait(PATIENCE), remaining.load()
        for parker in parkers:
            parker.unpark()

    def work(worker: int) -> None:
        while not done.is_set():
            for shard, number in executor.work(worker):
                call()
                seen[shard].append(number)
                if remaining.add(-1) == 1:
                    done.set()
            call()
            if not done.is_set():
                parkers[worker].park(None)

    run_all([source, *[lambda worker=worker: work(worker) for worker in range(workers)]])
    assert seen == [[number for number, where in enumerate(shards) if where == shard] for shard in range(4)]
