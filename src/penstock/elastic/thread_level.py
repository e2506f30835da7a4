"""Choose the number of worker threads of a PE (Streams, section 4.2), with a memory of past loads.

The rules of trust and trends are those of `climb`; here are the bounds of a PE. The lowest level is 1, because
no operator holds its thread until another port has data. The highest is the number of logical processors, or more
where operators wait. While the flow keeps up with its sources, their rate is the throughput, and `keeping_up`
looks for the lowest level that does. A latency target raises the lowest level meanwhile (`worker_floor`).

Python's threads compute at the same time only where the interpreter's lock is released. That need not be guessed
from throughput, which varies: a level that keeps no more cores busy than a lower one that computes all the time
gains nothing, so the lower one is the highest level that is looked at.
"""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, instead, percent
from penstock.elastic.climb import Climb, ClimbState, Searching, Warming
from penstock.elastic.costs import Calm, CalmState
from penstock.elastic.keeping_up import Floor, KeepingUp, Supply, WorkerFloor

COMPUTING = 0.9
"""Cores that a flow keeps busy, at least, which computes all the time."""
USAGE_WEIGHT = 0.2
"""Of the last reading in the machine's usage at a level, at least: one quiet period does not make a machine idle."""
WAITING = 0.1
"""The part of a core that each worker keeps busy, at most, where workers wait: more of them take it from no other."""
MORE_CORES = 1.1
"""How many times the cores of a level another one keeps busy, at least, if its threads compute at the same time."""


@dataclass(frozen=True, slots=True)
class ThreadStatistics:
    throughput: float
    """Rows per second, summed over *all* operators: the sink alone is blind to work upstream of it."""
    cpu_usage: float = 0.0
    """The whole machine's, 0 to 1: other PEs may run on it."""
    unsuspended: int = 0
    """Workers that were told to leave and are still inside operator code."""
    keeps_up: bool | None = None
    """Whether nothing held the sources back and little waits; None where that is not known."""
    cores: float | None = None
    """Processor seconds per second of the whole process; None where that is not known."""
    elsewhere: float = 0.0
    """The part of the machine that other processes keep busy, 0 to 1."""
    _: KW_ONLY
    batches: float = 0.0
    """Batches per second that come in."""
    work: float = 0.0
    """Seconds that workers spend on a batch, in all operators together."""
    at: float = 0.0
    """Seconds of a clock that never goes back."""
    seconds: float = 1.0
    """How long the period was."""


@dataclass(frozen=True, slots=True)
class CoresUsed:
    """What a level was seen to keep busy: cores, in the mean of so many samples."""

    level: int
    cores: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class ThreadState:
    """Hold the search, and the workers that would not leave."""

    levels: ClimbState
    unsuspendable: int = 0
    usage: float = 0.0
    """How busy the machine is at the level of the moment, in the mean; 0 where workers wait, whatever keeps it busy."""
    readings: int = 0
    """Readings at this level that the mean is of."""
    busy_at: int | None = None
    """The lowest level at which the machine was seen too busy, until it is seen not to be."""
    supply: Supply | None = None
    """What is known of levels while sources are the limit; None while they are not."""
    _: KW_ONLY
    past: tuple[Supply, ...] = ()
    used: tuple[CoresUsed, ...] = ()
    """What was seen under this load, by level."""
    floor: Floor = field(default_factory=Floor)
    """The workers that the target needs."""
    calm: CalmState = field(default_factory=CalmState)
    patient: bool = False
    """Whether fewer workers are not tried now, because the run is settled."""
    held: bool = False
    """Whether the machine was too busy to try more workers, since their number was settled."""
    roomy: int = 0
    """Periods in a row in which it was not."""

    @property
    def searching(self) -> bool:
        """Whether levels are being compared, so that what else changes throughput should wait."""
        if self.supply is None:
            return not self.levels.settled
        if self.patient:
            return False
        return self.supply.enough - max(self.supply.short, self.unsuspendable, self.floor.workers - 1) > 1

    @property
    def enough_to_compute(self) -> int | None:
        """The lowest level that computes all the time and keeps as many cores busy as a higher one; None if none is."""
        for number, one in enumerate(self.used):
            higher = self.used[number + 1 :]
            if one.cores >= COMPUTING and any(other.cores < one.cores * MORE_CORES for other in higher):
                return one.level
        return None


