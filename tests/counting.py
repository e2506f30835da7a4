"""Count the work of a piece of code by the calls that it makes: the same on every machine, as no time is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """Return how many calls a function makes in this thread, of Python's functions and of C's."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
