"""The explorer against plain enumeration: what it leaves out must not matter."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.order.primitives import EMPTY
from penstock.testing.explorer import Program, SteppedThread, World, explore, sample
from penstock.testing.stepped import comparable

Code = list[list[tuple[str, int]]]
"""For each thread its operations, each on one of two objects of the kind that the operation is for."""


def running(code: Code, outcomes: set[Hashable]) -> Callable[[World], Program]:
    """Run small programs that keep all they learn; what they have learnt at the end is an outcome."""

    def build(world: World) -> Program:
        cells = [world.cell(f"cell{i}", 0) for i in range(2)]
        counters = [world.counter(f"counter{i}") for i in range(2)]
        flags = [world.try_lock(f"flag{i}") for i in range(2)]
        locks = [world.lock(f"lock{i}") for i in range(2)]
        queues = [world.fifo(f"queue{i}") for i in range(2)]
        parkers = [world.parker(f"parker{i}") for i in range(2)]
        learnt: list[list[Any]] = [[] for _ in code]
        world.watch(lambda: comparable(learnt))

        def body(me: int) -> None:
            for place, (operation, which) in enumerate(code[me]):
                seen: Any = None
                if operation == "load":
                    seen = cells[which].load()
                elif operation == "store":
                    cells[which].store(10 * me + place)
                elif operation == "add":
                    seen = counters[which].add(1)
                elif operation == "try" and (seen := flags[which].try_acquire()):
                    flags[which].release()
                elif operation == "lock":
                    locks[which].acquire()
                    cells[which].store(10 * me + place)
                    locks[which].release()
                elif operation == "push":
                    queues[which].push(10 * me + place)
                elif operation == "pop":
                    seen = queues[which].pop()
                elif operation == "unpark":
                    parkers[which].unpark()
                elif operation == "park":
                    seen = parkers[which].park(None)
                learnt[me].append(seen)

        def check() -> None:
            outcomes.add((comparable(learnt), world.values()))

        return Program([lambda me=me: body(me) for me in range(len(code))], check, sleepers=range(len(code)))

    return build


def enumerate_all(build: Callable[[World], Program]) -> int:
    """Run every single interleaving, remembering nothing and leaving nothing out."""
    path: list[list[int]] = []
    depth = schedules = 0

    def decide(world: World) -> int | None:
        nonlocal depth
        depth += 1
        if depth > len(path):
            path.append(list(world.enabled()))
            if not path[-1]:
                path.pop()
                return None
        return path[depth - 1][0]

    threads: list[SteppedThread] = []
    while True:
        depth = 0
        world = World(threads, decide, {})
        program = build(world)
        threads.extend(SteppedThread(index) for index in range(len(threads), len(program.threads)))
        world.run(program.threads)
        program.check()
        world.end()
        schedules += 1
        while path and len(path[-1]) == 1:
            path.pop()
        if not path:
            break
        path[-1].pop(0)
    for thread in threads:
        thread.dismiss()
    return schedules


names = ["load", "store", "add", "try", "lock", "push", "pop", "park", "unpark"]
operations = st.tuples(st.sampled_from(names), st.integers(0, 1))
programs = st.one_of(
    st.lists(st.lists(operations, min_size=1, max_size=4), min_size=2, max_size=2),
    st.lists(st.lists(operations, min_size=1, max_size=2), min_size=3, max_size=3),
)


@given(programs)
@settings(max_examples=60, deadline=None)
def test_it_ends_in_every_way_that_plain_enumeration_ends(code: Code) -> None:
    everything: set[Hashable] = set()
    explored: set[Hashable] = set()
    bounded: set[Hashable] = set()
    schedules = enumerate_all(running(code, everything))
    report = explore(running(code, explored))
    assert explored == everything
    assert report.schedules <= schedules
    explore(running(code, bounded), preemptions=12)
    assert bounded == everything


def test_a_bound_on_preemptions_leaves_out_what_needs_more() -> None:
    code: Code = [[("load", 0), ("store", 0)], [("load", 0), ("store", 0)]]
    none: set[Hashable] = set()
    one: set[Hashable] = set()
    explore(running(code, none), preemptions=0)
    explore(running(code, one), preemptions=1)
    assert none < one


def crossing(world: World) -> Program:
    first, second = world.lock("first"), world.lock("second")

    def take(*locks: Any) -> None:
        for lock in locks:
            lock.acquire()
        for lock in locks:
            lock.release()

    return Program([lambda: take(first, second), lambda: take(second, first)], lambda: None)


def test_a_deadlock_is_found_with_its_schedule() -> None:
    violation = explore(crossing).violation
    assert violation is not None
    assert violation.message == (
        "thread 0 waits for ever in second.acquire(); thread 1 waits for ever in first.acquire()"
    )
    assert violation.trace == ("  thread 0: first.acquire() -> None", "  thread 1: second.acquire() -> None")


def test_random_schedules_find_it_too_and_repeat_by_seed() -> None:
    first, again = (sample(crossing, schedules=200, seed=7) for _ in range(2))
    assert first.violation is not None
    assert first == again


def test_a_loop_that_waits_for_nothing_is_found() -> None:
    def build(world: World) -> Program:
        flag = world.cell("flag", False)

        def wait() -> None:
            while not flag.load():
                world.pause(0)

        return Program([wait, lambda: None], lambda: None)

    violation = explore(build).violation
    assert violation is not None
    assert "thread 0 waits for ever in world.pause()" in violation.message


def test_a_loop_that_is_answered_ends() -> None:
    def build(world: World) -> Program:
        flag = world.cell("flag", False)

        def wait() -> None:
            while not flag.load():
                world.pause(0)

        return Program([wait, lambda: flag.store(True)], lambda: None)

    report = explore(build)
    assert report.violation is None
    assert report.complete


def test_a_loop_that_saw_a_passing_value_looks_again() -> None:
    def build(world: World) -> Program:
        flag = world.cell("flag", False)

        def wait() -> None:
            flag.load()
            while flag.load():
                world.pause(0)

        def blink() -> None:
            flag.store(True)
            flag.store(False)

        return Program([wait, blink], lambda: None)

    report = explore(build)
    assert report.violation is None, str(report.violation)
    assert report.complete


def test_a_failing_thread_is_reported() -> None:
    def build(world: World) -> Program:
        queue = world.fifo("queue")

        def take() -> None:
            if queue.pop() is EMPTY:
                raise RuntimeError("nothing there")

        return Program([take, lambda: queue.push(1)], lambda: None)

    violation = explore(build).violation
    assert violation is not None
    assert violation.message == "thread 0: RuntimeError: nothing there"


def test_values_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(TypeError, match="give it a name"):
        comparable(object())
