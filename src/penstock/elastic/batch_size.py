"""Choose how many rows a batch takes: by what the first ones took, and then by what waits and a latency target."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, clamp, percent, time_text
from penstock.elastic.costs import Calm, CalmState, line
from penstock.elastic.noise import Usual


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Report what was done since the last step."""

    rows: int
    """Rows of the operator that got most."""
    seconds: float
    """Seconds that workers spent in operators, but for those whose rows wait."""
    sharing: int = 1
    """How many workers may be at a batch at once: it is over as soon as one of a part of the size with one."""


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Hold the bounds, and the work that a batch should be.

    A batch costs some tenths of a millisecond beside its rows, so cheap rows should go together in large ones. Rows
    that are expensive should not: a large batch would keep its worker, and everything after it, for seconds. So a batch
    is to be a given amount of work, by the rows of late: what is imported and compiled once is no work of rows.
    """

    name: ClassVar[str] = "batch_work"

    low: int = 64
    high: int = 16_384
    initial: int = 256
    seconds: float = 0.04

    def start(self) -> int:
        return clamp(self.initial, self.low, self.high)

    def step(self, state: int, statistics: WorkDone) -> tuple[int, Actions]:
        rows, seconds, size = statistics.rows, statistics.seconds, state
        if rows <= 0:
            return size, ()
        high = statistics.sharing * self.high
        work = statistics.sharing * self.seconds
        wanted = clamp(int(work * rows / seconds), self.low, high) if seconds > 0 else high
        while size >= 2 * wanted:
            size //= 2
        while 2 * size <= wanted:
            size *= 2
        if size == state:
            return size, ()
        why = (
            f"batches of {size:,} rows instead of {state:,}: {rows:,} rows were {time_text(seconds)} of work, "
            f"so one is about {time_text(size * seconds / rows)}"
        )
        return size, (Action("batch_rows", "", state, size, why, (("rows", rows), ("seconds", seconds))),)


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Report one period: what a batch took, what came in and what waits."""

    rows: float
    """Rows of a batch, mean."""
    seconds: float
    """Seconds to process a batch, mean."""
    arrivals: float
    """Rows per second that come in."""
    backlog: float
    """Rows that wait."""
    size: int | None = None
    """The size in force, where others may have changed it."""
    at: float = 0.0
    """Seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """Hold the size, the last two measured points of the cost line, and the size that fell behind."""

    size: int
    points: tuple[tuple[float, float], ...] = ()
    behind_at: int = 0
    behind_arrivals: float = 0.0
    backlog: float = 0.0
    _: KW_ONLY
    calm: CalmState = field(default_factory=CalmState)
    asked: int = 0
    """Periods in a row that asked for another size, once the run is settled."""
    arrivals: Usual = field(default_factory=Usual)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Hold the bounds, and the latency target if there is one.

    A batch costs a fixed time and a time for each row; both are fitted to what was measured. More rows spread the fixed
    time over more of them and so raise what can be processed; fewer rows wait less for their batch to fill. The size
    doubles when the input backs up or the time is nearly all used, unless the fixed time is too small a part for that
    to help, and halves when half the size is expected to keep up. A backlog that is already shrinking is left to
    shrink: a hiccup must not make batches larger for good. A size that fell behind is remembered and not tried again
    until the input slows down. Against a target the size also doubles where rows wait and the target leaves room.

    With a `calm`, once the run is settled several periods in a row must ask for another size, and some time after the
    last change, because one that is noisy says little; unless rows come at another rate, and the run is young again.
    """

    name: ClassVar[str] = "batch_size"

    low: int = 1
    high: int = 1 << 20
    initial: int = 1024
    target: float | None = None
    """Seconds; a batch may take no more than half of it to fill and be processed."""
    full: float = 0.95
    ease: float = 0.5
    """Half the size is tried only if it is expected to be no busier than this."""
    _: KW_ONLY
    sensitivity: float = 0.05
    """Double the size must be expected to save this part of the time for each row."""
    load_change: float = 0.2
    longest: float | None = None
    """Seconds; a batch that would take longer, were all of its time for its rows, is not tried to catch up: two noisy
    measurements may make any part of it look fixed. None is no limit, where the fixed part may be as long."""
    shortest: float = 0.0
    """Seconds; a batch that would take less, were all of its time for its rows, is not tried."""
    room: float = 0.7
    """The size doubles if that is expected to use no more than this part of what the target allows."""
    calm: Calm | None = None
    looks: int = 10
    """Periods in a row that must ask for another size, once the run is settled."""
    noise_limit: int = 3
    """More periods in a row than this must have another rate to mean another load."""

    def start(self) -> BatchState:
        return BatchState(clamp(self.initial, self.low, self.high))

    def step(self, state: BatchState, statistics: BatchStatistics) -> tuple[BatchState, Actions]:
        if statistics.rows <= 0:
            return state, ()
        after, actions = self._choose(state, statistics)
        if self.calm is None:
            return after, actions
        at, calm = statistics.at, self.calm.begin(state.calm, statistics.at)
        usual, other = state.arrivals.add(statistics.arrivals, self.load_change, self.noise_limit)
        if other:
            calm = self.calm.begin_again(calm, at)
        asked = state.asked + 1 if actions else 0
        young = self.calm.young(calm, at)
        if actions and (young or (asked >= self.looks and self.calm.quiet(calm, at))):
            return replace(after, calm=self.calm.change(calm, at), asked=0, arrivals=usual), actions
        kept = replace(state, points=after.points, backlog=after.backlog, size=self._size(state, statistics))
        return replace(kept, calm=calm, asked=asked, arrivals=usual), ()

    def _size(self, state: BatchState, statistics: BatchStatistics) -> int:
        return state.size if statistics.size is None else clamp(statistics.size, self.low, self.high)

    def _choose(self, state: BatchState, statistics: BatchStatistics) -> tuple[BatchState, Actions]:
        before = state.backlog
        points = _add_point(state.points, statistics.rows, statistics.seconds)
        state = replace(state, size=self._size(state, statistics), points=points, backlog=statistics.backlog)
        busy = statistics.arrivals * statistics.seconds / statistics.rows
        size = state.size
        # Where nothing comes in, what waits is work to do, and no sign of being too slow.
        backs_up = statistics.arrivals > 0 and statistics.backlog > 2 * size and statistics.backlog >= before
        if backs_up or busy > self.full:
            return self._grow(state, statistics, busy)
        target = self.target or 0.0
        if self._has_room(state, statistics):
            why = (
                f"{statistics.backlog:,.0f} rows wait, and one would take "
                f"{time_text(self._latency(state, 2 * size, statistics.arrivals))}, the target is {time_text(target)}"
            )
            return self._change(state, clamp(2 * size, self.low, self.high), why)
        half = clamp(size // 2, self.low, self.high)
        if half == size or (half <= state.behind_at and not self._slower(state, statistics)):
            return state, ()
        expected = statistics.arrivals * line(points).seconds(1, half, 1) / half
        if expected > self.ease or half * min(seconds / rows for rows, seconds in points) < self.shortest:
            return state, ()
        if self.target is not None and self._latency(state, size, statistics.arrivals) <= self.target / 2:
            # The target is met with room: larger batches are cheaper.
            return state, ()
        why = f"they would be {percent(expected)} busy and have less latency"
        return self._change(replace(state, behind_at=0), half, why)

    def _grow(self, state: BatchState, statistics: BatchStatistics, busy: float) -> tuple[BatchState, Actions]:
        size, after = state.size, clamp(2 * state.size, self.low, self.high)
        if self.longest is not None and after * max(seconds / rows for rows, seconds in state.points) > self.longest:
            return state, ()
        costs = line(state.points)
        now, then = costs.seconds(1, size, 1) / size, costs.seconds(1, after, 1) / after
        at_most = statistics.arrivals * costs.seconds(1, self.high, 1) / self.high
        if then > (1 - self.sensitivity) * now and at_most > self.full:
            # Rows that are too slow themselves stay so in batches of any size.
            return state, ()
        why = (
            f"{statistics.backlog:,.0f} rows wait and processing is {percent(busy)} busy; "
            f"a row costs {time_text(now)}, in these {time_text(then)}"
        )
        return self._change(replace(state, behind_at=size, behind_arrivals=statistics.arrivals), after, why)

    def _has_room(self, state: BatchState, statistics: BatchStatistics) -> bool:
        """Tell whether the target leaves room for a larger batch, which is cheaper, and rows wait that would fill it.

        Without this a few slow batches would leave them small for ever.
        """
        double = 2 * state.size
        if self.target is None or double > self.high or statistics.backlog < double:
            return False
        expected = self._latency(state, double, statistics.arrivals)
        if len(state.points) < 2:
            # One point does not tell the fixed part: assume here that there is none, so that the target holds.
            expected += state.points[-1][1]
        return expected <= self.room * self.target / 2

    def _latency(self, state: BatchState, size: int, arrivals: float) -> float:
        fill = size / arrivals if arrivals > 0 else 0.0
        return fill + line(state.points).seconds(1, size, 1)

    def _slower(self, state: BatchState, statistics: BatchStatistics) -> bool:
        return statistics.arrivals < (1 - self.load_change) * state.behind_arrivals

    def _change(self, state: BatchState, after: int, why: str) -> tuple[BatchState, Actions]:
        if after == state.size:
            return state, ()
        why = f"batches of {after:,} rows instead of {state.size:,}: {why}"
        figures = tuple(zip(("rows", "seconds"), state.points[-1], strict=True)) if state.points else ()
        return replace(state, size=after), (Action("batch_rows", "", state.size, after, why, figures),)


def _add_point(points: tuple[tuple[float, float], ...], rows: float, seconds: float) -> tuple[tuple[float, float], ...]:
    """Keep the latest point of the latest two sizes; sizes within a tenth of each other are one."""
    others = tuple(point for point in points if abs(point[0] - rows) > 0.1 * max(point[0], rows))
    return (*others[-1:], (rows, seconds))
