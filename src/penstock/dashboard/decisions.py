"""Keep a run's decisions for the page: numbered, with the time of day, and without values of rows.

What the page marks is everything that was changed or reported. Steps that changed nothing are counted only; the log on
disk has them, because a replay needs them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.elastic.codec import plain
from penstock.elastic.decisions import HOLD, START, Decision

Json = dict[str, Any]

KEPT = 2000
"""Decisions that the page keeps; all of them are in the history."""
HIDDEN = "hidden"


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

    def __init__(self, keys: bool = False) -> None:
        self._keys = keys
        """Whether hot keys are named: they are values of rows."""
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
                seen = each.seen if self._keys else without_keys(each.seen)
                return {**self._short(each), "seen": plain_or_text(seen)}
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
            "why": decision.why if self._keys else without_hot_keys(decision),
            "start": decision.what == START,
        }


def without_keys(seen: Any) -> Any:
    """Return statistics with the names of keys left out: they are values of rows."""
    if isinstance(seen, dict):
        return {
            name: HIDDEN if name == "key" and not isinstance(value, (dict, list)) else without_keys(value)
            for name, value in seen.items()
        }
    return [without_keys(each) for each in seen] if isinstance(seen, (list, tuple)) else seen


def without_hot_keys(decision: Decision) -> str:
    """Return the reason of a decision; one about a hot shard ends with the names of its keys."""
    head, found, _ = decision.why.partition("hottest keys:")
    return f"{head}hottest keys: {HIDDEN}" if found and decision.what == "hot_shard" else decision.why


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
    ticks: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the time of day of a decision: engines log the time of their own clock, or none."""
    now, inside = wall(), ticks()
    if decision.time is None:
        return now
    if decision.time > 1e9:  # it is the time of day already
        return decision.time
    ago = inside - decision.time
    return now - ago if 0 <= ago < now else now
