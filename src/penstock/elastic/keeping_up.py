"""Find the lowest level that keeps up with sources that give less than the flow could take.

Where sources are the limit, throughput is theirs at every level that keeps up, and says nothing about the level: what
it is compared with changes whenever a backlog is caught up with. So it is not compared here. A level that keeps up is
*enough*, one that does not is *short*, and levels between the two are tried, each after a spell of patience. What was
found is kept for the rate at which the sources gave, so that a rate that returns needs no search.

With a latency target there are as many workers as it needs. Workers run whatever has work, so all of them are one
executor of Elasticutor's model, to which batches arrive: the fewest that meet the target are the cores that it would be
given. Measured rates waver, so two of the last periods must have asked for more before there are more, and none of them
for as many before there are fewer.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace

from penstock.elastic.core_allocation import AllocationStatistics, ExecutorLoad, allocate
from penstock.elastic.noise import KNOWN, NOISE_WIDTH, SURE, in_a_row, threshold

_STRANGE = 2
"""More periods in a row than this must be of another rate to mean that sources give more, or less."""
_HELPED = 1.5
"""How many times as much twice the workers must give to be worth as many again."""
_LONG = 16
"""Periods that the mean of the sources' rate is of, about."""
_IN_VAIN = 12
"""How many times the patience a level may fall behind that seems to be the highest that helps."""
_ASKED, _ASKED_CALMLY = 2, 8
"""How many of the last periods must have asked for more workers."""
_REMEMBERED = 30
"""Periods for which it is known how many workers the target needed."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The fewest workers that are kept for the target, and what they were found from."""

    workers: int = 1
    needed: tuple[int, ...] = ()
    """The fewest workers that were expected to meet the target, in each of the last periods."""
    latency: float = 0.0
    """What they were expected to give in the last one, in seconds."""
    missed: bool = False
    """Whether no number of workers was expected to meet the target."""


@dataclass(frozen=True, slots=True)
class WorkerFloor:
    """Hold the target in seconds, and the bounds of the number of workers."""

    target: float
    low: int
    high: int
    calm: bool = False
    """Whether the run is settled: then more of the last periods must ask for more, and none are given back."""

    def observe(self, floor: Floor, batches: float, work: float) -> Floor:
        """Take a period in which so many batches per second came, each of so many seconds of work."""
        if min(batches, work) <= 0:
            return floor
        load = ExecutorLoad("workers", batches, 1 / work)
        plan = allocate(AllocationStatistics(batches, (load,), self.high), self.target)
        needed = (*floor.needed, *plan.cores)[-_REMEMBERED:]
        asked = _ASKED_CALMLY if self.calm else _ASKED
        more = sorted(needed)[-asked] if len(needed) >= asked else self.low
        workers = max(more, floor.workers if self.calm else min(floor.workers, max(needed)))
        return Floor(workers, needed, plan.latency, plan.problem is not None)

    def why(self, floor: Floor, batches: float, work: float) -> str:
        load = f"{batches:.4g} batches/s of {work:.3g} s each"
        return f"{load} need {floor.workers} workers for the target of {self.target} s"

    def why_missed(self, floor: Floor) -> str:
        return (
            f"{floor.needed[-1]} workers are expected to give {floor.latency:.3g} s and more do not help; "
            f"the target is {self.target} s"
        )


@dataclass(frozen=True, slots=True)
class Supply:
    """What is known of the levels while sources give at about one rate."""

    rate: float
    kept: tuple[int, ...]
    """The levels that kept up, ascending; the first one is enough. None where the last that did has fallen behind."""
    short: int
    """The highest level that did not keep up, or one less than the lowest."""
    seen: int = 0
    """Periods in a row in which the level of the moment kept up."""
    behind: int = 0
    """Periods in a row in which it did not."""
    owes: bool = False
    """Whether a level that was tried has left something undone."""
    _: KW_ONLY
    strange: int = 0
    """Periods in a row of a higher rate: what was left undone may have come with it; negative where it is lower."""
    gave: float = 0.0
    """What fewer workers gave while they fell behind, before there were as many as now; 0 where that was not so."""
    gives: float = 0.0
    """What the level of the moment gives while it falls behind, in the mean."""
    periods: int = 0
    """Periods that the rate was learned from."""
    noise: float = 0.0
    """By which part of it those differed from it, in the mean."""
    surplus: float = 0.0
    """What was done since it fell behind, less what would have come at the rate, in seconds of that."""

    @property
    def enough(self) -> int:
        return self.kept[0]


