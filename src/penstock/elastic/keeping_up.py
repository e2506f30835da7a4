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

from dataclasses import dataclass, replace

from penstock.elastic.core_allocation import AllocationStatistics, ExecutorLoad, allocate

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

    def observe(self, floor: Floor, batches: float, work: float) -> Floor:
        """Take a period in which so many batches a second came, each of so many seconds of work."""
        if min(batches, work) <= 0:
            return floor
        load = ExecutorLoad("workers", batches, 1 / work)
        plan = allocate(AllocationStatistics(batches, (load,), self.high), self.target)
        needed = (*floor.needed, *plan.cores)[-_REMEMBERED:]
        workers = max(sorted(needed)[-2], min(floor.workers, max(needed))) if len(needed) > 1 else self.low
        return Floor(workers, needed, plan.latency, plan.problem is not None)

    def why(self, floor: Floor, batches: float, work: float) -> str:
        load = f"{batches:.4g} batches/s of {work:.3g} s each"
        return f"{load} need {floor.workers} workers for the target of {self.target} s"

    def why_missed(self, floor: Floor) -> str:
        """Say why no number of workers meets the target."""
        return (
            f"{floor.needed[-1]} workers are expected to give {floor.latency:.3g} s and more do not help; "
            f"the target is {self.target} s"
        )


@dataclass(frozen=True, slots=True)
class Supply:
    """What is known of the levels while sources give at about one rate."""

    rate: float
    kept: tuple[int, ...]
    """The levels that kept up, ascending; the first one is enough."""
    short: int
    """The highest level that did not keep up, or one less than the lowest."""
    seen: int = 0
    """Periods in a row in which the level of the moment kept up."""
    behind: int = 0
    """Periods in a row in which it did not."""
    owes: bool = False
    """Whether a level that was tried has left something undone."""

    @property
    def enough(self) -> int:
        """The lowest level that kept up."""
        return self.kept[0]


@dataclass(frozen=True, slots=True)
class KeepingUp:
    """Hold the settings."""

    low: int
    patience: int
    """Periods that a level must keep up before a lower one is tried; and that it may fall behind, twice as many while
    it catches up."""
    load_change: float
    memory_limit: int

    def kept(
        self, supply: Supply | None, past: tuple[Supply, ...], level: int, rate: float
    ) -> tuple[Supply, tuple[Supply, ...], int, str]:
        """Take a period in which a level kept up; return what is known, what is remembered, the next level and why."""
        if supply is None or abs(rate / supply.rate - 1) > self.load_change:
            past = self.remember(past, supply)
            known = next((each for each in past if abs(rate / each.rate - 1) <= self.load_change / 2), None)
            supply = (
                Supply(rate, (level,), self.low - 1) if known is None else replace(known, seen=0, behind=0, owes=False)
            )
            if known is not None and supply.enough != level:
                return supply, past, supply.enough, f"sources give {rate:.4g}/s again, and {supply.enough} kept up then"
        if level not in supply.kept:
            supply = replace(supply, kept=tuple(sorted((*supply.kept, level))), seen=0)
        supply = replace(
            supply, rate=supply.rate + (rate - supply.rate) / 4, seen=supply.seen + 1, behind=0, owes=False
        )
        if supply.short >= supply.enough:  # it was short for another reason, or is not any more
            supply = replace(supply, short=self.low - 1)
        if level > supply.enough:
            return supply, past, supply.enough, f"{supply.enough} kept up with the {rate:.4g}/s that sources give"
        if supply.enough - supply.short > 1 and supply.seen > self.patience:
            to = (supply.short + supply.enough + 1) // 2
            why = f"{level} keeps up with the {rate:.4g}/s that sources give, so fewer are tried"
            return replace(supply, seen=0), past, to, why
        return supply, past, level, f"{level} keeps up with the {rate:.4g}/s that sources give"

    def fell_behind(
        self, supply: Supply, past: tuple[Supply, ...], level: int, throughput: float
    ) -> tuple[Supply | None, tuple[Supply, ...], int, str]:
        """Take a period in which a level did not keep up; where sources give more than they did, nothing is known.

        What a level that was tried has left undone must be caught up with: that is no sign of being short.
        """
        supply = replace(supply, seen=0, behind=supply.behind + 1)
        if level < supply.enough:
            supply = replace(supply, short=max(supply.short, level), behind=0, owes=True)
            return supply, past, supply.enough, f"{level} does not keep up, {supply.enough} did"
        if supply.behind <= self.patience * (2 if supply.owes else 1):
            return supply, past, level, f"{level} kept up before: it may be catching up"
        kept = tuple(each for each in supply.kept if each > level)
        if kept and throughput <= supply.rate * (1 + self.load_change / 2):
            supply = replace(supply, kept=kept, short=level, behind=0)
            return supply, past, supply.enough, f"{level} does not keep up any more, {supply.enough} did"
        why = f"{level} kept up with {supply.rate:.4g}/s and does not any more"
        return None, self.remember(past, supply), level, why

    def remember(self, past: tuple[Supply, ...], supply: Supply | None) -> tuple[Supply, ...]:
        """Return what is remembered with one more; of one rate the latest only."""
        if supply is None:
            return past
        others = tuple(each for each in past if abs(each.rate / supply.rate - 1) > self.load_change / 2)
        return (supply, *others)[: self.memory_limit]
