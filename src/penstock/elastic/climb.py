"""Climb to the level with the best throughput, by trust and trends, and notice when the load changes.

The core of the thread level and of the waiting concurrency: a *level* is any number that can be turned up and down and
whose throughput is measured once per period. A measured level is trusted until the load changes. The phases of a climb
are the dataclasses below; what may follow one:

    Warming     -> Searching
    Searching   -> Searching, Confirming, Settled
    Confirming  -> Searching, Confirming, Settled
    Settled     -> Searching, Confirming (a load that is remembered), Settled

Two things keep noise from moving a settled level: what successive samples usually differ by is learned and widens the
threshold, and a change that ends on the level and throughput it began with was a false alarm, after which the
threshold stays above what raised it. A load that returns is found in `memory` and needs no search.

The other objective, the lowest level that keeps up with its sources, is in `keeping_up`: throughput says nothing there.

`WaitingConcurrency` chooses how many rows a waiting operator keeps in flight. An operator that waits (a lookup, a
remote model) leaves its worker free for other rows meanwhile. If a row computes for c seconds and waits for w, then
(c + w) / c rows in flight keep a worker busy: that is where the climb begins. What lies beyond depends on whom the
operator waits for, so from there throughput decides: a service that slows down under more requests shows no gain and
gets no more of them. Where fewer rows come than may be in flight, their number is no limit, throughput is decided
elsewhere, and nothing is changed.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from penstock.elastic import search
from penstock.elastic.base import Action, Actions, clamp, in_words, things, time_text
from penstock.elastic.noise import NOISE_WIDTH, LevelRecord, Noise, in_a_row, threshold
from penstock.elastic.search import Memory, PastLoad, agrees, forget, recall, remember

# The first level of a search is measured more than once, to know the noise before the first comparison.
_FIRST_SAMPLES = 3
# So many times in a search a level that noise does not tell from another may be measured again: where throughput
# varies wildly, levels that are alike would be compared for ever. Each time takes so many samples.
_DOUBTS = 16
_TURN = 2


@dataclass(frozen=True, slots=True)
class Warming:
    """The first samples are not used: queues that fill up look like throughput."""

    seen: int = 0


@dataclass(frozen=True, slots=True)
class Searching:
    """`search.propose` names the next level to measure.

    One sample will do where throughput is steady; more where samples of a level differ by more than the sensitivity.
    Two levels that noise does not tell apart are measured again in short turns: a machine's speed drifts, and what is
    measured close together drifts alike.
    """

    until: int = 0
    """The samples that the level of the moment is to have before the next decision, where it is in doubt."""
    untried: Memory = ()
    """Past loads whose level is measured first, because their curves do not cover the level of the moment."""


@dataclass(frozen=True, slots=True)
class Confirming:
    """The chosen level is measured until its record has `noise_limit` samples, so that no lucky one decides."""

    recalled: PastLoad | None = None
    """The past load whose level was chosen: it is kept until its own samples confirm or refute it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing changes until more than `noise_limit` samples in a row differ by `load_change`, all to one side."""

    suspects: int = 0
    """Samples in a row that differ on one side; negative when they are below."""
    suspect_mean: float = 0.0


@dataclass(frozen=True, slots=True)
class ClimbState:
    """Hold the level of the moment and all that was learned about the load."""

    level: int
    phase: Warming | Searching | Confirming | Settled = field(default_factory=Warming)
    records: tuple[LevelRecord, ...] = ()
    """What was measured under this load, by level."""
    noise: Noise = field(default_factory=Noise)
    skips: int = 0
    """Samples to come that are not used."""
    _: KW_ONLY
    moves: int = 0
    """Changes of level since the load changed."""
    doubts: int = 0
    """Times since then that a level was measured again, because it was in doubt."""
    tolerance: float = 0.0
    """The deviation that false alarms have shown to mean nothing."""
    alarm: float = 0.0
    """The deviation that was taken for the last change of load, until the new level is known."""
    memory: Memory = ()

    @property
    def settled(self) -> bool:
        return isinstance(self.phase, Settled)

    def record(self, level: int) -> LevelRecord | None:
        """Return what was measured at a level under this load."""
        return next((record for record in self.records if record.level == level), None)


Next = tuple[ClimbState, str]
"""The next state, and the reason for its level."""
Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Climb:
    """Hold the settings of a climb: controllers of a level inherit them."""

    low: int = 1
    high: int = 1
    initial: int = 1
    sensitivity: float = 0.05
    load_change: float = 0.2
    noise_limit: int = 5
    _: KW_ONLY
    warmup: int = 2
    memory_limit: int = 8
    skipped: int = 0
    """Samples after a change of level that are not used: what waits at one level is worked off at the next."""
    least_noise: float = 0.0
    """What samples are taken to differ by when levels are told apart, at least: few may be alike by luck."""
    grain: float = 0.0
    """By which part levels must differ to be told apart."""

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise ValueError(f"levels need 1 <= low <= high, not {self.low} and {self.high}")

    def first(self) -> ClimbState:
        return ClimbState(clamp(self.initial, self.low, self.high))

    def observe(
        self,
        state: ClimbState,
        throughput: float,
        low: int = 1,
        ceiling: int | None = None,
        high: int | None = None,
    ) -> Next:
        """Take one sample at the level of the moment.

        `low` raises the lower bound for this step, `high` lowers the upper one. Levels above `ceiling` that were
        not measured under this load are out of reach for this step, as when the machine is busy.
        """
        bottom = min(max(self.low, low), self.high)
        reach = self.high if high is None else max(bottom, min(self.high, high))
        if ceiling is not None:
            reach = min(reach, max(ceiling, state.level, bottom, *(record.level for record in state.records)))
        if throughput <= 0:
            return state, "nothing flowed: no evidence for or against any level"
        if state.level < bottom:
            return self._move(state, bottom), f"the lowest level allowed is {bottom}"
        if isinstance(state.phase, Warming) and state.phase.seen < self.warmup:
            seen = state.phase.seen + 1
            why = f"sample {seen} of {self.warmup} is not used: queues are still filling"
            return replace(state, phase=Warming(seen)), why
        if state.skips:
            why = f"a sample at {state.level} is not used: queues fill up or empty after a change"
            return replace(state, skips=state.skips - 1), why
        most = math.inf
        if state.settled:
            # One jump may be the load itself: it must not widen the threshold beyond its own size.
            most = 2 * max(state.noise.part, self.load_change / NOISE_WIDTH)
        state = replace(state, noise=state.noise.add(throughput, most))
        bounds = (bottom, reach)
        match state.phase:
            case Settled() as phase:
                return self._watch(state, phase, throughput, bounds)
            case Confirming(recalled):
                # A past load may have settled on a level that is not allowed now: then it is no help.
                helps = bottom <= state.level <= reach
                return self._decide(_added(state, throughput), recalled if helps else None, bounds)
            case phase:
                return self._search(state, phase, throughput, bounds)

    def _search(self, state: ClimbState, phase: Warming | Searching, throughput: float, bounds: Bounds) -> Next:
        phase = phase if isinstance(phase, Searching) else Searching()
        state = replace(_added(state, throughput), phase=phase)
        if phase.untried:
            return self._try_past_load(state, phase.untried, throughput, bounds)
        own = state.record(state.level)
        taken, wanted = own.count if own else 0, max(self._wanted(state), phase.until)
        if taken < wanted:
            return state, f"sample {taken} of {wanted} at {state.level}: they differ by {state.noise.part:.0%}"
        return self._decide(state, None, bounds)

    def _watch(self, state: ClimbState, phase: Settled, throughput: float, bounds: Bounds) -> Next:
        """Compare a sample with the trusted throughput of the settled level."""
        own = state.record(state.level)
        if own is None:
            return self._search(state, Searching(), throughput, bounds)
        deviation = throughput / own.mean - 1
        limit = self._threshold(state)
        if abs(deviation) <= limit:
            why = f"{throughput:.4g}/s is within {limit:.0%} of the trusted {own.mean:.4g}/s"
            return replace(state, phase=Settled()), why
        suspects = in_a_row(phase.suspects, deviation)
        run = abs(suspects)
        mean = (phase.suspect_mean * (run - 1) + throughput) / run
        change = mean / own.mean - 1
        why = f"{run} samples in a row differ from the trusted {own.mean:.4g}/s, by {change:+.0%}"
        if run <= self.noise_limit:
            why = f"{why}; more than {self.noise_limit} would mean a change of load"
            return replace(state, phase=Settled(suspects, mean)), why
        past = PastLoad(state.level, state.records)
        memory = remember(state.memory, past, self.load_change / 2, self.memory_limit)
        state = replace(state, memory=memory, alarm=change)
        return self._restart(state, mean, bounds, f"{why}: the load has changed")

    def _wanted(self, state: ClimbState) -> int:
        """Return how many samples of a level can be told from those of another."""
        if len(state.records) == 1:
            return min(_FIRST_SAMPLES, self.noise_limit)
        return max(1, min(self.noise_limit, math.ceil(state.noise.samples(self.sensitivity))))

    def _decide(self, state: ClimbState, recalled: PastLoad | None, bounds: Bounds) -> Next:
        """Go where the records point: to the next level to measure, or to the one that is chosen."""
        low, high = bounds
        records = tuple(record for record in state.records if low <= record.level <= high)
        if not records:
            to = min(max(state.level, low), high)
            return replace(self._move(state, to), phase=Searching()), f"levels from {low} to {high} are allowed"
        if recalled is None and state.moves < search.probe_budget(self.low, self.high) + state.doubts:
            noise, doubt = max(state.noise.part, self.least_noise), state.doubts < _DOUBTS
            probe = search.propose(records, low, high, self.sensitivity, noise, doubt=doubt, grain=self.grain)
            if probe is not None:
                again = state.record(probe.level)
                state = replace(state, doubts=state.doubts + (again is not None))
                phase = Searching(until=again.count + _TURN if again else 0)
                return replace(self._move(state, probe.level), phase=phase), probe.why
        choice = search.preferred(records, self.sensitivity, state.noise.part)
        if recalled is not None:
            # Its records are of another time: the level is kept until its own samples confirm or refute them.
            choice = next(record for record in records if record.level == state.level)
        full = choice.count >= self.noise_limit
        if choice.level != state.level:
            top = search.best(records)
            why = f"{choice.level} gives {choice.mean:.4g}/s, and the best, {top.level}, {top.mean:.4g}/s"
            return replace(self._move(state, choice.level), phase=Settled() if full else Confirming()), why
        if not full:
            why = f"{choice.level} gives {choice.mean:.4g}/s: sample {choice.count} of {self.noise_limit}"
            return replace(state, phase=Confirming(recalled)), why
        return self._settle(state, choice, recalled, bounds)

    def _settle(self, state: ClimbState, choice: LevelRecord, recalled: PastLoad | None, bounds: Bounds) -> Next:
        """Stop searching, unless the load has changed since the level was first measured."""
        later = choice.mean
        if choice.count > 1:
            later = (choice.mean * choice.count - choice.first) / (choice.count - 1)
        limit = self._threshold(state)
        if recalled is not None:
            # What was taken for a past load must be as close to it here as it was where it was recognized.
            limit = min(limit, max(self.load_change / 2, NOISE_WIDTH * state.noise.part))
        # One sample may be far off by chance: what it is compared with must not depend on which of the two is more.
        if 1 - min(later, choice.first) / max(later, choice.first) > limit:
            memory = forget(state.memory, recalled) if recalled else state.memory
            why = f"throughput at {choice.level} went from {choice.first:.4g}/s to {later:.4g}/s meanwhile"
            return self._restart(replace(state, memory=memory), later, bounds, why)
        tolerance = 0.0 if state.alarm else state.tolerance
        left = state.memory[0] if state.memory else None
        back = left is not None and left.level == choice.level
        if state.alarm and left and back and agrees(left, choice.level, later, self.load_change / 2):
            # The load had not changed: what raised this alarm must not raise it again.
            tolerance = max(state.tolerance, 1.25 * abs(state.alarm))
        settled = replace(state, phase=Settled(), tolerance=tolerance, alarm=0.0)
        return settled, f"settled on {choice.level}: {choice.mean:.4g}/s, mean of {choice.count} samples"

    def _restart(self, state: ClimbState, mean: float, bounds: Bounds, why: str) -> Next:
        """Trust nothing but the new throughput, and look the load up before searching."""
        low, high = bounds
        past = tuple(load for load in state.memory if low <= load.level <= high)
        records = (LevelRecord(state.level, mean, mean),)
        fresh = replace(state, phase=Searching(), records=records, doubts=0, moves=0)
        known = recall(past, state.level, mean, self.load_change / 2)
        if known is not None:
            return self._recall(fresh, known), f"{why}; it is one seen before, settled on {known.level}"
        untried = tuple(load for load in past if search.expected(load.records, state.level) is None)
        if untried:
            to = untried[0].level
            return self._move(replace(fresh, phase=Searching(0, untried)), to), (
                f"{why}; {to} is where a past load settled"
            )
        state, next_why = self._decide(fresh, None, bounds)
        return state, f"{why}; {next_why}"

    def _try_past_load(self, state: ClimbState, untried: Memory, throughput: float, bounds: Bounds) -> Next:
        """Check whether the load is the past one at whose level this sample was taken."""
        load, rest = untried[0], untried[1:]
        if agrees(load, state.level, throughput, self.load_change / 2):
            return self._recall(state, load), f"{throughput:.4g}/s is what a past load gave at {load.level}"
        later = tuple(past for past in rest if state.record(past.level) is None)
        state = replace(state, phase=Searching(0, later))
        if later:
            return self._move(state, later[0].level), f"this is not the load that settled on {load.level}"
        return self._decide(state, None, bounds)

    def _recall(self, state: ClimbState, load: PastLoad) -> ClimbState:
        """Trust a past load's records again, and confirm its level with fresh samples."""
        known = search.expected(load.records, load.level) or 0.0
        records = (*(r for r in load.records if r.level != load.level), LevelRecord(load.level, known, known))
        there = self._move(replace(state, records=search.ordered(records), phase=Confirming(load)), load.level)
        # How far they differ from what is measured now is no noise.
        return replace(there, noise=there.noise.apart())

    def _move(self, state: ClimbState, level: int) -> ClimbState:
        if level == state.level:
            return state
        known = state.record(level)
        noise = state.noise.apart(known.mean if known else 0.0)
        return replace(state, level=level, moves=state.moves + 1, noise=noise, skips=self.skipped)

    def _threshold(self, state: ClimbState) -> float:
        return threshold(state.noise.part, self.load_change, state.tolerance)


