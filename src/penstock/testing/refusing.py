"""Ports that refuse: every other push finds its queue full."""

from __future__ import annotations

from penstock.order.primitives import TryLock
from penstock.order.threads import Threads


class Refusing(Threads):
    """Primitives for real threads, with port queues that take only every other batch that is pushed.

    A push that does not get the producer's lock is refused just as one that finds the queue full; whoever pushes must
    keep the batch, make room below, and come again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def try_lock(self, name: str, permits: int | None = 1) -> TryLock:
        """Make a try-lock; a producer's is the moody one."""
        lock = super().try_lock(name, permits)
        return _EveryOther(lock, self) if name.endswith(".producer") else lock

    def pause(self, seconds: float) -> None:
        """Let other threads run, without waiting: the next push is taken."""
        super().pause(0)


class _EveryOther:
    def __init__(self, lock: TryLock, owner: Refusing) -> None:
        self._lock, self._owner, self._asked = lock, owner, 0

    def try_acquire(self) -> bool:
        self._asked += 1
        if self._asked % 2:
            self._owner.refused += 1
            return False
        return self._lock.try_acquire()

    def release(self) -> None:
        self._lock.release()
