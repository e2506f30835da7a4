"""Choose how many rows a waiting operator keeps in flight.

An operator that waits (a lookup, a remote model) leaves its worker free for other rows meanwhile. If a row
computes for c seconds and waits for w, then (c + w) / c rows in flight keep a worker busy: that is where the
search begins. What lies beyond depends on whom the operator waits for, so from there throughput decides, by
the trust and trends of `levels`: a service that slows down under more requests shows no gain and gets no more
of them. Where fewer rows come than may be in flight, their number is no limit, throughput is somebody else's,
and nothing is changed.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, in_words, things, time_text
from penstock.elastic.levels import Levels, LevelState

LIMITS = 0.5
"""The share of the allowed rows that are in flight in the mean, from which on the number may be the limit: rows
come in waves, so one that is reached at times is used by less than the whole."""


@dataclass(frozen=True, slots=True)
class WaitingStatistics:
    """Report one period of a waiting operator."""

    throughput: float
    wait_seconds: float
    """Waiting, mean a row."""
    cpu_seconds: float
    """Computing, mean a row."""
    workers: int = 1

    @property
    def in_flight(self) -> float:
        """Rows under way at a time, in the mean (Little's law)."""
        return self.throughput * (self.wait_seconds + self.cpu_seconds)


@dataclass(frozen=True, slots=True)
class WaitingState:
    """Hold the search, and whether it has been given its starting point."""

    levels: LevelState
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class WaitingConcurrency:
    """Hold the settings."""

    name: ClassVar[str] = "waiting_concurrency"

    low: int = 1
    high: int = 1024
    initial: int = 1
    largest_guess: int = 64
    """Where the search begins if rows hardly compute: the far side may not stand more at once."""
    sensitivity: float = 0.05
    load_change: float = 0.2
    _: KW_ONLY
    noise_limit: int = 5
    memory_limit: int = 8

    @property
    def search(self) -> Levels:
        """Return the settings of the level search; the guess takes the place of the unused samples."""
        return Levels(
            self.low, self.high, self.sensitivity, self.load_change, self.noise_limit, 0, memory_limit=self.memory_limit
        )

    def start(self) -> WaitingState:
        return WaitingState(LevelState(clamp(self.initial, self.low, self.high)))

    def guess(self, statistics: WaitingStatistics) -> int:
        """Return how many rows keep the workers busy, from waiting against computing time."""
        most = min(self.high, self.largest_guess)
        total = statistics.wait_seconds + statistics.cpu_seconds
        if statistics.cpu_seconds * most <= total * statistics.workers:
            return max(self.low, most)
        return clamp(math.ceil(statistics.workers * total / statistics.cpu_seconds), self.low, most)

    def _why(self, statistics: WaitingStatistics, guess: int) -> str:
        wait, cpu, workers = statistics.wait_seconds, statistics.cpu_seconds, statistics.workers
        why = f"a row waits {time_text(wait)} and computes {time_text(cpu)}:"
        enough = workers * (wait + cpu) / cpu if cpu > 0 else math.inf
        if enough <= guess:
            return f"{why} {in_words(guess)} keep {things(workers, 'worker')} busy"
        keep = f"{enough:,.0f} would keep" if math.isfinite(enough) else "no number keeps"
        return f"{why} {keep} {things(workers, 'worker')} busy, and {guess} is the most to begin with"

    def step(self, state: WaitingState, statistics: WaitingStatistics) -> tuple[WaitingState, Actions]:
        before = state.levels.level
        if statistics.throughput > 0 and not state.guessed:
            guess = self.guess(statistics)
            after = WaitingState(replace(state.levels, level=guess), guessed=True)
            why = self._why(statistics, guess)
        elif statistics.in_flight < LIMITS * before:
            return state, ()
        else:
            levels, why = self.search.observe(state.levels, statistics.throughput)
            after = replace(state, levels=levels)
        if after.levels.level == before:
            return after, ()
        why = f"{things(after.levels.level, 'row')} in flight instead of {in_words(before)}: {why}"
        figures = (
            ("throughput", statistics.throughput),
            ("wait_seconds", statistics.wait_seconds),
            ("cpu_seconds", statistics.cpu_seconds),
        )
        return after, (Action("in_flight", "", before, after.levels.level, why, figures),)
