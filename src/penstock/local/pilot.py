"""Steer a flow while it runs: measure, let each controller decide in its turn, act, and keep every decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from penstock.elastic.journal import Journal
from penstock.local.steering.base import Period, Steering
from penstock.pe.statistics import ElementStats

PERIOD = 2.0
"""Seconds from decision to decision. Streams takes 10; a flow in one process settles sooner."""


class FlowPilot:
    """Step several controllers every so often, in a thread of its own.

    They take turns in the order given, each with what those before it have just changed, so that one whose effect
    must be seen alone can wait until the others are quiet.
    """

    def __init__(
        self, statistics: Callable[[], ElementStats], steerings: Sequence[Steering], *, period: float | None = None
    ) -> None:
        self._statistics, self._steerings = statistics, steerings
        self._period = PERIOD if period is None else period
        self._before = statistics()
        self._quiet = {steering.name: 0 for steering in steerings}
        self._periods = 0
        self.journal = Journal()
        for steering in steerings:
            self.journal.begin(steering.name, steering.controller, 0, self._before.at)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="penstock-pilot", daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _loop(self) -> None:
        while not self._end.wait(self._period):
            self.step()

    def begin_period(self) -> None:
        """Forget what was done since the last decision, because somebody else has changed something meanwhile."""
        self._before = self._statistics()

    def step(self) -> None:
        """Look at what was done since the last time, and decide."""
        now = self._statistics()
        before, self._before = self._before, now
        self._periods += 1
        self._quiet = {name: periods + 1 for name, periods in self._quiet.items()}
        for steering in self._steerings:
            seen = steering.measure(Period(before, now, dict(self._quiet)))
            if seen is None:
                continue
            actions = self.journal.step(steering.name, seen, self._periods, now.at)
            for action in actions:
                steering.act(action)
            # What ends where it began, or nowhere, is a report.
            if any(action.after not in (None, action.before) for action in actions):
                self._quiet[steering.name] = 0
