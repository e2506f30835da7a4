"""What a threading model is, and a thread of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import Literal, Protocol

from penstock.statistics import WorkerStats
from penstock.threads.batch import Batch
from penstock.threads.stations import InputPort, Station

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


ModelName = Literal["manual", "dedicated", "dynamic", "bound"]
Deliver = Callable[[InputPort, Batch], None]


class Model(Protocol):
    """A way to run the stations of an element."""

    name: ModelName

    @property
    def active(self) -> int:
        """How many workers may be in operators at once."""

    def start(self) -> None:
        """Start the threads."""

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch from a thread that is not the model's own; may run operators to make room for it."""

    def standing_in(self) -> AbstractContextManager[Deliver]:
        """Return a context with a way to deliver the one batch that is under way; the calling thread may run it."""

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Run more stations, whose first batch is number `first`."""

    def retire(self, station: Station) -> None:
        """Forget a station that gets nothing any more."""

    def stop(self) -> None:
        """End the threads and wait for them; what they are in the middle of is finished."""

    def workers(self) -> list[WorkerStats]:
        """Tell what the workers are doing."""
