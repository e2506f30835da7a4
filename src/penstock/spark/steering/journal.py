"""Run controllers by name, and keep what they decided for as long as it can be replayed and no longer."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import Any

from penstock.elastic.base import Actions, Controller
from penstock.elastic.codec import plain
from penstock.elastic.decisions import Decision, Pilot

KEPT_EPOCHS = 500
"""A chapter of the journal has as many epochs; the last two chapters are kept."""


class Journal:
    """The controllers of a run, each under its name, and their decisions.

    A run may last for ever, so old decisions go. A chapter begins with a start line of every controller that holds the
    state it has by then: any chapter can be replayed without the ones before.
    """

    def __init__(self) -> None:
        self._pilots: dict[str, Pilot[Any, Any]] = {}
        self._before: list[Decision] = []
        self._chapter: list[Decision] = []
        self._since = 0
        self._dropped = 0
        self._turning = Lock()

    @property
    def decisions(self) -> list[Decision]:
        """Return what was decided, oldest first; chapters before the last two are gone."""
        return self.decisions_since(0)[0]

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        """Return what was decided behind so many decisions, as far as it is kept, and how many there are by now."""
        with self._turning:
            kept = [*self._before, *self._chapter]
            return kept[max(0, known - self._dropped) :], self._dropped + len(kept)

    def begin(self, name: str, controller: Controller[Any, Any], epoch: int) -> None:
        """Start a controller."""
        self._pilots[name], line = Pilot.begin(name, controller, epoch=epoch)
        self._chapter.append(line)

    def state(self, name: str) -> Any:
        """Return the state of a controller."""
        return self._pilots[name].state

    def step(self, name: str, statistics: Any, epoch: int) -> Actions:
        """Let a controller decide; return what to do."""
        if epoch - self._since >= KEPT_EPOCHS:
            self._turn(epoch)
        self._pilots[name], actions, lines = self._pilots[name].step(statistics, epoch=epoch)
        self._chapter += lines
        return actions

    def _turn(self, epoch: int) -> None:
        """Begin a new chapter."""
        with self._turning:
            self._dropped += len(self._before)
            self._before, self._chapter, self._since = self._chapter, [], epoch
        for name, pilot in self._pilots.items():
            _, line = Pilot.begin(name, pilot.controller, epoch=epoch)
            why = f"{pilot.controller.name} goes on"
            seen = {**line.statistics, "state": plain(pilot.state)}
            self._chapter.append(replace(line, step=pilot.steps, why=why, statistics=seen))
