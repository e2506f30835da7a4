"""Run the controllers of a flow by name, and keep what they decided for as long as it can be replayed and no longer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.elastic.base import Actions, Controller
from penstock.elastic.decisions import Decision, Recorded, plain

KEPT = 500
"""A chapter of the journal has as many epochs, or periods; the last two chapters are kept."""
MOST_BYTES = 8 << 20
"""A chapter that would be longer than this on disk ends sooner: a thousand operators have much to say, and what keeps
the newest part of it must find the beginning of a chapter in there."""
_LINE_BYTES = 250
"""About what a line takes without its statistics."""


class Journal:
    """The controllers of a run, each under its name, and their decisions.

    A moment is the number of an epoch, or of a period that has its `time` in seconds, too. A run may last for ever, so
    old decisions go. A chapter begins with a start line of every controller that holds the state it has by then: any
    chapter can be replayed without the ones before.
    """

    def __init__(self) -> None:
        self._controllers: dict[str, Recorded[Any, Any]] = {}
        # How many lines are gone, the chapter before, and this one. One reference, so that who reads it while a chapter
        # ends sees all of it as of one moment.
        self._book: tuple[int, list[Decision], list[Decision]] = (0, [], [])
        self._since = self._bytes = 0

    @property
    def decisions(self) -> list[Decision]:
        """Return what was decided, oldest first; chapters before the last two are gone."""
        return self.decisions_since(0)[0]

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        """Return what was decided behind so many decisions, as far as it is kept, and how many there are by now."""
        dropped, before, chapter = self._book
        kept = [*before, *chapter]
        return kept[max(0, known - dropped) :], dropped + len(kept)

    def begin(self, name: str, controller: Controller[Any, Any], moment: int, time: float | None = None) -> None:
        self._controllers[name], line = Recorded.begin(name, controller, *_stamp(moment, time))
        self._book[2].append(line)

    def has(self, name: str) -> bool:
        """Tell whether a controller of that name decides."""
        return name in self._controllers

    def end(self, name: str) -> None:
        """Let a controller go: later chapters begin without it."""
        self._controllers.pop(name, None)

    def state(self, name: str) -> Any:
        return self._controllers[name].state

    def step(
        self,
        name: str,
        statistics: Any,
        moment: int,
        time: float | None = None,
        *,
        detailed: Callable[[Any], Any] = lambda seen: seen,
    ) -> Actions:
        """Let a controller decide; return what to do.

        Where it changes something it decides by what `detailed` makes of the statistics: the same, with what is too
        long to log where nothing changes.
        """
        if moment - self._since >= KEPT or self._bytes >= MOST_BYTES:
            self._turn(moment, time)
        known, actions, lines = self._controllers[name].step(statistics, *_stamp(moment, time))
        if any(action.after is not None for action in actions) and (full := detailed(statistics)) is not statistics:
            known, actions, lines = self._controllers[name].step(full, *_stamp(moment, time))
        self._controllers[name] = known
        self._book[2].extend(lines)
        self._bytes += len(json.dumps(lines[0].statistics)) + _LINE_BYTES * len(lines)
        return actions

    def _turn(self, moment: int, time: float | None) -> None:
        """Begin a new chapter."""
        dropped, before, chapter = self._book
        starts = []
        for name, known in self._controllers.items():
            _, line = Recorded.begin(name, known.controller, *_stamp(moment, time))
            why = f"{known.controller.name} goes on"
            seen = {**line.statistics, "state": plain(known.state)}
            starts.append(replace(line, step=known.steps, why=why, statistics=seen))
        self._book, self._since, self._bytes = (dropped + len(before), chapter, starts), moment, 0


def _stamp(moment: int, time: float | None) -> tuple[float | None, int | None]:
    """Return the time and the epoch of a line: a period has the one, an epoch the other."""
    return (None, moment) if time is None else (time, None)
