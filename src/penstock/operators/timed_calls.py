"""Call plain functions with a time limit. Nobody can end a thread: a call that takes too long is left behind in one.

Each call runs in a thread of its own while the caller waits. Threads are used again. One whose call is late comes back
when the function returns, whose result nobody sees. So that a service that hangs does not fill the process with
threads, no call begins while `MOST_LEFT` are left behind: it waits for one of them to come back, and is late
if none does in its time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NoReturn

from penstock.clock import waiting_time
from penstock.rows.records import Row

MOST_LEFT = 64
"""Threads of one operator in one process whose calls were late and have not returned, at most."""


def refuse_late(seconds: float, why: str = "") -> NoReturn:
    """Say that a call took too long."""
    raise TimeoutError(f"no answer within {seconds:g} s{why}") from None


class _Call:
    """One call: what it is, and what became of it."""

    __slots__ = ("done", "error", "function", "left", "result", "row", "took")

    def __init__(self, function: Callable[[Row], Any], row: Row) -> None:
        self.function, self.row = function, row
        self.done = threading.Event()
        self.left, self.took = False, 0.0
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        began = waiting_time()
        try:
            self.result = self.function(self.row)
        except BaseException as error:
            self.error = error
        self.took = waiting_time() - began


class TimedCalls:
    """The threads of one operator's calls in one process."""

    def __init__(self, stopping: threading.Event, most_left: int = MOST_LEFT) -> None:
        self._stopping, self._most_left = stopping, most_left
        self._changed = threading.Condition()
        self._idle: list[SimpleQueue[_Call | None]] = []
        self._running: set[_Call] = set()
        self._left = 0

    def call(self, function: Callable[[Row], Any], row: Row, seconds: float, late: Callable[[], None]) -> Any:
        """Call a function; raise TimeoutError, and tell `late`, where it has not returned after so many seconds.

        Returns at once, with nothing that means anything, when the flow stops.
        """
        call, until = _Call(function, row), waiting_time() + seconds
        if not self._begin(call, until):
            late()
            refuse_late(seconds, f": {self._most_left} earlier calls that were late have not returned")
        call.done.wait(max(0.0, until - waiting_time()))
        with self._changed:
            self._running.discard(call)
            if not call.done.is_set():
                call.left = True
                self._left += 1
        if call.left or call.took > seconds:  # it may have come back before the caller was awake
            late()
            refuse_late(seconds)
        if call.error is not None:
            raise call.error
        return call.result

    def interrupt(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            for call in self._running:
                call.done.set()
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads that do nothing; those that were left behind end when their functions return."""
        with self._changed:
            for idle in self._idle:
                idle.put(None)
            self._idle.clear()

    def _begin(self, call: _Call, until: float) -> bool:
        with self._changed:
            while self._left >= self._most_left and not self._stopping.is_set():
                if not self._changed.wait(max(0.0, until - waiting_time())) and waiting_time() >= until:
                    return False
            self._running.add(call)
            if self._stopping.is_set():
                call.done.set()
                return True
            work = self._idle.pop() if self._idle else self._start()
        work.put(call)
        return True

    def _start(self) -> SimpleQueue[_Call | None]:
        work: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._serve, args=(work,), name="penstock-timed-call", daemon=True).start()
        return work

    def _serve(self, work: SimpleQueue[_Call | None]) -> None:
        while (call := work.get()) is not None:
            call.run()
            with self._changed:
                call.done.set()
                if call.left:
                    self._left -= 1
                    self._changed.notify_all()
                if self._stopping.is_set():
                    return
                self._idle.append(work)
