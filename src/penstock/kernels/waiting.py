"""Call functions that wait for many rows at once: a window of rows in flight, over the rows of one batch after another.

The rows of a batch are a *job*. A window has as many runners as rows may be in flight: threads for plain functions,
tasks of one event loop for `async def`. The rows of all jobs are in one line. A runner takes the next row, waits for
it, puts the result in the row's place, and goes on: nothing is made for a row but its own frame, and no lock is taken.
Rows are begun in order, so all rows before one that failed have been begun, and the first failure of a batch is the one
that a run row by row would have met.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Protocol

from penstock.clock import perf_counter, thread_time
from penstock.operators.calling import Tally
from penstock.operators.stateless import SKIPPED
from penstock.rows.records import Row

if TYPE_CHECKING:
    import asyncio

IDLE_SECONDS = 2.0
"""How long a thread that no station will close stays when there is nothing to do."""


class Job:
    """The rows of one batch, and what a function returned or raised for each."""

    __slots__ = ("_done", "errors", "first_failed", "function", "is_last", "results", "rows", "stops", "tally")

    def __init__(
        self,
        function: Callable[[Row], Any],
        rows: list[Row],
        stops: bool,
        done: Callable[[Job], None],
        tally: Tally | None = None,
    ) -> None:
        self.function, self.rows = function, rows
        self.tally = tally or Tally()
        """What the function counts of its calls."""
        self.stops = stops
        """Whether nothing is begun after a row that failed."""
        self.first_failed: float = math.inf
        """The first row that is known to have failed, where nothing is to be begun after it. Two threads that fail at
        once may leave the later one here: then rows are run that need not be, and none is left out that must be."""
        self.results: list[Any] = [SKIPPED] * len(rows)
        self.errors: dict[int, Exception] = {}
        # One less than there are rows, so that who finds none left has done the last one: to take an item is one step
        # for all threads, where to count would need a lock.
        self.is_last = deque(range(1, len(rows))).pop
        self._done = done

    def failed(self, index: int, error: BaseException) -> None:
        """Note what a row's function raised."""
        if not isinstance(error, Exception):  # an exit or a cancellation, which is this row's alone
            error = RuntimeError(f"the function raised {type(error).__name__}").with_traceback(error.__traceback__)
        self.errors[index] = error
        if self.stops:
            self.first_failed = min(self.first_failed, index)

    def finish(self) -> None:
        """Say that all rows are done."""
        self._done(self)


Waiting = deque[tuple[Job, int, Row]]
"""Rows that are not begun: their jobs, and their places in them."""


class InFlight(Protocol):
    """A bounded number of rows in flight."""

    def submit(self, job: Job) -> None:
        """Begin a job after those that are under way; never waits."""

    def set_limit(self, limit: int) -> None:
        """Change the number of rows in flight; rows under way are not cut short."""

    def waiting(self) -> int:
        """Count the rows that no runner has taken yet (a snapshot)."""

    def begun(self) -> int:
        """Count the rows that were taken so far (a snapshot): row by row, where jobs are done in lumps."""

    def seconds(self) -> float:
        """Return the seconds that rows have been in flight until now, added up over all rows."""

    def close(self) -> None:
        """Begin no more rows, end the runners and wait for them. Jobs under way are never done."""


