"""What ties a controller to a live flow: statistics in, decisions out to whoever can carry them out.

The controllers themselves are in `elastic` and know no engine. An adapter here says what one of them is told about the
last period, or that it is not its turn, and does what it decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from penstock.elastic.base import Action, Controller
from penstock.pe.statistics import ElementStats, OperatorStats


@dataclass(frozen=True)
class Period:
    """The time from one decision to the next."""

    before: ElementStats
    now: ElementStats
    quiet: Mapping[str, int] = field(default_factory=dict)
    """For each adapter, how many periods ago it last changed something, or began; 0 is in this very step."""
    searching: frozenset[str] = frozenset()
    """The adapters whose controllers are comparing what they could set, and need everything else to stand still."""

    @property
    def seconds(self) -> float:
        """How long the period was."""
        return self.now.at - self.before.at

    @property
    def rate(self) -> float:
        """Rows a second, summed over all operators."""
        rows = sum(now.rows_in - (0 if before is None else before.rows_in) for now, before in self._operators())
        return rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def worked(self) -> float:
        """Seconds that workers spent in operators."""
        return sum(now.wall - (0.0 if before is None else before.wall) for now, before in self._operators())

    def _operators(self) -> Iterator[tuple[OperatorStats, OperatorStats | None]]:
        """Yield the operators at the end of the period, each with what it had done before; some went with a query."""
        before = {each.name: each for each in self.before.operators}
        for each in self.now.operators:
            yield each, before.get(each.name)

    def operator(self, name: str) -> tuple[OperatorStats | None, OperatorStats | None]:
        """Return what an operator had done at the end of the period and at its beginning, if it was there."""
        found = [
            next((each for each in stats.operators if each.name == name), None) for stats in (self.now, self.before)
        ]
        return found[0], found[1]

    def unchanged(self, name: str, periods: int) -> bool:
        """Tell whether an adapter has changed nothing for so many periods; one that is not there never does."""
        return self.quiet.get(name, periods) >= periods

    def settled(self, name: str, periods: int) -> bool:
        """Tell whether an adapter has changed nothing for so many periods, and is not about to."""
        return name not in self.searching and self.unchanged(name, periods)


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