@dataclass(frozen=True, slots=True)
class KeepingUp:
    low: int
    patience: int
    """Periods that a level must keep up before a lower one is tried; and that it may fall behind, twice as many while
    it catches up."""
    load_change: float
    memory_limit: int
    careful: bool = False
    """Whether what was too few is not tried again, and what was left undone is not taken for another rate."""
    patient: bool = False
    """Whether fewer are tried no more, and more at once where a level falls behind: the run is settled."""

    def kept(
        self, supply: Supply | None, past: tuple[Supply, ...], level: int, rate: float
    ) -> tuple[Supply, tuple[Supply, ...], int, str]:
        """Take a period in which a level kept up; return what is known, what is remembered, the next level and why."""
        strange = supply is not None and abs(rate / supply.rate - 1) > self._usual(supply)
        if supply is not None and strange and self.careful:
            supply = replace(self._listen(supply, rate), strange=in_a_row(supply.strange, rate - supply.rate))
            if abs(supply.strange) <= _STRANGE:
                why = f"{rate:.4g}/s may be what was left undone: sources gave {supply.rate:.4g}/s"
                return replace(supply, behind=0, surplus=0.0), past, level, why
        if supply is None or strange:
            past = self.remember(past, supply)
            known = next((each for each in past if abs(rate / each.rate - 1) <= self.load_change / 2), None)
            # What was too few for less is too few.
            less = (each for each in past if self.careful and each.rate <= rate * (1 + self.load_change / 2))
            short = max((each.short for each in less if each.short < level), default=self.low - 1)
            kept = tuple(each for each in known.kept if each > short) if known is not None else ()
            supply = (
                Supply(
                    known.rate, kept, max(short, known.short), gave=known.gave, periods=known.periods, noise=known.noise
                )
                if known is not None and kept
                else Supply(rate, (level,), short)
            )
            if supply.enough != level:
                return supply, past, supply.enough, f"sources give {rate:.4g}/s again, and {supply.enough} kept up then"
        if level not in supply.kept:
            supply = replace(supply, kept=tuple(sorted((*supply.kept, level))), seen=0)
        supply = self._listen(supply, rate)
        rate_now = supply.rate + (rate - supply.rate) / (min(supply.periods, _LONG) if self.careful else 4)
        supply = replace(supply, rate=rate_now, seen=supply.seen + 1, behind=0, owes=False, strange=0, surplus=0.0)
        if supply.short >= supply.enough:  # it was short for another reason, or is not any more
            supply = replace(supply, short=self.low - 1)
        if level > supply.enough:
            return supply, past, supply.enough, f"{supply.enough} kept up with the {rate:.4g}/s that sources give"
        if supply.enough - supply.short > 1 and supply.seen > self.patience and not self.patient:
            to = (supply.short + supply.enough + 1) // 2
            why = f"{level} keeps up with the {rate:.4g}/s that sources give, so fewer are tried"
            return replace(supply, seen=0), past, to, why
        return supply, past, level, f"{level} keeps up with the {rate:.4g}/s that sources give"

    def fell_behind(
        self, supply: Supply, past: tuple[Supply, ...], level: int, throughput: float, most: int, seconds: float
    ) -> tuple[Supply | None, tuple[Supply, ...], int, str]:
        """Take `seconds` in which a level did not keep up; where sources give more than they did, nothing is known.

        More than `most` would not help.

        What a level that was tried has left undone must be caught up with: that is no sign of being short.
        """
        behind = supply.behind + 1
        gives = supply.gives + (throughput - supply.gives) / behind
        surplus = supply.surplus + (throughput / supply.rate - 1) * seconds
        supply = replace(supply, seen=0, behind=behind, gives=gives, surplus=surplus)
        if level < supply.enough:
            supply = replace(supply, short=max(supply.short, level), behind=0, owes=True)
            return supply, past, supply.enough, f"{level} does not keep up, {supply.enough} did"
        more = throughput > supply.rate * (1 + self.load_change / 2)
        # What was left undone is done by now, and more than that: it is the sources that give more (`noise.Coming`).
        known = self.careful and supply.periods >= KNOWN
        usual = max(self.load_change / 2, NOISE_WIDTH * supply.noise * math.sqrt(behind))
        more_comes = known and surplus > usual * seconds
        no_better = level >= most or gives < supply.gave * (1 + self.load_change / 2)
        if self.patient and no_better:
            patience = self.patience * _IN_VAIN
        elif more_comes:
            patience = SURE - 1
        elif self.careful and supply.gave and gives >= _HELPED * supply.gave:
            patience = self.patience // 2  # as many more as there are now did help, and are not enough yet
        else:
            patience = self.patience * (2 if supply.owes else 1)
        if supply.behind <= patience:
            return supply, past, level, f"{level} kept up before: it may be catching up"
        kept = tuple(each for each in supply.kept if each > level)
        if kept and not more:
            supply = replace(supply, kept=kept, short=level, behind=0)
            return supply, past, supply.enough, f"{level} does not keep up any more, {supply.enough} did"
        why = f"{level} kept up with {supply.rate:.4g}/s and does not any more"
        if (self.patient or more_comes) and level < most:
            to = min(2 * level, most)
            doubled = replace(supply, kept=(to,), short=level, behind=0, owes=True, gave=gives, surplus=0.0)
            return doubled, past, to, why
        if self.careful:
            supply = replace(supply, kept=(), short=level)
        return None, self.remember(past, supply), level, why

    def _usual(self, supply: Supply) -> float:
        """Return by which part of it the rate may differ for no reason."""
        return threshold(supply.noise, self.load_change) if self.careful else self.load_change

    def _listen(self, supply: Supply, rate: float) -> Supply:
        periods = supply.periods + 1
        # One jump may be the load itself: it must not hide the next.
        most = 2 * max(supply.noise, self.load_change / NOISE_WIDTH)
        differs = min(most, abs(rate / supply.rate - 1))
        return replace(supply, noise=supply.noise + (differs - supply.noise) / min(periods, _LONG), periods=periods)

    def remember(self, past: tuple[Supply, ...], supply: Supply | None) -> tuple[Supply, ...]:
        """Return what is remembered with one more; of one rate the latest only."""
        if supply is None:
            return past
        others = tuple(each for each in past if abs(each.rate / supply.rate - 1) > self.load_change / 2)
        return (supply, *others)[: self.memory_limit]
