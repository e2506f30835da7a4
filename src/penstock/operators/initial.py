"""What the state of a new key is: classes, so that they can be shipped."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any


class _Constant:
    """Return the same initial state for each key."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


def state_maker(initial: Any) -> Callable[[], Any]:
    """Return a function that makes the state of a new key, of a value or of such a function."""
    if callable(initial):
        factory: Callable[[], Any] = initial
        return factory
    # A value that can be changed would be shared by all keys. What is copied as itself cannot be changed.
    try:
        fixed = copy.deepcopy(initial) is initial
    except Exception:  # found again, and reported, when the first key begins
        fixed = False
    return _Constant(initial) if fixed else _Copy(initial)


class _Copy:
    """Return a fresh copy of a mutable initial state."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return copy.deepcopy(self.value)
