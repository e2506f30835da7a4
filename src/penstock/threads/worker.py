"""A thread that runs operators: a flag of its own says what it is to do next, and it tells what it is doing."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Literal

from penstock.statistics import WorkerStats

IDLE_SECONDS = 0.1
"""How long a worker sleeps at most before it looks around; it is woken when there is work, so this is a net."""


class Worker:
    """A thread with a flag of its own, which says what it is to do next."""

    def __init__(
        self,
        number: int,
        loop: Callable[[Worker], None],
        clock: Callable[[], float],
        crashed: Callable[[BaseException], None],
        own: bool = False,
    ) -> None:
        self._own = own
        self.number, self._clock, self._body, self._crashed = number, clock, loop, crashed
        self.suspended = self.leaving = False
        # In one reference, so that a thread that looks while it comes and goes sees all of it as of one moment.
        self._doing: tuple[str | None, float, float] = (None, 0.0, 0.0)
        """The operator that it is in, since when, and the seconds that it was in others before."""
        self.thread = Thread(target=self._run, name=f"penstock-worker-{number}", daemon=True)

    def _run(self) -> None:
        try:
            self._body(self)
        except BaseException as error:  # a worker that went without a word would leave the flow waiting for it
            self._crashed(error)

    def enter(self, operator: str) -> None:
        self._doing = (operator, self._clock(), self._doing[2])

    def leave(self) -> None:
        _, since, busy = self._doing
        self._doing = (None, since, busy + self._clock() - since)

    def view(self) -> WorkerStats:
        operator, since, busy = self._doing
        state: Literal["idle", "busy", "suspended"] = "busy" if operator else "suspended" if self.suspended else "idle"
        now = self._clock() - since if operator else 0.0
        return WorkerStats(self.number, state, operator, now, busy + now, self._own)
