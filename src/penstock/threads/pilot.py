"""Steer a flow while it runs: measure, let each controller decide in its turn, act, and keep every decision.

The controllers themselves are in `elastic` and know no engine. A steering says what one of them is told about the last
period, or that it is not its turn, and does what it decides.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from penstock.elastic.base import Action, Actions, Controller
from penstock.elastic.journal import Journal
from penstock.elastic.pilot import Period
from penstock.statistics import FlowStats


class Steering(Protocol):
    """One controller on a live flow."""

    @property
    def name(self) -> str:
        """What its lines in the log are called."""

    @property
    def controller(self) -> Controller[Any, Any]:
        """What decides."""

    def measure(self, period: Period) -> Any | None:
        """Return what the controller is to see; None where it is not its turn."""

    def act(self, action: Action) -> None:
        """Do what it decided."""


@runtime_checkable
class Searching(Protocol):
    """A steering whose controller compares what it could set, for which everything else is to stand still."""

    def searching(self, state: Any) -> bool:
        """Tell whether it is comparing now."""


log = logging.getLogger(__name__)

PERIOD = 2.0
"""Seconds from decision to decision. Streams takes 10; a flow in one process settles sooner."""
SEARCH_PERIOD = 0.5
"""The same while numbers of workers are compared, five looks or more: a flow should have its workers in seconds."""


class FlowPilot:
    """Step several controllers every so often, in a thread of its own.

    They take turns in the order given, each with what those before it have just changed, so that one whose effect
    must be seen alone can wait until the others are quiet. Any thread may hand over a steering or take one away.
    """

    def __init__(
        self, statistics: Callable[[], FlowStats], steerings: Sequence[Steering], *, period: float | None = None
    ) -> None:
        self._statistics = statistics
        self._period = PERIOD if period is None else period
        self._before = statistics()
        self._steerings: list[Steering] = []
        self._quiet: dict[str, int] = {}
        self._searching: set[str] = set()
        self._moves = True
        self._periods = 0
        self.journal = Journal()
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = False
        self.add(steerings)

    def start(self) -> None:
        """Begin to measure, as soon as there is something to steer."""
        with self._lock:
            self._started = True
            self._begin()

    def _begin(self) -> None:
        if self._started and self._steerings and self._thread is None and not self._end.is_set():
            self._thread = threading.Thread(target=self._loop, name="penstock-pilot", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        with self._lock:
            self._end.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def add(self, steerings: Sequence[Steering]) -> None:
        """Steer something more from now on, behind what there is."""
        with self._lock:
            for steering in steerings:
                self._steerings.append(steering)
                self._quiet[steering.name] = 0
                if isinstance(steering, Searching):
                    self._searching.add(steering.name)  # until its first look says otherwise
                self.journal.begin(steering.name, steering.controller, self._periods, self._before.at)
            self._begin()

    def begin(self, name: str, controller: Controller[Any, Any]) -> None:
        """Let somebody else say when a controller decides, with `decide`; what it decides is logged here."""
        with self._lock:
            self.journal.begin(name, controller, self._periods, self._before.at)

    def decide(self, name: str, seen: Any, at: float) -> Actions | None:
        """Let such a controller decide at that time; return what to do.

        None if others decide just now: whoever carries out what they decide may be who asks here, so it must not wait.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self.journal.step(name, seen, self._periods, at) if self.journal.has(name) else ()
        finally:
            self._lock.release()

    def leave(self, names: Collection[str]) -> None:
        """Steer something no more: it is gone, or somebody has taken it into their own hands."""
        with self._lock:
            self._leave(names)

    def _leave(self, names: Collection[str]) -> None:
        self._steerings = [each for each in self._steerings if each.name not in names]
        self._searching.difference_update(names)
        for name in names:
            self._quiet.pop(name, None)
            self.journal.end(name)

    @property
    def names(self) -> list[str]:
        """What is steered, in the order of its turns."""
        return [each.name for each in self._steerings]

    def _loop(self) -> None:
        while not self._end.wait(self.wait):
            self.step()

    @property
    def wait(self) -> float:
        """The seconds until the next decision."""
        return min(self._period, SEARCH_PERIOD) if self._searching and self._moves else self._period

    def begin_period(self) -> None:
        """Forget what was done since the last decision, because somebody else has changed something meanwhile."""
        with self._lock:
            self._before = self._statistics()

    def step(self) -> None:
        """Look at what was done since the last time, and decide."""
        with self._lock:
            now = self._statistics()
            before, self._before = self._before, now
            # Where nothing moves, nothing is found out.
            self._moves = now.batches_out > before.batches_out or _begun(now) > _begun(before)
            self._periods += 1
            self._quiet = {name: periods + 1 for name, periods in self._quiet.items()}
            period = Period(before, now, self._quiet, self._searching)
            for steering in list(self._steerings):
                try:
                    self._turn(steering, period)
                except Exception:
                    # The flow goes on as it is, and so does everything else that is steered.
                    log.exception("penstock: %s is left as it is, for its controller failed", steering.name)
                    self._leave([steering.name])

    def _turn(self, steering: Steering, period: Period) -> None:
        seen = steering.measure(period)
        if seen is None:
            return
        actions = self.journal.step(steering.name, seen, self._periods, period.now.at)
        for action in actions:
            steering.act(action)
        # What ends where it began, or nowhere, is a report.
        if any(action.after not in (None, action.before) for action in actions):
            self._quiet[steering.name] = 0
        if isinstance(steering, Searching):
            searches = steering.searching(self.journal.state(steering.name))
            (self._searching.add if searches else self._searching.discard)(steering.name)


def _begun(stats: FlowStats) -> int:
    """Count the rows of functions that wait: the first batch of them may take long."""
    return sum(each.begun for each in stats.operators.values())
