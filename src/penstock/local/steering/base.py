"""What ties a controller to a live flow: statistics in, decisions out to whoever can carry them out.

The controllers themselves are in `elastic` and know no engine. An adapter here says what one of them is told about the
last period, or that it is not its turn, and does what it decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from penstock.elastic.base import Action, Controller
from penstock.statistics import FlowStats


@dataclass(frozen=True)
class Period:
    """The time from one decision to the next."""

    before: FlowStats
    now: FlowStats
    quiet: Mapping[str, int] = field(default_factory=dict)
    """For each adapter, how many periods ago it last changed something, or began; 0 is in this very step."""
    searching: Set[str] = frozenset()
    """The adapters whose controllers are comparing what they could set, and need everything else to stand still."""

    @cached_property
    def done(self) -> FlowStats:
        return self.now.since(self.before)

    @property
    def seconds(self) -> float:
        """How long the period was."""
        return self.now.at - self.before.at

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
