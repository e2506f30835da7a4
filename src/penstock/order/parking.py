"""Let idle workers sleep, and wake one when there is work.

Polling alone costs up to a back-off period of latency; waking alone loses the wake-up that comes between
"I found nothing" and "I sleep". So a worker *announces* itself first, then looks once more, then sleeps:
work that came before the second look is found by it, and work that comes later finds the announcement.
"""

from __future__ import annotations

from penstock.order.primitives import EMPTY, Cell, Fifo, Primitives


class ParkingLot:
    """Keep the list of idle workers: `announce`, look for work again, then `sleep` or `withdraw`."""

    def __init__(self, primitives: Primitives, workers: int) -> None:
        self._idle: Fifo[int] = primitives.fifo("idle")
        self._parkers = [primitives.parker(f"parker[{worker}]") for worker in range(workers)]
        self._primitives = primitives
        self._held: Cell[bool] = primitives.cell("held", False)

    def grow(self) -> int:
        """Make room for one more worker, and return its number; before it is started, and by one thread."""
        self._parkers.append(self._primitives.parker(f"parker[{len(self._parkers)}]"))
        return len(self._parkers) - 1

    def hold(self, held: bool) -> None:
        """Leave workers asleep, because somebody else is at the work, or no more.

        Who holds them looks for work after letting go: what came in between woke nobody.
        """
        self._held.store(held)

    def announce(self, worker: int) -> None:
        """Enter the list of idle workers; look for work once more after this and before sleeping."""
        self._idle.push(worker)

    def sleep(self, worker: int, timeout: float | None) -> bool:
        """Sleep until woken or until the time is over, and leave the list; say whether woken.

        A wake-up left over from earlier ends a sleep too, so a sleeper always leaves the list itself: an
        entry of a worker that is not idle would swallow a wake-up that another one needs.
        """
        woken = self._parkers[worker].park(timeout)
        return not self._idle.discard(worker) or woken

    def withdraw(self, worker: int) -> None:
        """Leave the list because the second look found work.

        Whoever has taken this worker from the list meanwhile meant to wake somebody for *other* work; that
        wake-up is passed on, or the other work would wait for this worker although somebody is idle.
        """
        if not self._idle.discard(worker):
            self.wake_one()

    def wake_one(self) -> bool:
        """Wake the worker that has been idle longest; False if none is idle, or all are to sleep on."""
        if self._held.load():
            return False
        worker = self._idle.pop()
        if worker is EMPTY:
            return False
        self._parkers[worker].unpark()
        return True

    def wake(self, worker: int) -> None:
        """Wake one particular worker, idle or not: to stop it, or because only it can do the work."""
        self._parkers[worker].unpark()


class Backoff:
    """Wait ten times longer each time, from nothing up to a limit (10 ms in Streams)."""

    def __init__(self, limit: float = 0.010, shortest: float = 0.00001) -> None:
        self._limit = limit
        self._shortest = shortest
        self._last = 0.0

    def next(self) -> float:
        """Return how long to wait now, in seconds."""
        wait = self._last
        self._last = min(self._limit, max(self._shortest, wait * 10))
        return wait
