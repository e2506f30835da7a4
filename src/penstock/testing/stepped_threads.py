"""Run a few threads of which exactly one moves at a time, one step of a primitive after the other.

The threads are real and their code is ordinary code; they stop before each step, and `decide` names the one
that takes its step next. The same decisions give the same run. Control is passed directly from thread to
thread, so a thread that is told to go on does so without a switch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
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
        """Give control to whoever is next; True if that is the caller itself."""
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
