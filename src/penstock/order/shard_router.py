"""Decide where items go while shards move between workers: Elasticutor's receiver as a pure state machine.

A shard is in one of two states:

- *settled*: its items go straight to the queue of the worker that the table names;
- *moving*: a label is on its way through the old worker's queue, behind everything that worker still has
  to do for the shard, and new items are held back here.

When the label comes out, the old worker has finished with the shard: the table changes, the held items go
to the new worker, and the shard is settled again. Other shards never notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RoutedItem(Generic[T]):
    """An item of a shard, to be processed."""

    shard: int
    payload: T


@dataclass(frozen=True, slots=True)
class Label:
    """The mark that ends a shard's stay with a worker; it has nothing to process."""

    shard: int


Entry: TypeAlias = RoutedItem[T] | Label
Delivery: TypeAlias = tuple[int, Entry[T]]
"""An instruction: append this entry to that worker's queue."""


@dataclass(slots=True)
class _Move(Generic[T]):
    to: int
    held: list[RoutedItem[T]] = field(default_factory=list)


class ShardRouter(Generic[T]):
    """Turn items, reassignments and returned labels into deliveries, to be carried out in order."""

    def __init__(self, routes: Sequence[int], arriving: bool = False) -> None:
        """Begin with a table; with `arriving`, every shard is on its way in from elsewhere and has a label there."""
        self._routes = list(routes)
        self._moving: dict[int, _Move[T]] = {shard: _Move(to) for shard, to in enumerate(routes) if arriving}

    @property
    def routes(self) -> tuple[int, ...]:
        """The worker of each shard; a moving shard is still with its old one."""
        return tuple(self._routes)

    @property
    def moving(self) -> dict[int, tuple[int, int]]:
        """For each moving shard, where it goes and how many items are held back for it."""
        return {shard: (move.to, len(move.held)) for shard, move in self._moving.items()}

    def route(self, item: RoutedItem[T]) -> list[Delivery[T]]:
        """Deliver an item, or hold it back while its shard moves."""
        move = self._moving.get(item.shard)
        if move is None:
            return [(self._routes[item.shard], item)]
        move.held.append(item)
        return []

    def reassign(self, shard: int, to: int) -> list[Delivery[T]]:
        """Begin to move a shard; one that is moving already gets a new destination, not a second label."""
        move = self._moving.get(shard)
        if move is not None:
            move.to = to
            return []
        if self._routes[shard] == to:
            return []
        self._moving[shard] = _Move(to)
        return [(self._routes[shard], Label(shard))]

    def labelled(self, shard: int) -> list[Delivery[T]]:
        """Note that a label has come out of the old worker's queue, and settle the shard."""
        move = self._moving.pop(shard)
        self._routes[shard] = move.to
        return [(move.to, item) for item in move.held]
