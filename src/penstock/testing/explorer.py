"""Run concurrent code through every order in which its atomic steps can happen.

`explore(build)` calls `build(world)`, which makes the objects under test from `world` (it is a
`Primitives`) and returns a `Program`: the bodies of a few threads and a check. The code under test is the
shipped code; it runs on real threads of which exactly one runs at a time, and it stops before each
primitive operation. There the explorer decides who goes on. It runs the program again and again, depth
first, until every decision has been taken in every way that can matter.

Two things keep that short, and neither leaves a reachable state out:

- *States are remembered.* A state is the value of every primitive and, for each thread, what it did and saw
  so far, from which its local variables follow. States are compared whole, not by a digest. For this to be
  sound, whatever threads share must be in primitives, or be told by `watch`.
- *Sleep sets* (Godefroid): two steps on different objects, or two reads, give the same state in either
  order, so one order is enough.

With `preemptions=k`, only schedules that take the processor from a willing thread at most k times are run,
and the report says so. Found are a failed assertion in a thread or in the final check (order, loss, double
processing), threads that wait for each other, sleepers nobody wakes, and loops that wait for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from random import Random

from penstock.testing.stepped import AtomicStep
from penstock.testing.stepped_threads import SteppedThread, World


@dataclass(frozen=True)
class Program:
    """What to explore: one body a thread, and what must hold when nothing can move any more."""

    threads: Sequence[Callable[[], None]]
    check: Callable[[], None]
    sleepers: Collection[int] = ()
    """The threads that may be parked at the end: workers for whom nothing is left to do."""


@dataclass(frozen=True)
class Violation:
    """A schedule that breaks the program, step by step."""

    message: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.message, *self.trace])


@dataclass(frozen=True)
class Report:
    states: int
    """Different states; zero if they were not compared."""
    steps: int
    schedules: int
    extent: str
    complete: bool
    """Whether everything in the extent was run; a violation ends the search."""
    violation: Violation | None

    def __str__(self) -> str:
        ending = "" if self.complete else ", stopped early"
        seen = f"{self.states:,} states, {self.steps:,} steps, {self.schedules:,} schedules"
        return f"{seen} ({self.extent}{ending})"


@dataclass(slots=True)
class _Node:
    """A decision on the current path: what could go on, what was tried, what is still to be tried."""

    steps: dict[int, AtomicStep]
    sleep: set[int]
    todo: list[int]
    used: int
    last: int | None
    choice: int = -1

    def advance(self) -> bool:
        if not self.todo:
            return False
        self.choice = self.todo.pop(0)
        return True


class _Search:
    """Depth-first search over decisions; every run replays the path so far and then goes its own way."""

    def __init__(self, preemptions: int | None) -> None:
        self.preemptions = preemptions
        self.path: list[_Node] = []
        self.depth = 0
        self.states = 0
        self._asleep: dict[Hashable, set[int]] = {}
        self._fewest: dict[Hashable, int] = {}

    def decide(self, world: World) -> int | None:
        """Choose the thread that takes the next step; None ends the run."""
        self.depth += 1
        if self.depth <= len(self.path):
            return self.path[self.depth - 1].choice
        steps = world.enabled()
        node = self._open(steps, world.state())
        if node is None or not node.advance():
            return None
        self.path.append(node)
        return node.choice

    def backtrack(self) -> bool:
        """Go back to the last decision that can be taken differently; False if there is none."""
        self.depth = 0
        while self.path:
            node = self.path[-1]
            node.sleep.add(node.choice)
            if node.advance():
                return True
            self.path.pop()
        return False

    def _open(self, steps: dict[int, AtomicStep], state: Hashable) -> _Node | None:
        last, used, sleep = None, 0, set()
        if self.path:
            parent = self.path[-1]
            last = parent.choice
            used = parent.used + (last != parent.last and parent.last in parent.steps)
            taken = parent.steps[last]
            sleep = {other for other in parent.sleep if not parent.steps[other].depends_on(taken)}
        # The thread that ran last goes on by default: the first schedules then have few switches.
        order = sorted(steps, key=lambda thread: (thread != last, thread))
        if self.preemptions is not None:
            return self._open_bounded(steps, state, order, used, last)
        earlier = self._asleep.get(state)
        if earlier is None:
            self.states += 1
            self._asleep[state] = set(sleep)
            return _Node(steps, sleep, [thread for thread in order if thread not in sleep], used, last)
        # Seen before: only what slept then and is awake now is new (Godefroid's rule for remembered states).
        todo = [thread for thread in order if thread in earlier and thread not in sleep]
        self._asleep[state] = earlier & sleep
        return _Node(steps, earlier & sleep, todo, used, last) if todo else None

    def _open_bounded(
        self, steps: dict[int, AtomicStep], state: Hashable, order: list[int], used: int, last: int | None
    ) -> _Node | None:
        fewest = self._fewest.get((state, last))
        if fewest is not None and fewest <= used:
            return None
        self.states += fewest is None
        self._fewest[state, last] = used
        exhausted = last in steps and used == self.preemptions
        return _Node(steps, set(), order[:1] if exhausted else order, used, last)


def explore(
    build: Callable[[World], Program], *, preemptions: int | None = None, max_schedules: int = 1_000_000
) -> Report:
    """Run every interleaving, or every one with few enough preemptions, until one breaks the program."""
    search = _Search(preemptions)
    extent = "every interleaving" if preemptions is None else f"at most {preemptions} preemptions"
    schedules, steps, complete, violation = _run(build, search.decide, search.backtrack, max_schedules)
    return Report(search.states, steps, schedules, extent, complete, violation)


def sample(build: Callable[[World], Program], *, schedules: int, seed: int) -> Report:
    """Run random schedules of a program that is too large to explore."""
    random = Random(seed)

    def decide(world: World) -> int | None:
        steps = world.enabled()
        return random.choice(list(steps)) if steps else None

    done, steps, _, violation = _run(build, decide, lambda: True, schedules)
    return Report(0, steps, done, f"random, seed {seed}", done == schedules, violation)


def _run(
    build: Callable[[World], Program],
    decide: Callable[[World], int | None],
    more: Callable[[], bool],
    max_schedules: int,
) -> tuple[int, int, bool, Violation | None]:
    histories: dict[Hashable, int] = {}
    threads: list[SteppedThread] = []
    steps = schedules = 0
    violation: Violation | None = None
    complete = False
    try:
        while violation is None and not complete and schedules < max_schedules:
            world = World(threads, decide, histories)
            program = build(world)
            threads.extend(SteppedThread(index) for index in range(len(threads), len(program.threads)))
            try:
                world.run(program.threads)
                violation = _judge(world, program)
            finally:
                world.end()
            steps += len(world.trace)
            schedules += 1
            complete = not more()
    finally:
        for thread in threads:
            thread.dismiss()
    return schedules, steps, complete, violation


def _judge(world: World, program: Program) -> Violation | None:
    """Decide what a run shows; a run that was cut short, its state being known, shows nothing."""
    message = world.failure
    if message is None and not world.enabled():
        waiting = [(thread.index, thread.step) for thread in world.threads if thread.step is not None]
        message = "; ".join(
            f"thread {index} waits for ever in {step}"
            for index, step in waiting
            if not (index in program.sleepers and step.name == "park")
        )
        try:
            program.check()
        except AssertionError as error:
            message = message or f"check: {error}"
    if not message:
        return None
    lines = (f"  thread {thread}: {step} -> {result!r}" for thread, step, result in world.trace)
    return Violation(message, tuple(lines))
