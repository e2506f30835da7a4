"""Make the calls of a function in one process as the flow says: with a time limit, a rate, retries, a cache.

What one process has for one operator is a `Calling`: the results that it remembers, whose turn it is, the threads of
calls with a time limit. The function that it makes stands where the user's would: it takes a row and returns, or
raises, the final outcome of the call, so an engine needs to know nothing of attempts.

A thread cannot be ended, so a plain function that takes too long is left in one. Each call with a time limit runs in a
thread of its own while the caller waits. Threads are used again; one whose call is late comes back when the
function returns, and its result is dropped. So that a service that hangs does not fill the process with threads, no
call begins while `MOST_LEFT` are left behind: it waits for one of them to come back, and is late if none does in its
time.
"""

from __future__ import annotations

import marshal
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.clock import waiting_time
from penstock.errors import ExhaustedError
from penstock.operators.base import Operator
from penstock.operators.calls import Cache, Clients
from penstock.operators.stateless import MapBatches, PerRow, yields_async
from penstock.rows.records import Row, any_getter

if TYPE_CHECKING:
    import asyncio

_MISSING = object()


class Interrupted(BaseException):
    """Ends a wait between two attempts, because the flow stops."""


class Tally:
    """Counts attempts beyond the first of each call, and late ones; any thread may add."""

    __slots__ = ("_lock", "retries", "timeouts")

    def __init__(self) -> None:
        self.retries = self.timeouts = 0
        self._lock = threading.Lock()

    def add(self, *, retries: int = 0, timeouts: int = 0) -> None:
        with self._lock:
            self.retries += retries
            self.timeouts += timeouts


class Calling:
    """The calls of one operator in one process."""

    def __init__(
        self, operator: PerRow | MapBatches, name: str = "", *, clock: Callable[[], float] = waiting_time
    ) -> None:
        assert operator.calls is not None
        self._calls = operator.calls
        setup = self._calls.setup
        self._clients = None if setup is None else Clients(name, setup, self._calls.per_thread)
        self.operator = operator if self._clients is None else _with_client(operator, self._clients)
        """The operator with the client in its function."""
        self._call = self.operator.called() if isinstance(self.operator, PerRow) else self.operator.function
        self._cache = None if self._calls.cache is None else Remembered(self._calls.cache, clock)
        self._turns = None if self._calls.rate is None else Turns(self._calls.rate, clock)
        self._stopping, self._hurrying = threading.Event(), threading.Event()
        self._pausing: set[asyncio.Future[None]] = set()
        """Pauses of coroutines; of the event loop alone."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timed = TimedCalls(self._stopping)
        # Its own generator: the random numbers of the user's program stay as they are.
        self._random = Random()

    @property
    def has_client(self) -> bool:
        """Whether there is something to close in the end."""
        return self._clients is not None

    @property
    def is_async(self) -> bool:
        return self.operator.is_async

    def function(self, tally: Tally) -> Callable[[Row], Any]:
        """Return what to call with a row, a coroutine function where the user's is one."""
        assert isinstance(self.operator, PerRow)
        tried = self._tried_async if self.operator.is_async else self._tried
        return self.operator.row_function(partial(tried, tally))

    def begin(self, processes: int) -> None:
        """Begin a task; this process gets its part of the rate, which all `processes` share."""
        if self._clients is not None:
            self._clients.forget_failure()
        if self._turns is not None and self._calls.rate is not None:
            self._turns.rate = self._calls.rate / processes

    def hurry(self) -> None:
        """Make the remaining attempts without a pause: the flow stops once what it has begun is done."""
        self._hurrying.set()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_pauses)

    def interrupt(self) -> None:
        """End all waits; the calls that waited are given up."""
        self._stopping.set()
        self._hurrying.set()
        self._timed.interrupt()

    def close(self) -> None:
        """Let go of everything, after the last call."""
        self.interrupt()
        self._timed.close()
        loop = self._loop
        if self._clients is None:
            return
        if self.operator.is_async and loop is not None and loop.is_running():
            import asyncio

            asyncio.run_coroutine_threadsafe(self.close_async(), loop).result()
        elif not self.operator.is_async:
            self._clients.close()

    async def close_async(self) -> None:
        if self._clients is not None:
            await self._clients.close_async()

    # One attempt after the other --------------------------------------------------------------------------------

    def _tried(self, tally: Tally, row: Row) -> Any:
        if self._clients is not None:
            self._clients.get()  # before the attempts: it has as much time as it takes, and is not tried again
        key, known = self._remembered(row)
        if known is not _MISSING:
            return known
        attempts = 0
        while True:
            attempts += 1
            try:
                if self._turns is not None:
                    self._wait(self._turns.take())
                result = self._once(row, tally)
                break
            except Exception as error:
                pause = self._pause(attempts, error, tally)
            self._hurrying.wait(pause)
            self._wait(0.0)
        self._remember(key, result)
        return result

    async def _tried_async(self, tally: Tally, row: Row) -> Any:
        import asyncio

        if self._clients is not None:
            self._loop = asyncio.get_running_loop()
            await self._clients.get_async()
        key, known = self._remembered(row)
        if known is not _MISSING:
            return known
        attempts = 0
        while True:
            attempts += 1
            try:
                if self._turns is not None:
                    await asyncio.sleep(self._turns.take())
                result = await self._once_async(row, tally)
                break
            except Exception as error:
                pause = self._pause(attempts, error, tally)
            await self._pause_async(pause)
        self._remember(key, result)
        return result

    def _once(self, row: Row, tally: Tally) -> Any:
        seconds = self._calls.timeout
        if seconds is None:
            return self._call(row)
        result = self._timed.call(self._call, row, seconds, partial(tally.add, timeouts=1))
        if self._stopping.is_set():
            raise Interrupted
        return result

    async def _once_async(self, row: Row, tally: Tally) -> Any:
        import asyncio

        seconds = self._calls.timeout
        if seconds is None:
            return await self._call(row)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._call(row)
        except TimeoutError:
            if not limit.expired():
                raise  # the function's own
        tally.add(timeouts=1)
        return refuse_late(seconds)

    def _pause(self, attempts: int, error: Exception, tally: Tally) -> float:
        """Return how long to wait for the next attempt; raise where there is none."""
        if attempts > self._calls.retries:
            raise ExhaustedError(error, attempts)
        tally.add(retries=1)
        # Those that failed together do not come back together.
        return self._calls.pause(attempts) * self._random.uniform(0.5, 1.0)

    async def _pause_async(self, seconds: float) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        if self._hurrying.is_set():
            return
        ended = self._loop.create_future()
        self._pausing.add(ended)
        try:
            await asyncio.wait([ended], timeout=seconds)
        finally:
            self._pausing.discard(ended)

    def _end_pauses(self) -> None:
        for ended in self._pausing:
            if not ended.done():
                ended.set_result(None)

    def _wait(self, seconds: float) -> None:
        if self._stopping.wait(seconds) if seconds > 0 else self._stopping.is_set():
            raise Interrupted

    def _remembered(self, row: Row) -> tuple[bytes | None, Any]:
        if self._cache is None:
            return None, _MISSING
        key = self._cache.key(row)
        return key, _MISSING if key is None else self._cache.get(key)

    def _remember(self, key: bytes | None, result: Any) -> None:
        if self._cache is not None and key is not None:
            self._cache.put(key, result)


