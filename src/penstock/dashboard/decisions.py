"""Keep a run's decisions for the page: numbered, with the time of day.

What the page marks is everything that was changed or reported. Steps that changed nothing are counted only; the log on
disk has them, because a replay needs them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.clock import as_real, perf_counter
from penstock.elastic.codec import plain
from penstock.elastic.decisions import HOLD, START, Decision

Json = dict[str, Any]

KEPT = 2000
"""Decisions that the page keeps; all of them are in the history."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A decision with its number and the time of day."""

    number: int
    at: float
    decision: Decision
    seen: Any
    """The statistics of its step."""


class DecisionBook:
    """Number the decisions of a run as they come."""

    def __init__(self) -> None:
        self._kept: deque[Marked] = deque(maxlen=KEPT)
        self._seen: dict[str, Any] = {}
        """The statistics of the last step of each controller."""
        self.total = 0
        self.held = 0

    def add(self, decision: Decision, at: float) -> None:
        """Take in the next decision."""
        if decision.statistics is not None:
            self._seen[decision.controller] = decision.statistics
        if decision.what == HOLD:
            self.held += 1
            return
        self._kept.append(Marked(self.total, at, decision, self._seen.get(decision.controller)))
        self.total += 1

    def after(self, number: int, most: int = 500) -> list[Json]:
        """Return short descriptions of the decisions from a number on, the last ones where there are too many."""
        return [self._short(each) for each in list(self._kept) if each.number >= number][-most:]

    def get(self, number: int) -> Json | None:
        """Return one decision with what it saw."""
        for each in list(self._kept):
            if each.number == number:
                return {**self._short(each), "seen": plain_or_text(each.seen)}
        return None

    def _short(self, each: Marked) -> Json:
        decision = each.decision
        return {
            "number": each.number,
            "at": round(each.at, 3),
            "controller": decision.controller,
            "step": decision.step,
            "epoch": decision.epoch,
            "what": decision.what,
            "target": decision.target,
            "before": decision.before,
            "after": decision.after,
            "why": decision.why,
            "start": decision.what == START,
        }


def plain_or_text(value: Any) -> Any:
    """Return a value as plain JSON, as text where it has no such form."""
    if isinstance(value, dict):
        return {str(name): plain_or_text(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_or_text(each) for each in value]
    try:
        return plain(value)
    except TypeError:
        return str(value)


def wall_time(
    decision: Decision,
    wall: Callable[[], float] = time.time,
    ticks: Callable[[], float] = perf_counter,
) -> float:
    """Return the time of day of a decision: engines log the time of their own clock, or none."""
    now, inside = wall(), ticks()
    if decision.time is None:
        return now
    if decision.time > 1e9:  # it is the time of day already
        return decision.time
    ago = as_real(inside - decision.time)
    return now - ago if 0 <= ago < now else now
