"""Search a throughput curve for its best level, from the levels measured so far.

The curve is assumed to rise, reach a top, and then stay or fall. The search holds no state of its own: it
looks at the records that are trusted and names the level whose measurement would tell the most.

1. *Wide probe.* Double upwards, then halve downwards, until a level is worse than the best by more than the
   sensitivity, or the bound is reached. Levels are compared with the best one, never with their neighbour, so
   a curve that climbs in steps too small to see is still climbed.
2. *Doubt.* Where noise hides more than the sensitivity, the best level and the one that would be chosen are
   measured again in turns, until they can be told apart.
3. *Bisection.* The top lies between the best level and its measured neighbours; halve the wider of the two
   gaps until both are one. On a curve whose steps can be told apart this ends exactly on the top. With noise
   the best is best by luck, so the gaps beside the choice are halved instead.
4. *Thrift.* Among the levels that are nearly as good, look for a lower one. What may be given up grows with
   the share of threads saved, from nothing to the sensitivity for half of them: each doubling must pay, and
   by more than the noise of the two means could feign, up to half the sensitivity more.

A load is known by the throughput curve that was measured under it. When the load changes, the throughput at the level
of the moment is looked up in the remembered curves; the one that agrees tells the level to go to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.elastic.noise import LevelRecord, standard_error


@dataclass(frozen=True, slots=True)
class PastLoad:
    """Keep the level that a load settled on, and the curve that was measured under it."""

    level: int
    records: tuple[LevelRecord, ...]


Memory = tuple[PastLoad, ...]
"""Past loads, the most recent first."""


def agrees(load: PastLoad, level: int, throughput: float, tolerance: float) -> bool:
    known = expected(load.records, level)
    return known is not None and abs(throughput - known) <= tolerance * known


def recall(memory: Memory, level: int, throughput: float, tolerance: float) -> PastLoad | None:
    """Return the past load whose curve comes closest to this throughput, or None if none agrees."""
    similar = [load for load in memory if agrees(load, level, throughput, tolerance)]

    def distance(load: PastLoad) -> float:
        known = expected(load.records, level)
        return abs(throughput - known) if known is not None else float("inf")

    return min(similar, key=distance, default=None)


def remember(memory: Memory, load: PastLoad, tolerance: float, limit: int) -> Memory:
    """Put a load first, in place of one that was the same, and forget the oldest beyond the limit."""
    settled = expected(load.records, load.level)
    kept = [
        past
        for past in memory
        if settled is None or past.level != load.level or not agrees(past, load.level, settled, tolerance)
    ]
    return (load, *kept)[:limit]


def forget(memory: Memory, load: PastLoad) -> Memory:
    return tuple(past for past in memory if past != load)


@dataclass(frozen=True, slots=True)
class Probe:
    level: int
    why: str


def ordered(records: Iterable[LevelRecord]) -> tuple[LevelRecord, ...]:
    return tuple(sorted(records, key=lambda record: record.level))


def best(records: Sequence[LevelRecord]) -> LevelRecord:
    """Return the record with the highest mean; of equals, the one with the fewest threads."""
    return max(records, key=lambda record: (record.mean, -record.level))


def preferred(records: Sequence[LevelRecord], sensitivity: float, noise: float = 0.0) -> LevelRecord:
    """Return the lowest level that gives up no more than its saving is worth.

    `noise` is the standard deviation of one sample, as a fraction. The best of many noisy records is best
    partly by luck, so twice the threads must show their gain beyond the standard error; within bounds, because
    what is given up is real.
    """
    top = best(records)
    for record in records:
        if record.level >= top.level:
            break
        doublings = math.log2(top.level / record.level)
        allowed = sensitivity * min(1.0, doublings)
        if doublings >= 1:
            allowed += min(sensitivity / 2, standard_error(record, top, noise))
        if record.mean >= top.mean * (1 - allowed):
            return record
    return top


def propose(
    records: Sequence[LevelRecord],
    low: int,
    high: int,
    sensitivity: float,
    noise: float = 0.0,
    *,
    doubt: bool = True,
    grain: float = 0.0,
) -> Probe | None:
    """Return the level whose measurement is missing most, or None when the top is known.

    `records` must be ordered by level and must not be empty. Without `doubt` no level is measured again. Levels that
    differ by less than the part `grain` are as good as one.
    """
    top = best(records)
    clearly_less = top.mean * (1 - sensitivity)
    first, last = records[0], records[-1]
    if last.level < high and last.mean >= clearly_less:
        to = min(2 * last.level, high)
        return Probe(
            to, f"throughput has not fallen up to {last.level} yet, the best is {top.mean:.4g}/s with {top.level}"
        )
    if first.level > low and first.mean >= clearly_less:
        to = max(first.level // 2, low)
        return Probe(
            to, f"throughput has not fallen down to {first.level} yet, the best is {top.mean:.4g}/s with {top.level}"
        )
    choice = preferred(records, sensitivity, noise)
    return (
        (_doubtful(records, top, choice, sensitivity, noise) if doubt else None)
        or _between(records, top if noise <= sensitivity else choice, "top", grain)
        or _between(records, choice, "thrift", grain)
    )


def _between(records: Sequence[LevelRecord], around: LevelRecord, reason: str, grain: float) -> Probe | None:
    """Halve the wider gap beside a record; for thrift only the gap below counts."""
    near = max(1, grain * around.level)
    at = records.index(around)
    below = records[at - 1].level if at > 0 else around.level
    above = records[at + 1].level if at + 1 < len(records) else around.level
    left, right = around.level - below, above - around.level
    if reason == "thrift":
        if left <= near:
            return None
        to = (below + around.level) // 2
        return Probe(to, f"{around.level} gives {around.mean:.4g}/s and {below} clearly less")
    if max(left, right) <= near:
        return None
    to = (below + around.level) // 2 if left >= right else (around.level + above + 1) // 2
    return Probe(to, f"the best lies between {below} and {above}, so far it is {around.mean:.4g}/s with {around.level}")


def _doubtful(
    records: Sequence[LevelRecord], top: LevelRecord, choice: LevelRecord, sensitivity: float, noise: float
) -> Probe | None:
    """Measure the best level or its rival again, unless the choice between them is clear.

    The rival is the choice where that is another level, and else the one that may be as good: within two standard
    errors of the best.
    """
    rivals = [choice] if choice is not top else [record for record in records if record is not top]
    rival = max(rivals, key=lambda record: record.mean / top.mean + 2 * standard_error(record, top, noise), default=top)
    error = standard_error(rival, top, noise)
    again, other = (top, rival) if top.count < rival.count else (rival, top)
    if rival is top or error <= sensitivity or rival.mean < top.mean * (1 - sensitivity - 2 * error):
        return None
    why = f"{again.level} gives {again.mean:.4g}/s and {other.level} {other.mean:.4g}/s, give or take {error:.0%}"
    return Probe(again.level, f"{why}, so {again.level} is measured again")


def expected(records: Sequence[LevelRecord], level: int) -> float | None:
    """Return the throughput that the records imply at a level, or None outside the levels they cover."""
    below = [record for record in records if record.level <= level]
    above = [record for record in records if record.level >= level]
    if not below or not above:
        return None
    left, right = below[-1], above[0]
    if left.level == right.level:
        return left.mean
    share = math.log(level / left.level) / math.log(right.level / left.level)
    return left.mean + share * (right.mean - left.mean)


def probe_budget(low: int, high: int) -> int:
    """Return how many changes of level one search may make, whatever it measures.

    Doubling and halving visit at most log2 + 1 levels each way, bisection at most two halvings of a gap that
    is no wider than the range, thrift one more; the rest lets noisy records be measured again.
    """
    return 5 * (math.ceil(math.log2(max(2, high / low))) + 2)
