"""Let many threads drive one single-threaded state machine, none of them waiting for another.

This is the reorder buffer's try-lock idea on its own: events go into an inbox, and whichever thread finds
nobody at work applies all of them, its own and the others'. The machine stays pure and knows nothing of
threads; the locking is here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.order.primitives import EMPTY, Fifo, Primitives

E = TypeVar("E")


class Combiner(Generic[E]):
    """Apply submitted events one at a time, in the order in which they entered the inbox."""

    def __init__(self, primitives: Primitives, apply: Callable[[E], None]) -> None:
        self._inbox: Fifo[E] = primitives.fifo("inbox")
        self._turn = primitives.try_lock("turn")
        self._apply = apply

    def submit(self, event: E) -> None:
        """Leave an event, and apply what is there unless another thread is doing that.

        On return the event has been applied, or the thread that is applying will come to it: that thread
        looks at the inbox again after it has given up its turn. Should applying raise, the event that
        raised is gone and the thread that was applying gets the error; the others' events stay.
        """
        self._inbox.push(event)
        while self._turn.try_acquire():
            try:
                while (waiting := self._inbox.pop()) is not EMPTY:
                    self._apply(waiting)
            finally:
                self._turn.release()
            if self._inbox.size() == 0:
                return
