"""Measure where a task's time goes: reading, user code, state, shuffle, sink; and from that an epoch's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from penstock.clock import perf_counter, thread_time

Part = Literal["read", "user", "state", "shuffle", "sink"]
PARTS: tuple[Part, ...] = ("read", "user", "state", "shuffle", "sink")
FIXED = "fixed"
"""What is left: Spark's own scheduling, starting tasks, moving bytes."""


@dataclass(slots=True)
class _Section:
    operator: str
    wall: float = 0.0
    cpu: float = 0.0
    """What sections inside this one took: it is theirs."""


class Spent:
    """Add up the seconds of one task, by part and by operator. A section may lie in another one."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.operators: dict[str, tuple[float, float]] = {}
        self._open: list[_Section] = []

    @contextmanager
    def on(self, part: Part, operator: str = "") -> Iterator[_Section]:
        """Count what is done inside; the operator may be set on what this gives, where it is known only then."""
        section = _Section(operator)
        self._open.append(section)
        wall, cpu = perf_counter(), thread_time()
        try:
            yield section
        finally:
            wall, cpu = perf_counter() - wall, thread_time() - cpu
            self._open.pop()
            if self._open:
                self._open[-1].wall += wall
                self._open[-1].cpu += cpu
            self.parts[part] = self.parts.get(part, 0.0) + wall - section.wall
            if section.operator:
                before = self.operators.get(section.operator, (0.0, 0.0))
                own = (wall - section.wall, cpu - section.cpu)
                self.operators[section.operator] = (before[0] + own[0], before[1] + own[1])

    def absorb(self, other: Spent, threads: int) -> None:
        """Add what was spent in one of so many threads of the same task: beside each other, they take as much less."""
        for part, seconds in other.parts.items():
            self.parts[part] = self.parts.get(part, 0.0) + seconds / threads
        for name, (wall, cpu) in other.operators.items():
            before = self.operators.get(name, (0.0, 0.0))
            self.operators[name] = (before[0] + wall, before[1] + cpu)


def operator_seconds(timings: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Add up the seconds (wall, CPU) of each operator over all tasks."""
    found: dict[str, tuple[float, float]] = {}
    for timing in timings:
        for name, (wall, cpu) in timing.get("operators", {}).items():
            before = found.get(name, (0.0, 0.0))
            found[name] = (before[0] + wall, before[1] + cpu)
    return found


def epoch_split(
    timings: Iterable[Mapping[str, Any]], seconds: float, publish: float, commit: float
) -> dict[str, float]:
    """Say where an epoch's seconds went.

    The tasks of a level run side by side and the next level waits for the last of them, so the last one's parts count.
    Where one task runs all levels, each has its own timing. The driver publishes the sinks and commits.
    """
    slowest: dict[Any, Mapping[str, Any]] = {}
    for timing in timings:
        level = timing["level"]
        if level not in slowest or timing.get("wall", 0.0) > slowest[level].get("wall", 0.0):
            slowest[level] = timing
    found: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for timing in slowest.values():
        for part, spent in timing.get("parts", {}).items():
            found[part] += spent
    found["sink"] += publish
    found["state"] += commit
    found[FIXED] = max(0.0, seconds - sum(found.values()))
    return found
