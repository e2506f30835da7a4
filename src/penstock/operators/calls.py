"""What a flow says about the calls of a function, and the clients that they use.

A call may have a time limit, retries, a rate and a cache: `calling.py` makes it so. A client, or a model, is what
`setup=` makes in a worker before the first call, and what is closed at the end. A set-up is a function without
arguments. It returns the client, whose `close()` (or `aclose()`) is called if it has one; or it yields the client, and
what stands after the `yield` closes it. With an `async def` as the operator's function it may be one itself, and then
all of it runs in the event loop.
"""

from __future__ import annotations

import datetime as dt
import inspect
import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from penstock.errors import FlowError, SetupError, did_you_mean, operator_error
from penstock.rows.timing import seconds

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)
_NOTHING = object()

WallTime = str | float | dt.timedelta
"""A time on the clock: "500 ms", a timedelta, or seconds."""

FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 30.0
"""Seconds before the second attempt, where the user does not say, and before any other, at most."""


@dataclass(frozen=True)
class Cache:
    """Remember the results of calls: of the last `size` arguments, each for `ttl` (None: as long as there is room).

    The argument is the whole row, or the fields that `by` names. Each process remembers for itself.
    """

    size: int
    ttl: WallTime | None = None
    by: str | tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that the argument consists of; none for the whole row."""
        return tuple(self.by) if isinstance(self.by, (list, tuple)) else (self.by,)

    @property
    def seconds(self) -> float:
        return math.inf if self.ttl is None else seconds(self.ttl, "ttl", "cache")


class CallOptions(TypedDict, total=False):
    """The options of `map`, `flat_map` and `filter` for functions that call a service."""

    timeout: WallTime
    """How long one attempt may take."""
    retries: int
    """How often a call that raises, or takes too long, is made again."""
    backoff: WallTime | tuple[WallTime, WallTime]
    """The wait before the second attempt, or (that wait, the longest one); each is twice as long as the one before."""
    rate: float
    """Attempts per second, at most, of the whole operator."""
    cache: int | Cache
    """How many results to remember, or `ps.Cache(...)`."""
    setup: Callable[[], Any]
    """Makes what the function gets as its second argument, once in each worker."""
    setup_per: Literal["process", "thread"]
    """Whether threads share it."""


@dataclass(frozen=True)
class Calls:
    """How the calls of one operator are made; times in seconds."""

    timeout: float | None = None
    retries: int = 0
    backoff: float = FIRST_BACKOFF
    longest_backoff: float = LONGEST_BACKOFF
    rate: float | None = None
    cache: Cache | None = None
    _: KW_ONLY
    setup: Callable[[], Any] | None = None
    per_thread: bool = False

    @property
    def waits(self) -> bool:
        """Whether calls wait for something: an answer, the next attempt, their turn."""
        return self.timeout is not None or self.retries > 0 or self.rate is not None

    def pause(self, attempts: int) -> float:
        """Return the seconds to wait after this many attempts, before chance shortens them."""
        doubled = min(attempts - 1, 64)  # beyond that it would be no number
        return min(self.longest_backoff, self.backoff * 2.0**doubled)


def make_calls(options: CallOptions, waits: bool | None, name: str) -> Calls | None:
    """Read the options of an operator; None where there are none. Refuses what cannot be."""
    unknown = [each for each in options if each not in CallOptions.__annotations__]
    if unknown:
        hint = did_you_mean(unknown[0], ["schema", "on_error", "waits", "in_flight", *CallOptions.__annotations__])
        raise TypeError(f"operator {name!r} has no option {unknown[0]!r}{hint}")
    given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    if not given:
        return None
    if "backoff" in given and "retries" not in given:
        raise FlowError(f"operator {name!r}: backoff={given['backoff']!r} without retries=; say how often to try again")
    first, longest = _backoff(given.get("backoff"), name)
    calls = Calls(
        positive_seconds(given["timeout"], name, "timeout") if "timeout" in given else None,
        _count(given.get("retries", 0), 0, name, "retries"),
        first,
        longest,
        _rate(given["rate"], name) if "rate" in given else None,
        _cache(given["cache"], name) if "cache" in given else None,
        setup=given.get("setup"),
        per_thread=given.get("setup_per") == "thread",
    )
    _check_setup(calls, given.get("setup_per"), name)
    if waits is False and calls.waits:
        raise FlowError(
            f"operator {name!r}: timeout=, retries= and rate= are for functions that wait; leave out waits=False"
        )
    return calls


def _check_setup(calls: Calls, per: Any, name: str) -> None:
    if per not in (None, "process", "thread"):
        raise FlowError(f'operator {name!r}: setup_per={per!r}; use "process" or "thread"')
    if per is not None and calls.setup is None:
        raise FlowError(f"operator {name!r}: setup_per={per!r} without setup=")
    if calls.setup is not None and not callable(calls.setup):
        raise FlowError(
            f"operator {name!r}: setup={calls.setup!r} is no function; give one without arguments that makes the "
            f"client, so that each worker makes its own"
        )
    if calls.per_thread and calls.timeout is not None:
        raise FlowError(
            f'operator {name!r}: setup_per="thread" and timeout= do not go together, because calls that are late leave '
            f"their threads; set the time limit in the client, or share one client"
        )


def positive_seconds(value: Any, name: str, option: str) -> float:
    number = seconds(value, option, name)
    if not 0 < number < math.inf:
        raise FlowError(f'operator {name!r}: {option}={value!r}; give a time above 0, such as "2 s"')
    return number


def _backoff(value: Any, name: str) -> tuple[float, float]:
    if value is None:
        return FIRST_BACKOFF, LONGEST_BACKOFF
    if not isinstance(value, tuple):
        first = positive_seconds(value, name, "backoff")
        return first, max(first, LONGEST_BACKOFF)
    if len(value) != 2:
        raise FlowError(f'operator {name!r}: backoff={value!r}; give a time, or (first, longest): ("100 ms", "10 s")')
    first, longest = (positive_seconds(each, name, "backoff") for each in value)
    if longest < first:
        raise FlowError(f"operator {name!r}: backoff={value!r}: the longest wait is shorter than the first")
    return first, longest


def _rate(value: Any, name: str) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
    if not good:
        raise FlowError(f"operator {name!r}: rate={value!r}; give the calls per second, a number above 0")
    return float(value)


def _count(value: Any, least: int, name: str, option: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FlowError(f"operator {name!r}: {option}={value!r}; give a whole number, {least} or more")
    return value


def _cache(value: Any, name: str) -> Cache:
    cache = value if isinstance(value, Cache) else Cache(value)
    _count(cache.size, 1, name, "cache")
    if cache.ttl is not None:
        positive_seconds(cache.ttl, name, "the ttl of cache")
    if not all(isinstance(each, str) and each for each in cache.fields):
        raise FlowError(f"operator {name!r}: cache=...by={cache.by!r}; give names of fields, or leave it out")
    return cache


CLOSING_SECONDS = 10.0
"""How long a client in an event loop may take to close."""


class Clients:
    """The clients of one operator in one process: one, or one in each thread."""

    def __init__(self, operator: str, make: Callable[[], Any], per_thread: bool) -> None:
        self._operator, self._make = operator, make
        self._lock = threading.Lock()
        self._made: list[tuple[Any, Any]] = []
        """Each client, with the generator that it came from, if it did."""
        self._error: SetupError | None = None
        self._own: Any = threading.local() if per_thread else _Shared()
        self._making: asyncio.Lock | None = None

    def get(self) -> Any:
        """Return the client, made if need be; raise SetupError where that fails, the same one from then on."""
        try:
            return self._own.client
        except AttributeError:
            pass
        if isinstance(self._own, threading.local):
            return self._keep(self._open())
        with self._lock:  # others wait until it is there
            return self._own.client if hasattr(self._own, "client") else self._keep(self._open())

    async def get_async(self) -> Any:
        import asyncio

        if hasattr(self._own, "client"):
            return self._own.client
        if self._making is None:
            self._making = asyncio.Lock()
        async with self._making:
            return self._own.client if hasattr(self._own, "client") else self._keep(await self._open_async())

    def forget_failure(self) -> None:
        """Let the next call try again: what was wrong may be fixed by now."""
        self._error = None

    def _keep(self, client: tuple[Any, Any]) -> Any:
        self._made.append(client)
        self._own.client = client[0]
        return client[0]

    def _open(self) -> tuple[Any, Any]:
        if self._error is not None:
            raise self._error
        try:
            client = self._make()
            return (_yielded(next(client, _NOTHING)), client) if inspect.isgenerator(client) else (client, None)
        except (Exception, SystemExit) as error:
            raise self._failed(error) from None

    async def _open_async(self) -> tuple[Any, Any]:
        client, generator = self._open()
        try:
            if generator is None and inspect.isasyncgen(client):
                return _yielded(await anext(client, _NOTHING)), client
            return (await client if generator is None and inspect.isawaitable(client) else client), generator
        except (Exception, SystemExit) as error:
            raise self._failed(error) from None

    def _failed(self, error: BaseException) -> SetupError:
        problem = operator_error(self._operator, error, None)
        place = f" at {problem.where}" if problem.where else ""
        name = getattr(self._make, "__name__", repr(self._make))
        self._error = SetupError(
            f"its setup={name} failed{place}: {problem.error}; see that it works "
            f"where the workers are (addresses, rights, files, packages), or let it try again by itself"
        )
        return self._error

    def close(self) -> None:
        """Close what was made, the last one first; what fails there is logged, and stops nothing."""
        for client, generator in self._taken():
            try:
                if generator is not None:
                    with suppress(StopIteration):
                        next(generator)
                elif callable(getattr(client, "close", None)):
                    client.close()
            except Exception:
                self._warn()

    async def close_async(self) -> None:
        """Do the same in the event loop; what takes too long there is given up."""
        import asyncio

        for client, generator in self._taken():
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await _closed(client, generator)
            except Exception:
                self._warn()

    def _taken(self) -> list[tuple[Any, Any]]:
        with self._lock:
            clients, self._made = self._made, []
        return clients[::-1]

    def _warn(self) -> None:
        log.warning("penstock: operator %r: its client could not be closed", self._operator, exc_info=True)


async def _closed(client: Any, generator: Any) -> None:
    if inspect.isasyncgen(generator):
        await anext(generator, None)
    elif generator is not None:
        next(generator, None)
    else:
        close = getattr(client, "aclose", None) or getattr(client, "close", None)
        result = close() if callable(close) else None
        if inspect.isawaitable(result):
            await result


def _yielded(client: Any) -> Any:
    if client is _NOTHING:
        raise RuntimeError("it yields nothing; yield the client, once")
    return client


class _Shared:
    """Has what all threads share."""
