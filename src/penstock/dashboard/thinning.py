"""Keep a bounded number of samples of a run of any length: the newest as they are, older ones ever fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

FRESH = 240
"""The newest samples, of which none is dropped."""


def thin(items: list[T], fresh: int = FRESH) -> list[T]:
    """Drop every second of the older items; the first stays, so that a run keeps its beginning."""
    older = len(items) - fresh
    return items if older <= 1 else [*items[:older:2], *items[older:]]


class Thinned(Generic[T]):
    """A list that thins itself when it is full."""

    def __init__(self, most: int, fresh: int = FRESH, most_bytes: int | None = None) -> None:
        self._items: list[T] = []
        self._sizes: list[int] = []
        self._bytes = 0
        self._most, self._fresh, self._most_bytes = most, fresh, most_bytes

    def add(self, item: T, size: int = 0) -> None:
        """Add an item at the end."""
        self._items.append(item)
        self._sizes.append(size)
        self._bytes += size
        if len(self._items) > self._most:
            self._thin(self._fresh)
        fresh = self._fresh
        while self._most_bytes is not None and self._bytes > self._most_bytes and len(self._items) > 2:
            fresh //= 2  # items so large that even fresh ones must go
            self._thin(fresh)

    def _thin(self, fresh: int) -> None:
        self._items, self._sizes = thin(self._items, fresh), thin(self._sizes, fresh)
        self._bytes = sum(self._sizes)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)
