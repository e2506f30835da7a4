"""Choose the thread level by Streams' six published rules (figure 7): the baseline of `thread_level`.

Only the neighbouring levels are compared, one sample decides, and a sample that differs by the sensitivity
from the first one at its level wipes out all that was learned. On noisy throughput this oscillates, as the
paper reports; it is here to be measured beside the controller that does not.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp
from penstock.elastic.search import Record, ordered
from penstock.elastic.thread_level import ThreadStatistics


@dataclass(frozen=True, slots=True)
class RulesState:
    """Hold the level and what is trusted: a record's `first` and `mean` are its first and last throughput."""

    level: int
    trusted: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsRules:
    """Hold the published settings."""

    name: ClassVar[str] = "streams_rules"

    low: int = 1
    high: int = 1
    initial: int = 1
    sensitivity: float = 0.05
    cpu_limit: float = 0.8

    def start(self) -> RulesState:
        return RulesState(clamp(self.initial, self.low, self.high))

    def step(self, state: RulesState, statistics: ThreadStatistics) -> tuple[RulesState, Actions]:
        if statistics.unsuspended:
            return state, ()
        throughput, known = statistics.throughput, {record.level: record for record in state.trusted}
        own = known.get(state.level)
        if own is not None and self._differs(throughput, own.first):
            known, own = {}, None
        first = own.first if own else throughput
        known[state.level] = Record(state.level, first, throughput)
        state = RulesState(state.level, ordered(known.values()))
        level, why = self._next(state, throughput, statistics.cpu_usage)
        if level == state.level:
            return state, ()
        return replace(state, level=level), (Action("thread_level", "", state.level, level, why),)

    def _next(self, state: RulesState, throughput: float, cpu_usage: float) -> tuple[int, str]:
        below = max((r for r in state.trusted if r.level < state.level), key=lambda r: r.level, default=None)
        above = min((r for r in state.trusted if r.level > state.level), key=lambda r: r.level, default=None)
        rising_to_here = below is not None and throughput > below.mean * (1 + self.sensitivity)
        rising_from_here = above is not None and above.mean > throughput * (1 + self.sensitivity)
        may_rise = cpu_usage <= self.cpu_limit and state.level < self.high
        if rising_to_here and above is None:
            why, up = f"{throughput:.4g}/s is more than below and nothing above is trusted", True
        elif rising_from_here:
            why, up = f"{throughput:.4g}/s is less than above", True
        elif state.level == self.low and above is None:
            why, up = "nothing above the lowest level is trusted", True
        else:
            why, up = "", False
        if up and may_rise:
            return (above.level if above else min(self.high, _power_above(state.level))), why
        if state.level == self.low or (below is not None and rising_to_here):
            return state.level, "between a level that gives less and one that gives no more"
        if below is None:
            return max(self.low, _power_below(state.level)), "nothing below is trusted"
        # Bisect towards the trusted level below.
        middle = (below.level + state.level) // 2
        return middle, f"{throughput:.4g}/s is not more than {below.mean:.4g}/s at {below.level}"

    def _differs(self, throughput: float, reference: float) -> bool:
        return abs(throughput - reference) > self.sensitivity * reference


def _power_above(level: int) -> int:
    return 1 << level.bit_length()


def _power_below(level: int) -> int:
    return 1 << ((level - 1).bit_length() - 1)
