"""Try reads and writes of files again: what fails for a moment must not end a flow.

Only errors of the storage itself are tried again. What user code raises never comes here, and a file that is not there,
may not be read or holds the wrong rows would be so the next time too (`errors.FINAL_FIXES`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from penstock.errors import CHECK_PATH, FINAL_FIXES, StorageError

ATTEMPTS = 6
"""How often a read or a write is tried before it counts as failed."""
FIRST_SECONDS = 0.1
"""The wait after the first failure; each further one is twice as long, so that all of them take three seconds."""

Result = TypeVar("Result")
log = logging.getLogger(__name__)


def retried(operation: Callable[[], Result], what: str, path: str) -> Result:
    """Do something that may be done again, until it works; raise `StorageError` where it does not, or never will.

    `what` is the operation in words, with the operator where there is one: "sink 'out': writing". Where a missing file
    is an answer, `operation` gives it.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return operation()
        except OSError as error:
            wait_or_raise(error, attempt, what, path)
    raise AssertionError("the last attempt returns or raises")


def retried_pieces(read: Callable[[], Iterator[Result]], what: str, path: str) -> Iterator[Result]:
    """Yield what a read gives; where it breaks off, read again and go on after what was given.

    Each read must give the same pieces. The attempts are counted anew whenever a piece has come.
    """
    given, attempt = 0, 1
    while True:
        try:
            for number, piece in enumerate(read()):
                if number >= given:
                    given, attempt = given + 1, 1
                    yield piece
            return
        except OSError as error:
            wait_or_raise(error, attempt, what, path)
            attempt += 1


def wait_or_raise(error: OSError, attempt: int, what: str, path: str) -> None:
    """Wait before the next attempt; raise where there is none, or it would not help."""
    absent = isinstance(error, (FileNotFoundError, FileExistsError))
    fix = CHECK_PATH if absent else FINAL_FIXES.get(error.errno or 0)
    if fix is not None or attempt >= ATTEMPTS:
        raise StorageError(what, path, attempt, _first_line(error), fix or "", fix is not None) from None
    seconds = FIRST_SECONDS * 2 ** (attempt - 1)
    log.warning(
        "%s %s failed (%s); attempt %d of %d in %.1f s", what, path, _first_line(error), attempt + 1, ATTEMPTS, seconds
    )
    time.sleep(seconds)


def remove_quietly(system: Any, path: str) -> None:
    """Remove what a failed attempt has left; nothing depends on it."""
    with suppress(OSError):
        system.delete_file(path)


def _first_line(error: OSError) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