@dataclass(frozen=True, slots=True)
class ThreadLevel(Climb):
    """Hold the settings: Streams' own in production, for a period of 10 s."""

    name: ClassVar[str] = "thread_level"
    version: ClassVar[int] = 3

    _: KW_ONLY
    cpu_limit: float = 0.8
    target: float | None = None
    """Seconds that a batch may take, in the mean."""
    calm: Calm | None = None
    """When the run is settled: then fewer workers are tried only if the load is another one."""

    def start(self) -> ThreadState:
        return ThreadState(self.first())

    def _busy_at(self, state: ThreadState) -> int | None:
        """Return the level above which no new one may be tried, or None."""
        level, known = state.levels.level, state.busy_at
        if state.usage > self.cpu_limit:
            return level if known is None else min(known, level)
        return None if known is not None and level >= known else known

    def _used(self, state: ThreadState, statistics: ThreadStatistics) -> tuple[CoresUsed, ...]:
        """Add the cores that the level of the moment keeps busy, where its sample is used.

        Where other processes take what a busy machine should keep free there may be no core to be had, which tells
        nothing.
        """
        levels, cores = state.levels, statistics.cores
        if cores is None or statistics.throughput <= 0:
            return state.used
        if state.supply is None and (levels.skips or isinstance(levels.phase, Warming)):
            return state.used
        if statistics.elsewhere > 1 - self.cpu_limit:
            return state.used
        known = {each.level: each for each in state.used}
        own = known.get(levels.level, CoresUsed(levels.level, 0.0, 0))
        count = own.count + 1
        known[levels.level] = CoresUsed(levels.level, own.cores + (cores - own.cores) / count, count)
        return tuple(known[level] for level in sorted(known))

    def step(self, state: ThreadState, statistics: ThreadStatistics) -> tuple[ThreadState, Actions]:
        if self.calm is None:
            return self._step(state, statistics)
        at, calm = statistics.at, self.calm.begin(state.calm, statistics.at)
        patient = not self.calm.young(calm, at)
        after, actions = self._step(replace(state, calm=calm, patient=patient), statistics)
        if self._another_load(state, after):
            calm = self.calm.begin_again(calm, at)
        changed = after.levels.level != state.levels.level
        return replace(after, calm=self.calm.change(calm, at) if changed else calm, patient=patient), actions

    def _another_load(self, before: ThreadState, after: ThreadState) -> bool:
        if before.supply is not None and after.supply is not None:
            return abs(after.supply.rate / before.supply.rate - 1) > self.load_change / 2
        searches = before.supply is None and before.levels.settled and not after.levels.settled
        return searches and not _same_load(before.levels, after.levels)

    def _may_look_again(self, state: ThreadState, at: float) -> bool:
        """Tell whether more workers may be tried although the load is the same: what others do comes and goes."""
        calm = self.calm is None or self.calm.young(state.calm, at) or self.calm.quiet(state.calm, at)
        return calm and state.roomy > self.noise_limit

    def _step(self, state: ThreadState, statistics: ThreadStatistics) -> tuple[ThreadState, Actions]:
        if statistics.unsuspended > state.unsuspendable:
            # The period did not run at the level it was meant to: its throughput says nothing about that
            # level.
            return replace(state, unsuspendable=statistics.unsuspended), ()
        if statistics.throughput <= 0:
            # Nothing flowed: no evidence for or against any level, nor for another load.
            return replace(state, unsuspendable=statistics.unsuspended), ()
        if statistics.keeps_up or (state.supply and statistics.keeps_up is False):
            return self._supplied(state, statistics)
        readings = state.readings + 1
        waits = statistics.cores is not None and statistics.cores <= WAITING * state.levels.level
        reading = 0.0 if waits else statistics.cpu_usage
        usage = state.usage + (reading - state.usage) * max(USAGE_WEIGHT, 1 / readings)
        roomy = 0 if reading > self.cpu_limit else state.roomy + 1
        state = replace(state, usage=usage, readings=readings, roomy=roomy, used=self._used(state, statistics))
        busy_at = self._busy_at(state)
        enough = state.enough_to_compute
        begin = state.levels
        if busy_at is None and state.held and self._may_look_again(state, statistics.at):
            # Levels that were out of reach are not any more: throughput need not show it, for they were never measured.
            begin = replace(begin, phase=Searching())
        levels, why = self.observe(
            begin,
            statistics.throughput,
            # Those that cannot leave hold their threads; one more must be free to run the rest.
            low=statistics.unsuspended + 1,
            ceiling=busy_at,
            high=enough,
        )
        # What another load kept busy says nothing about this one.
        used = state.used if _same_load(state.levels, levels) else ()
        after = replace(
            state,
            levels=levels,
            unsuspendable=statistics.unsuspended,
            busy_at=busy_at,
            supply=None,
            used=used,
            held=levels.settled and (busy_at is not None or (state.held and begin.settled)),
        )
        if levels.level == state.levels.level:
            return after, ()
        after = replace(after, readings=0)
        if enough is not None:
            why = f"{why} (more workers than {enough} take turns: they keep no more cores busy)"
        if busy_at is not None:
            limit = percent(self.cpu_limit)
            why = f"{why} (CPU usage exceeds {limit} at {busy_at}: only levels measured before lie above it)"
        return after, (self._change(state.levels.level, levels.level, why, statistics),)

    def _change(self, before: int, after: int, why: str, statistics: ThreadStatistics) -> Action:
        figures = (("throughput", statistics.throughput), ("cpu_usage", statistics.cpu_usage))
        return Action("thread_level", "", before, after, f"{instead(after, before, 'worker')}: {why}", figures)

    def _supplied(self, state: ThreadState, statistics: ThreadStatistics) -> tuple[ThreadState, Actions]:
        """Take a period in which the sources are the limit, or were until now."""
        floor, why_floor, actions = self._floor(state, statistics)
        low = clamp(max(statistics.unsuspended + 1, floor.workers), self.low, self.high)
        mode = KeepingUp(
            low,
            self.noise_limit,
            self.load_change,
            self.memory_limit,
            careful=self.calm is not None,
            patient=state.patient,
        )
        level, supply = state.levels.level, state.supply
        if statistics.keeps_up:
            supplied, past, to, why = mode.kept(supply, state.past, level, statistics.throughput)
            after: Supply | None = supplied
        else:
            assert supply is not None
            if self.calm is not None:
                state = replace(state, used=self._used(state, statistics))
            most = min(self.high, state.enough_to_compute or self.high)
            after, past, to, why = mode.fell_behind(
                supply, state.past, level, statistics.throughput, most, statistics.seconds
            )
        if to < low:
            to, why = low, why_floor if low == floor.workers else f"{statistics.unsuspended} workers cannot leave"
        to = clamp(to, low, self.high)
        levels = state.levels
        if to != level:
            levels = replace(levels, level=to, noise=levels.noise.apart(), skips=self.skipped)
        if after is None:
            # Throughput tells again, and nothing that was measured before is of this load.
            levels = ClimbState(to, Searching(), memory=state.levels.memory)
        if to != level:
            actions = (*actions, self._change(level, to, why, statistics))
        state = ThreadState(
            levels,
            statistics.unsuspended,
            busy_at=state.busy_at,
            supply=after,
            past=past,
            used=() if after is None else state.used,
            floor=floor,
            calm=state.calm,
        )
        return state, actions

    def _floor(self, state: ThreadState, statistics: ThreadStatistics) -> tuple[Floor, str, Actions]:
        """Return the workers that the target needs, why, and a report if it cannot be met any more."""
        if self.target is None:
            return state.floor, "", ()
        # More workers than compute at the same time would only take turns.
        high = min(self.high, state.enough_to_compute or self.high)
        target = WorkerFloor(self.target, self.low, high, state.patient)
        rates = (statistics.batches, statistics.work)
        floor = target.observe(state.floor, *rates) if statistics.keeps_up else state.floor
        why = target.why(floor, *rates)
        if state.floor.missed or not floor.missed:
            return floor, why, ()
        return floor, why, (Action("latency_target", "", self.target, None, target.why_missed(floor)),)


def _same_load(before: ClimbState, after: ClimbState) -> bool:
    """Tell whether a load is the same: records only grow then."""
    known = {record.level: record.count for record in after.records}
    return all(known.get(record.level, 0) >= record.count for record in before.records)
