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
processing), threads that wait for each other, sleepers that are never woken, and loops that wait for nothing.

The threads are real and their code is ordinary code; control is passed directly from thread to thread, so a thread
that is told to go on does so without a switch. The same decisions give the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from random import Random
from threading import Lock as _Mutex
from threading import Thread
from typing import Any

from penstock.testing.stepped import READ, AtomicStep, SteppedPrimitives, comparable


class _Abandoned(BaseException):
    """Unwinds a thread whose run is over."""


class SteppedThread:
    """One thread of the program, on an operating-system thread that serves run after run."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.gate = _Mutex()
        self.gate.acquire()
        self.world: World | None = None
        Thread(target=self._serve, name=f"explorer-{index}", daemon=True).start()

    def begin(self, world: World, body: Callable[[], None]) -> None:
        """Prepare for a run; the thread starts when it is first given control."""
        self.world, self.body = world, body
        self.step: AtomicStep | None = None
        self.history = 0
        self.looks: list[tuple[Callable[[], Any], Any]] = []  # since it last paused: how, and what it saw
        self.done = self.dying = False

    def dismiss(self) -> None:
        self.world = None
        self.gate.release()

    def _serve(self) -> None:
        while True:
            self.gate.acquire()
            world = self.world
            if world is None:
                return
            try:
                if not self.dying:
                    self.body()
            except _Abandoned:
                pass
            except BaseException as error:
                world.fail(f"thread {self.index}: {type(error).__name__}: {error}")
            self.done, self.step = True, None
            self.history = 0  # a thread that has ended has no local state
            world.pass_on(self)


class World(SteppedPrimitives):
    """The primitives of one run, and the control over who takes the next step on them."""

    def __init__(
        self,
        threads: Sequence[SteppedThread],
        decide: Callable[[World], int | None],
        histories: dict[Hashable, int],
    ) -> None:
        self._running: SteppedThread | None = None
        super().__init__()
        self.threads = threads
        self.trace: list[tuple[int, AtomicStep, Any]] = []
        self.failure: str | None = None
        self._decide = decide
        self._histories = histories
        self._watched: list[Callable[[], Hashable]] = []
        self._unborn: list[SteppedThread] = []
        self._main = _Mutex()
        self._main.acquire()

    def watch(self, state: Callable[[], Hashable]) -> None:
        """Count what this function returns as part of the state: plain data guarded by a primitive."""
        self._watched.append(state)

    def landmark(self, *local: Hashable) -> None:
        """Declare that from here on the calling thread depends on its past only through `local`."""
        if self._running is not None:
            self._running.history = self._intern(("landmark", local))
            self._running.looks = []

    def pause(self, seconds: float) -> None:
        """Wait until something looks different from what this thread saw when it looked there.

        If everything that it has seen since its last pause is still so, going round once more would do the
        same once more; so a loop that waits for nothing stops here for good, and is found.
        """
        thread = self._running
        if thread is None:
            return
        looks, thread.looks = thread.looks, []

        def changed() -> bool:
            return any(look() != seen for look, seen in looks)

        self.whole.read("pause", lambda: None, enabled=changed)

    def run(self, bodies: Sequence[Callable[[], None]]) -> None:
        """Run the threads until nothing can move, a thread fails, or `decide` has seen enough."""
        for thread, body in zip(self.threads, bodies, strict=True):
            thread.begin(self, body)
        self._unborn = list(reversed(self.threads))
        self._hand_to(self._unborn.pop())
        self._main.acquire()

    def end(self) -> None:
        """Unwind the threads that have not finished, one after the other."""
        first = self._next_to_unwind()
        if first is not None:
            self._hand_to(first)
            self._main.acquire()

    def enabled(self) -> dict[int, AtomicStep]:
        """Return the steps that can be taken now, by thread."""
        waiting = ((thread.index, thread.step) for thread in self.threads if thread.step is not None)
        return {index: step for index, step in waiting if step.enabled is None or step.enabled()}

    def state(self) -> Hashable:
        """Return the whole state as a value that can be compared."""
        threads = tuple((thread.history, thread.done) for thread in self.threads)
        return self.values(), threads, tuple(watched() for watched in self._watched)

    def fail(self, message: str) -> None:
        """Note why a thread failed; the first reason counts."""
        self.failure = self.failure or message

    def maker(self) -> int:
        """Return the number of the running thread, or -1 while setting up."""
        return -1 if self._running is None else self._running.index

    def perform(self, step: AtomicStep) -> Any:
        """Let other threads go first if so decided, then take the step."""
        thread = self._running
        if thread is None or thread.dying:  # setting up, checking or unwinding
            result = step.effect()
            step.target.refresh()
            return result
        thread.step = step
        if not self.pass_on(thread):
            thread.gate.acquire()
            if thread.dying:
                raise _Abandoned
        result = step.effect()
        if step.access is not READ:
            step.target.refresh()
        if step.look is not None:
            thread.looks.append((step.look, result))
        self.trace.append((thread.index, step, result))
        thread.history = self._intern((thread.history, step.target.identity, step.name, comparable(result)))
        return result

    def pass_on(self, thread: SteppedThread) -> bool:
        """Give control to the thread that is next; True if that is the caller itself."""
        following: SteppedThread | None = None
        if thread.dying:
            following = self._next_to_unwind()
        elif self.failure is None:
            # Every thread first runs up to its first step; only then is there anything to decide.
            if self._unborn:
                following = self._unborn.pop()
            elif (choice := self._decide(self)) is not None:
                following = self.threads[choice]
        if following is thread:
            return True
        self._hand_to(following)
        return False

    def _next_to_unwind(self) -> SteppedThread | None:
        thread = next((thread for thread in self.threads if not thread.done), None)
        if thread is not None:
            thread.dying = True
        return thread

    def _hand_to(self, thread: SteppedThread | None) -> None:
        self._running = thread
        (self._main if thread is None else thread.gate).release()

    def _intern(self, seen: Hashable) -> int:
        return self._histories.setdefault(seen, len(self._histories) + 1)


@dataclass(frozen=True)
class Program:
    """What to explore: one body per thread, and what must hold when nothing can move any more."""

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


_MOST_SCHEDULES = 1_000_000


def explore(build: Callable[[World], Program], *, preemptions: int | None = None) -> Report:
    """Run every interleaving, or every one with few enough preemptions, until one breaks the program."""
    search = _Search(preemptions)
    extent = "every interleaving" if preemptions is None else f"at most {preemptions} preemptions"
    schedules, steps, complete, violation = _run(build, search.decide, search.backtrack, _MOST_SCHEDULES)
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
