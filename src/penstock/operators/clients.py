"""What a flow's `setup=` makes in a worker: a client, a model. It is made before the first call, and closed at the end.

A set-up is a function without arguments. It returns the client, whose `close()` (or `aclose()`) is called if it has
one; or it yields the client, and what stands after the `yield` closes it. With an `async def` as the operator's
function it may be one itself, and then all of it runs in the event loop.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import SetupError, operator_error

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)
_NOTHING = object()
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
        """Let it be tried again: somebody may have fixed what was wrong."""
        self._error = None

    def _keep(self, made: tuple[Any, Any]) -> Any:
        self._made.append(made)
        self._own.client = made[0]
        return made[0]

    def _open(self) -> tuple[Any, Any]:
        if self._error is not None:
            raise self._error
        try:
            found = self._make()
            return (_yielded(next(found, _NOTHING)), found) if inspect.isgenerator(found) else (found, None)
        except (Exception, SystemExit) as error:
            raise self._failed(error) from None

    async def _open_async(self) -> tuple[Any, Any]:
        if self._error is not None:
            raise self._error
        try:
            found = self._make()
            if inspect.isasyncgen(found):
                return _yielded(await anext(found, _NOTHING)), found
            if inspect.isgenerator(found):
                return _yielded(next(found, _NOTHING)), found
            return (await found if inspect.isawaitable(found) else found), None
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
            made, self._made = self._made, []
        return made[::-1]

    def _warn(self) -> None:
        log.warning("penstock: operator %r: its client could not be closed", self._operator, exc_info=True)


async def _closed(client: Any, generator: Any) -> None:
    if inspect.isasyncgen(generator):
        await anext(generator, None)
    elif generator is not None:
        next(generator, None)
    else:
        close = getattr(client, "aclose", None) or getattr(client, "close", None)
        found = close() if callable(close) else None
        if inspect.isawaitable(found):
            await found


def _yielded(client: Any) -> Any:
    if client is _NOTHING:
        raise RuntimeError("it yields nothing; yield the client, once")
    return client


class _Shared:
    """Has what all threads share."""
