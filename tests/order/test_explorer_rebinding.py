"""The rebinding protocols, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from penstock.testing.explorer import Program, World, explore
from penstock.threads.rebinding import BarrierBinding, BindingTable, BoundTask, Rebind


def moving(
    make: type[BindingTable[str]],
    *,
    submitted: int = 0,
    later: int = 0,
    before: tuple[int, ...] = (),
    during: tuple[int, ...] = (),
    workers: int = 2,
    apart: bool = False,
    halves: bool = False,
) -> Callable[[World], Program]:
    """Run one operator, bound to worker 0, on numbered tasks while requests move it about.

    `submitted` tasks and the requests `before` are there at the start. The last worker submits the `later`
    tasks, and makes the requests `during` between them, before it works; `apart` gives that to a thread
    of its own. With `halves`, each task is put aside once in its middle.
    """
    total = submitted + later

    def build(world: World) -> Program:
        parkers = [world.parker(f"parker[{worker}]") for worker in range(workers)]
        binding = make(world, [0], workers, lambda worker: parkers[worker].unpark())
        run = world.log("run")
        for sequence in range(submitted):
            binding.submit(0, sequence, "")
        for to in before:
            binding.rebind(0, to)

        def source() -> None:
            requests = list(during)
            for sequence in range(submitted, total):
                binding.submit(0, sequence, "")
                if requests:
                    binding.rebind(0, requests.pop(0))
            for to in requests:
                binding.rebind(0, to)

        def work(worker: int) -> None:
            while True:
                world.landmark("work")
                for task in binding.work(worker):
                    run.append(f"{task.sequence}{task.payload}" if halves else task.sequence)
                    if halves and not task.payload:
                        binding.put_aside(worker, task, " rest")
                    owner = binding.owners()[task.operator]
                    assert owner == worker, f"worker {worker} runs an operator that worker {owner} may run"
                parkers[worker].park(None)

        def source_and_work() -> None:
            source()
            work(workers - 1)

        def check() -> None:
            expected: list[object] = list(range(total))
            if halves:
                expected = [f"{sequence}{half}" for sequence in range(total) for half in ("", " rest")]
            assert run.entries == expected, f"{run.entries}"
            assert binding.owners() == ([0, *before, *during][-1],), "the last request does not stand"

        threads: list[Callable[[], None]] = [lambda worker=worker: work(worker) for worker in range(workers)]
        if apart:
            threads.append(source)
        elif later or during:
            threads[-1] = source_and_work
        return Program(threads, check, sleepers=range(workers))

    return build


@pytest.mark.parametrize("make", [BindingTable, BarrierBinding])
@pytest.mark.parametrize(
    "moves",
    [
        {"submitted": 2, "before": (1,)},
        {"submitted": 2, "before": (1, 0)},  # two requests in flight to the same worker
        {"submitted": 1, "later": 1, "during": (1,)},
        {"submitted": 1, "later": 1, "before": (1,), "during": (0,)},
    ],
    ids=str,
)
def test_two_workers(make: type[BindingTable[str]], moves: dict[str, Any], sound: Any) -> None:
    sound(explore(moving(make, **moves)))


@pytest.mark.parametrize("make", [BindingTable, BarrierBinding])
@pytest.mark.parametrize("moves", [{"submitted": 2, "before": (1,)}, {"submitted": 1, "during": (1,)}], ids=str)
def test_tasks_are_put_aside(make: type[BindingTable[str]], moves: dict[str, Any], sound: Any) -> None:
    sound(explore(moving(make, halves=True, **moves)))


@pytest.mark.parametrize("make", [BindingTable, BarrierBinding])
def test_two_workers_and_a_source(make: type[BindingTable[str]], sound: Any) -> None:
    program = moving(make, submitted=1, later=1, before=(1,), during=(0,), apart=True)
    sound(explore(program, preemptions=2 if make is BindingTable else 1))


@pytest.mark.parametrize("make", [BindingTable, BarrierBinding])
def test_three_workers(make: type[BindingTable[str]], sound: Any) -> None:
    program = moving(make, submitted=1, before=(1, 2), workers=3)
    sound(explore(program, preemptions=2 if make is BindingTable else 1))


class StoresWithoutChecking(BindingTable[str]):
    """Obey a request although the operator has moved on: the paper's text, taken literally."""

    def _apply(self, worker: int, rebind: Rebind) -> None:
        self._owners[rebind.operator].store(rebind.to)