class _Flight:
    """Add up the time of runners in jobs: written by one thread at a time, read by any."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        # In one reference, so that a reader sees both parts as of one moment.
        self._state = (0, 0.0)

    def change(self, runners: int) -> None:
        """Note that so many runners have come in, or gone out where it is negative."""
        inside, total = self._state
        self._state = (inside + runners, total - runners * self._clock())

    def seconds(self) -> float:
        """Return the sum until now."""
        inside, total = self._state
        return total + inside * self._clock()


class ThreadWindow:
    """Run plain functions, each row in a thread."""

    def __init__(
        self, limit: int, *, idle_seconds: float | None = None, spent: Callable[[float], None] | None = None
    ) -> None:
        self._limit, self._idle_seconds, self._spent = limit, idle_seconds, spent
        self._changed = threading.Condition(threading.Lock())
        self._rows: Waiting = deque()
        self._threads: set[threading.Thread] = set()
        self._flight = _Flight()
        self._idle = self._submitted = 0
        self._closed = False

    def submit(self, job: Job) -> None:
        """Begin a job after those that are under way; never waits."""
        with self._changed:
            self._rows.extend(zip(repeat(job), count(), job.rows))
            self._submitted += len(job.rows)
            self._call()

    def set_limit(self, limit: int) -> None:
        """Change the number of rows in flight; rows under way are not cut short."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()  # those who are too many leave
            self._call()

    def waiting(self) -> int:
        return len(self._rows)

    def begun(self) -> int:
        return self._submitted - len(self._rows)

    def seconds(self) -> float:
        """Return the seconds that rows have been in flight until now, added up over all rows."""
        return self._flight.seconds()

    def close(self) -> None:
        """Begin no more rows, end the threads and wait for them."""
        with self._changed:
            self._closed = True
            self._rows.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _call(self) -> None:
        """Wake threads for the rows that wait, and start those that are missing; with the lock held."""
        rows, busy = self.waiting(), len(self._threads) - self._idle
        self._changed.notify(rows)
        for _ in range(min(self._limit, busy + rows) - len(self._threads)):
            thread = threading.Thread(target=self._loop, name="penstock-waiting", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _loop(self) -> None:
        last, take = thread_time(), self._rows.popleft
        while self._await_rows():
            while len(self._threads) <= self._limit:
                try:
                    job, index, row = take()
                except IndexError:
                    break
                if index < job.first_failed:
                    try:
                        job.results[index] = job.function(row)
                    except BaseException as error:
                        job.failed(index, error)
                try:
                    job.is_last()
                except IndexError:
                    if self._closed:
                        break
                    last = self._tell(last)
                    job.finish()
            last = self._tell(last)
            with self._changed:
                self._flight.change(-1)

    def _tell(self, last: float) -> float:
        """Tell the processor time of this thread since it was `last`."""
        now = thread_time()
        if self._spent is not None:
            self._spent(now - last)
        return now

    def _await_rows(self) -> bool:
        """Wait until there are rows; False for a thread that is to end."""
        with self._changed:
            while not self._closed and len(self._threads) <= self._limit:
                if self._rows:
                    self._flight.change(1)
                    return True
                self._idle += 1
                woken = self._changed.wait(self._idle_seconds)
                self._idle -= 1
                if not woken and not self._rows:
                    break
            self._threads.discard(threading.current_thread())
            return False


class TaskWindow:
    """Run coroutine functions, each row in a task of the event loop that all windows share."""

    def __init__(
        self,
        limit: int,
        *,
        spent: Callable[[float], None] | None = None,
        closing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._limit, self._spent, self._closing = limit, spent, closing
        self._rows: Waiting = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flight = _Flight()
        self._closed = self._crowded = False
        self._submitted = 0
        self._joining = threading.Lock()
        self._home: _EventLoop | None = None

    def submit(self, job: Job) -> None:
        """Begin a job after those that are under way; never waits."""
        with self._joining:
            self._rows.extend(zip(repeat(job), count(), job.rows))
            self._submitted += len(job.rows)
            # Not before there are rows: a window that is never used needs no thread.
            self._home = self._home or _EventLoop.join()
        self._home.loop.call_soon_threadsafe(self._call)

    def set_limit(self, limit: int) -> None:
        """Change the number of rows in flight; rows under way are not cut short."""
        self._limit = limit
        if self._home is not None:
            self._home.loop.call_soon_threadsafe(self._call)

    def waiting(self) -> int:
        return len(self._rows)

    def begun(self) -> int:
        return self._submitted - len(self._rows)

    def seconds(self) -> float:
        """Return the seconds that rows have been in flight until now, added up over all rows."""
        return self._flight.seconds()

    def close(self) -> None:
        """Begin no more rows, cancel those under way and wait for their end."""
        import asyncio

        closed, self._closed = self._closed, True
        if self._home is not None and not closed:
            asyncio.run_coroutine_threadsafe(self._end(), self._home.loop).result()
            self._home.leave()

    async def _end(self) -> None:
        import asyncio

        self._rows.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._closing is not None:
            await self._closing()

    # In the loop's thread ---------------------------------------------------------------------------------------

    def _call(self) -> None:
        """Start tasks for the rows that wait, or let those end that are too many."""
        if self._closed or self._home is None:
            return
        self._crowded = len(self._tasks) > self._limit
        for _ in range(min(self._limit - len(self._tasks), self.waiting())):
            task = self._home.loop.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        import asyncio

        self._flight.change(1)
        rows = self._rows
        while rows and not self._crowded:
            job, index, row = rows.popleft()
            if index < job.first_failed:
                try:
                    job.results[index] = await job.function(row)
                except BaseException as error:
                    if self._closed:
                        raise
                    job.failed(index, error)
            try:
                job.is_last()
            except IndexError:
                self._finish(job)
                # Functions may have found nothing to wait for: let the others on this loop have a turn.
                await asyncio.sleep(0)
        self._flight.change(-1)
        # At once, not when the loop gets to it: the next one must not think that it is one too many.
        self._tasks.discard(asyncio.current_task())
        self._crowded = len(self._tasks) > self._limit

    def _finish(self, job: Job) -> None:
        if self._spent is not None and self._home is not None:
            self._spent(self._home.spent())
        job.finish()


class _EventLoop:
    """The one thread with an event loop in this process; it ends when the last window has left it.

    One for all, so that operators may share what is bound to a loop: a session, a pool of connections.
    """

    _lock = threading.Lock()
    _current: _EventLoop | None = None

    def __init__(self) -> None:
        self._process, self._users, self._last = os.getpid(), 0, 0.0
        self._ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._main, name="penstock-event-loop", daemon=True)
        self._thread.start()
        self._ready.wait()

    @classmethod
    def join(cls) -> _EventLoop:
        """Return the loop of this process, started if need be."""
        with cls._lock:
            # A forked process has the object but not the thread.
            if cls._current is None or cls._current._process != os.getpid():
                cls._current = _EventLoop()
            cls._current._users += 1
            return cls._current

    def leave(self) -> None:
        """Give the loop back; the last one ends it."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if _EventLoop._current is self:
                _EventLoop._current = None
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def spent(self) -> float:
        """Return the processor time of the loop's thread since the last call; only it may ask."""
        now = thread_time()
        before, self._last = self._last, now
        return now - before

    def _main(self) -> None:
        import asyncio

        asyncio.run(self._serve())

    async def _serve(self) -> None:
        import asyncio

        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()


def make_window(
    asynchronous: bool,
    limit: int,
    *,
    idle_seconds: float | None = None,
    spent: Callable[[float], None] | None = None,
    closing: Callable[[], Awaitable[None]] | None = None,
) -> InFlight:
    """Make the window that a function needs; `spent` takes the processor time of its runners, in their threads.

    `closing` is awaited where coroutines were, after the last of them.
    """
    if asynchronous:
        return TaskWindow(limit, spent=spent, closing=closing)
    return ThreadWindow(limit, idle_seconds=idle_seconds, spent=spent)


def run_job(window: InFlight, function: Callable[[Row], Any], rows: list[Row], stops: bool) -> Job:
    """Run one job to its end."""
    done = threading.Event()
    job = Job(function, rows, stops, lambda _: done.set())
    if rows:
        window.submit(job)
        done.wait()
    return job


_shared: dict[tuple[int, bool, int], InFlight] = {}
_sharing = threading.Lock()


def shared_window(asynchronous: bool, limit: int) -> InFlight:
    """Return the window of this process for a kind of function; it outlives tasks, which come and go."""
    key = (os.getpid(), asynchronous, limit)
    with _sharing:
        if key not in _shared:
            _shared[key] = make_window(asynchronous, limit, idle_seconds=IDLE_SECONDS)
        return _shared[key]


def close_shared() -> None:
    """Close the windows of this process, where it goes on with something else; who needs one later gets a new one."""
    with _sharing:
        mine = [window for (process, *_), window in _shared.items() if process == os.getpid()]
        _shared.clear()
    for window in mine:
        window.close()