def _added(state: ClimbState, throughput: float) -> ClimbState:
    own = state.record(state.level)
    now = own.add(throughput) if own else LevelRecord(state.level, throughput, throughput)
    others = (record for record in state.records if record.level != state.level)
    return replace(state, records=search.ordered((*others, now)))


LIMITS = 0.5
"""The share of the allowed rows that are in flight in the mean, from which on the number may be the limit: rows
come in waves, so one that is reached at times is used by less than the whole."""

GRAIN = 0.1
"""Numbers of rows that differ by less are as good as one: they are not compared for minutes."""


@dataclass(frozen=True, slots=True)
class WaitingStatistics:
    throughput: float
    wait_seconds: float
    """Waiting, mean per row."""
    cpu_seconds: float
    """Computing, mean per row."""
    workers: int = 1

    @property
    def in_flight(self) -> float:
        """Rows under way at a time, in the mean (Little's law)."""
        return self.throughput * (self.wait_seconds + self.cpu_seconds)


@dataclass(frozen=True, slots=True)
class WaitingState:
    """Hold the search, and whether it has been given its starting point."""

    levels: ClimbState
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class WaitingConcurrency(Climb):
    """Hold the settings; the guess takes the place of the samples that are not used."""

    name: ClassVar[str] = "waiting_concurrency"
    version: ClassVar[int] = 3

    high: int = 1024
    _: KW_ONLY
    largest_guess: int = 64
    """Where the search begins if rows hardly compute: the far side may not stand more at once."""
    warmup: int = 0

    def start(self) -> WaitingState:
        return WaitingState(self.first())

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
            levels, why = self.observe(state.levels, statistics.throughput)
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
