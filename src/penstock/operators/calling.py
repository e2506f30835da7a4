"""Make the calls of a function in one process as the flow says: in time, in turn, again if need be, or not at all.

What one process has for one operator is a `Calling`: the results that it remembers, whose turn it is, the threads of
calls with a time limit. The function that it makes stands where the user's would: it takes a row and returns, or
raises, what became of the call in the end, so an engine needs to know nothing of attempts.
"""

from __future__ import annotations

import marshal
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.clock import waiting_time
from penstock.errors import ExhaustedError
from penstock.operators.base import Operator
from penstock.operators.calls import Cache
from penstock.operators.clients import Clients
from penstock.operators.stateless import MapBatches, PerRow, yields_async
from penstock.operators.timed_calls import TimedCalls, refuse_late
from penstock.rows.records import Row, any_getter

if TYPE_CHECKING:
    import asyncio

_MISSING = object()


class Interrupted(BaseException):
    """Ends a wait between two attempts, because the flow stops."""


class Tally:
    """Count what the calls for some rows took beside one attempt each; any thread may."""

    __slots__ = ("_lock", "retries", "timeouts")

    def __init__(self) -> None:
        self.retries = self.timeouts = 0
        self._lock = threading.Lock()

    def add(self, *, retries: int = 0, timeouts: int = 0) -> None:
        """Count attempts after the first, or attempts that took too long."""
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
        # Its own numbers: those of the user's program stay as they are.
        self._random = Random()

    @property
    def has_client(self) -> bool:
        """Tell whether there is something to close in the end."""
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
        """Begin a task; this process has its part of the rate, which so many share."""
        if self._clients is not None:
            self._clients.forget_failure()
        if self._turns is not None and self._calls.rate is not None:
            self._turns.rate = self._calls.rate / processes

    def hurry(self) -> None:
        """Make all attempts that are left without a pause: the flow is to stop when what it has begun is done."""
        self._hurrying.set()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_pauses)

    def interrupt(self) -> None:
        """End all waits: what waited is never done."""
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
        key, found = self._remembered(row)
        if found is not _MISSING:
            return found
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
        key, found = self._remembered(row)
        if found is not _MISSING:
            return found
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
    """Return what this process keeps for the calls of an operator, where they are more than calls."""
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
    """Give each attempt its turn, so that there are never more than `rate` a second."""

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
