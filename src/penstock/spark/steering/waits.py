"""Steer how many rows are in flight in operators that wait, where the user did not say."""

from __future__ import annotations

from penstock.elastic.journal import Journal
from penstock.elastic.waiting import WaitingConcurrency, WaitingStatistics
from penstock.operators.stateless import PerRow, Unasked, most_in_flight
from penstock.plan import Plan
from penstock.spark.steering.measured import is_telling
from penstock.statistics import FlowStats

LEAST_ROWS = 32
"""An epoch with fewer rows a task says nothing of how fast they could be."""


class WaitingOperators:
    """The operators that wait and that the user left open."""

    def __init__(self, plan: Plan, journal: Journal, epoch: int) -> None:
        self._journal = journal
        self.in_flight: dict[str, int] = {}
        for node in plan.nodes.values():
            operator = node.operator
            if isinstance(operator, PerRow) and isinstance(operator.in_flight, Unasked):
                rows = int(operator.in_flight)
                most = most_in_flight(operator.is_async)
                controller = WaitingConcurrency(high=most, initial=rows, largest_guess=rows)
                journal.begin(_name(node.name), controller, epoch)
                self.in_flight[node.name] = rows

    def took(self, done: FlowStats) -> None:
        """See an epoch, and choose for the next."""
        if not is_telling(done):
            return
        for name in self.in_flight:
            rows, wall, flight, cpu = done.operators[name].waits
            if wall <= 0 or rows < LEAST_ROWS * done.tasks:
                continue
            # A task's own rate, so that more tasks do not look like more rows in flight.
            seen = WaitingStatistics(rows / wall, max(0.0, flight - cpu) / rows, cpu / rows)
            for action in self._journal.step(_name(name), seen, done.epoch):
                if action.what == "in_flight" and isinstance(action.after, int):
                    self.in_flight[name] = action.after


def _name(operator: str) -> str:
    return f"{operator}/in_flight"
