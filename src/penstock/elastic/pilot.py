"""Steer a run: from each period, let the controllers decide in turn, do what they decide, and keep every decision.

A *lever* ties one controller to one engine: it says what the controller is to see of a period, or that it is not its
turn, and does what it decides. The *pilot* is the same for every engine and for the simulator; when a period ends is
for them to say.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from penstock.elastic.base import Action, Controller
from penstock.elastic.decisions import Journal
from penstock.statistics import FlowStats

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NextEpoch:
    """What is known of an epoch that is about to begin."""

    rows: int | None
    """None where it is not known."""
    cores: int
    at: float
    """When its rows were taken."""
    most: int | None = None
    """The most tasks that there is room for; None where that is not known."""
    tasks: tuple[int, ...] = ()
    """Of each stage, once that is decided."""
    began: float | None = None
    """When the rows of the first epoch of the run were taken."""


@dataclass(frozen=True)
class Period:
    """The time from one decision to the next."""

    before: FlowStats
    now: FlowStats
    quiet: Mapping[str, int] = field(default_factory=dict)
    """For each lever, how many periods ago it last changed something, or began; 0 is in this very step."""
    searching: Set[str] = frozenset()
    """The levers whose controllers are comparing what they could set, and need everything else to stand still."""
    _: KW_ONLY
    epoch: int | None = None
    """The epoch that decisions are for, where periods are epochs; what `now` has is of the last one alone then."""
    ahead: NextEpoch | None = None

    @cached_property
    def done(self) -> FlowStats:
        return self.now.since(self.before) if self.epoch is None else self.now

    @property
    def seconds(self) -> float:
        return self.now.at - self.before.at

    def unchanged(self, name: str, periods: int) -> bool:
        """Tell whether a lever has changed nothing for so many periods; one that is not there never does."""
        return self.quiet.get(name, periods) >= periods

    def settled(self, name: str, periods: int) -> bool:
        """Tell whether a lever has changed nothing for so many periods, and is not about to."""
        return name not in self.searching and self.unchanged(name, periods)


class Lever(ABC):
    """One controller on a live flow."""

    name: str
    """What its lines in the log are called."""
    controller: Controller[Any, Any]
    state: Any = None
    """The controller's, since the pilot began with it."""
    sets: ClassVar[str] = ""
    """What a decision is called that has a number for `set_number`; "" where there is none."""
    set_number: Callable[[int], object]

    @abstractmethod
    def read(self, period: Period) -> Any | None:
        """Return what the controller is to see; None where it is not its turn."""

    def act(self, action: Action) -> None:
        """Do what it decided; nothing where the engine asks for the state."""
        if action.what == self.sets and isinstance(action.after, int):
            self.set_number(action.after)

    def detailed(self, seen: Any) -> Any:
        """Return the same with what is too long to log where nothing changes: a change is decided by that."""
        return seen

    @property
    def searching(self) -> bool:
        """Whether the controller compares what it could set, for which everything else is to stand still."""
        return False


class Pilot:
    """Let the controllers of some levers decide, in the order in which they were added.

    Each sees what those before it have just changed, so that one whose effect must be seen alone can wait until the
    others are quiet. One thread at a time.
    """

    def __init__(self, levers: Iterable[Lever] = (), start: FlowStats | None = None, epoch: int | None = None) -> None:
        """Begin with what was done so far, or with the epoch that was the last."""
        self.journal = Journal()
        self.levers: list[Lever] = []
        self.searching: set[str] = set()
        self.periods = 0
        self._quiet: dict[str, int] = {}
        self.before = start or FlowStats()
        self._epoch = epoch
        self.add(levers)

    def add(self, levers: Iterable[Lever]) -> None:
        """Steer something more from now on, after what there is."""
        for lever in levers:
            self.levers.append(lever)
            self._quiet[lever.name] = 0
            self.begin(lever)
            self._note(lever)

    def begin(self, lever: Lever) -> None:
        """Log what a lever decides that has its turns at times of its own."""
        if self._epoch is None:
            self.journal.begin(lever.name, lever.controller, self.periods, self.before.at)
        else:
            self.journal.begin(lever.name, lever.controller, self._epoch)
        lever.state = self.journal.state(lever.name)

    def leave(self, names: Collection[str]) -> None:
        """Steer something no more: it is gone, or somebody has taken it into their own hands."""
        self.levers = [each for each in self.levers if each.name not in names]
        self.searching.difference_update(names)
        for name in names:
            self._quiet.pop(name, None)
            self.journal.end(name)

    def step(self, now: FlowStats) -> None:
        """End a period: let all levers have their turn."""
        before, self.before = self.before, now
        self.periods += 1
        self._quiet = {name: periods + 1 for name, periods in self._quiet.items()}
        period = Period(before, now, self._quiet, self.searching)
        for lever in list(self.levers):
            self.turn(lever, period)

    def turn(self, lever: Lever, period: Period) -> None:
        """Let one lever have its turn; where that fails, what it steers stays as it is, and all else goes on."""
        try:
            self._turn(lever, period)
        except Exception:
            log.exception("penstock: %s is left as it is, for its controller failed", lever.name)
            self.leave([lever.name])

    def _turn(self, lever: Lever, period: Period) -> None:
        name = lever.name
        if not self.journal.has(name) or (seen := lever.read(period)) is None:
            return
        moment = (self.periods, period.now.at) if period.epoch is None else (period.epoch, None)
        actions = self.journal.step(name, seen, *moment, detailed=lever.detailed)
        lever.state = self.journal.state(name)
        for action in actions:
            lever.act(action)
        # What ends where it began, or nowhere, is a report.
        if any(action.after not in (None, action.before) for action in actions):
            self._quiet[name] = 0
        self._note(lever)

    def _note(self, lever: Lever) -> None:
        (self.searching.add if lever.searching else self.searching.discard)(lever.name)