class IgnoresSequence(BindingTable[str]):
    """Run tasks as they come."""

    def _next(self, worker: int) -> Any:
        self._expected[0].store(self._tasks[worker].size())  # no longer says anything
        while True:
            self._serve_requests(worker)
            task = self._tasks[worker].pop()
            if not isinstance(task, BoundTask) or self._owners[0].load() == worker:
                return task
            self._send(task)


class RequesterStores(BindingTable[str]):
    """Rewrite the table from outside, without asking the worker that may be running the operator."""

    def _request(self, rebind: Rebind) -> None:
        self._owners[rebind.operator].store(rebind.to)


class PassesOnWithoutWaking(BindingTable[str]):
    """Put a task into another worker's queue and let that worker sleep."""

    def _send(self, task: BoundTask[str]) -> None:
        self._tasks[self._owners[task.operator].load()].push(task)


class FinishesWhatItPutsAside(BindingTable[str]):
    """Let the next task of an operator come before what is left of the last one."""

    def put_aside(self, worker: int, task: BoundTask[str], rest: str) -> None:
        self._tasks[worker].push(BoundTask(task.operator, task.sequence + 1, rest))


class StartsBeforeAllHaveArrived(BarrierBinding[str]):
    """Let the first to arrive rewrite the table."""

    def _serve_requests(self, worker: int) -> bool:
        if self._meeting.load():
            self._meeting.store(False)
            while isinstance(rebind := self._wanted.pop(), Rebind):
                self._owners[rebind.operator].store(rebind.to)
        return True


class NeverReleases(BarrierBinding[str]):
    """Leave those who wait at a meeting to themselves when the others have gone."""

    def release(self) -> None:
        pass


class RunsWhenReleased(BarrierBinding[str]):
    """Let one who was let go run on, although the table may be being rewritten."""

    def _serve_requests(self, worker: int) -> bool:
        super()._serve_requests(worker)
        return True


def stopping(make: type[BindingTable[str]], *, workers: int = 2) -> Callable[[World], Program]:
    """End the workers while an operator moves; all of them must end, and none may run what another one may run."""

    def build(world: World) -> Program:
        parkers = [world.parker(f"parker[{worker}]") for worker in range(workers)]
        leaving = world.cell("leaving", False)
        binding = make(world, [0], workers, lambda worker: parkers[worker].unpark())
        binding.submit(0, 0, "")

        def work(worker: int) -> None:
            while not leaving.load():
                world.landmark("work")
                with closing(binding.work(worker)) as tasks:
                    for task in tasks:
                        owner = binding.owners()[task.operator]
                        assert owner == worker, f"worker {worker} runs an operator that worker {owner} may run"
                        if leaving.load():
                            return
                if not leaving.load():
                    parkers[worker].park(None)

        def stop() -> None:
            binding.rebind(0, 1)
            leaving.store(True)
            for parker in parkers:
                parker.unpark()
            binding.release()

        threads: list[Callable[[], None]] = [lambda worker=worker: work(worker) for worker in range(workers)]
        return Program([*threads, stop], lambda: None)

    return build


@pytest.mark.parametrize(
    ("make", "preemptions"),
    [(BindingTable, 3), (BarrierBinding, 2), pytest.param(BarrierBinding, 3, marks=pytest.mark.slow)],
)
def test_a_stop_in_the_middle_of_a_move(make: type[BindingTable[str]], preemptions: int, sound: Any) -> None:
    sound(explore(stopping(make), preemptions=preemptions))


@pytest.mark.parametrize(("make", "symptom"), [(NeverReleases, "gate"), (RunsWhenReleased, "may run")])
def test_planted_bugs_of_a_stop_are_found(make: Any, symptom: str, broken: Any) -> None:
    broken(explore(stopping(make), preemptions=3), symptom)


@pytest.mark.parametrize(
    ("make", "moves", "symptom"),
    [
        (StoresWithoutChecking, {"submitted": 1, "before": (1,), "during": (0,), "apart": True}, "may run"),
        (IgnoresSequence, {"submitted": 1, "later": 2, "during": (1,)}, "check: "),
        (RequesterStores, {"submitted": 1, "later": 1, "during": (1,)}, "may run"),
        (PassesOnWithoutWaking, {"submitted": 1, "before": (1,)}, "check: []"),
        (FinishesWhatItPutsAside, {"submitted": 2, "before": (1,), "halves": True}, "check: "),
        (StartsBeforeAllHaveArrived, {"submitted": 1, "during": (1,), "apart": True}, "may run"),
    ],
)
def test_planted_bugs_are_found(make: Any, moves: dict[str, Any], symptom: str, broken: Any) -> None:
    broken(explore(moving(make, **moves)), symptom)