def open_calling(operator: Operator, name: str) -> Calling | None:
    """Return what this process keeps for the calls of an operator; None where they have no options."""
    if not isinstance(operator, PerRow | MapBatches) or operator.calls is None:
        return None
    return Calling(operator, name)


def _with_client(operator: PerRow | MapBatches, clients: Clients) -> PerRow | MapBatches:
    """Return an operator whose function gets the client as its second argument."""
    function = operator.function

    async def yielding(row: Row) -> Any:
        async for item in function(row, await clients.get_async()):
            yield item

    async def waiting(row: Row) -> Any:
        return await function(row, await clients.get_async())

    def plain(row: Row) -> Any:
        return function(row, clients.get())

    with_client = plain if not operator.is_async else yielding if yields_async(function) else waiting
    return replace(operator, function=with_client)


class Turns:
    """Give each attempt its turn, so that there are never more than `rate` per second."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self.rate, self._clock = rate, clock
        self._lock, self._next = threading.Lock(), clock()

    def take(self) -> float:
        """Take the next turn; return the seconds until then."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + 1 / self.rate
            return turn - now


class Remembered:
    """Results by argument, the least recently used forgotten first."""

    def __init__(self, cache: Cache, clock: Callable[[], float]) -> None:
        self._size, self._seconds, self._clock = cache.size, cache.seconds, clock
        self._read = any_getter(cache.fields) if cache.fields else _whole
        self._lock = threading.Lock()
        self._results: OrderedDict[bytes, tuple[Any, float]] = OrderedDict()

    def key(self, row: Row) -> bytes | None:
        """Return what tells an argument from all that differ, also in type; None where that cannot be.

        Equal is not enough: 1, 1.0 and True are, and 0.0 and -0.0.
        """
        value = self._read(row)
        try:
            return marshal.dumps(value, 2)  # later versions write the same value in several ways
        except ValueError:
            pass
        try:
            return pickle.dumps(value, 5)
        except Exception:
            return None

    def get(self, key: bytes) -> Any:
        """Return the result for an argument, or `_MISSING`."""
        with self._lock:
            result, until = self._results.get(key, (_MISSING, 0.0))
            if result is _MISSING:
                return _MISSING
            if self._clock() >= until:
                del self._results[key]
                return _MISSING
            self._results.move_to_end(key)
            return result

    def put(self, key: bytes, result: Any) -> None:
        with self._lock:
            self._results[key] = result, self._clock() + self._seconds
            self._results.move_to_end(key)
            if len(self._results) > self._size:
                self._results.popitem(last=False)


def _whole(row: Row) -> Any:
    """Return a row as values: its class may be one that cannot be pickled, and only tells kinds of rows apart."""
    return (type(row).__qualname__, *row) if isinstance(row, tuple) else row


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
        """Call a function; raise TimeoutError, and tell `late`, where it has not returned in time.

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
        """End every wait."""
        with self._changed:
            for call in self._running:
                call.done.set()
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads that do nothing; those that late calls are in end when their functions return."""
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
