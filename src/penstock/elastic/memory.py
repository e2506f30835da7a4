"""Remember past loads, so that one that returns goes straight to its level.

A load is known by the throughput curve that was measured under it. When the load changes, the throughput at
the level of the moment is looked up in the remembered curves; the one that agrees tells the level to go to.
"""

from dataclasses import dataclass

from penstock.elastic.search import Record, expected


@dataclass(frozen=True, slots=True)
class PastLoad:
    """Keep the level that a load settled on, and the curve that was measured under it."""

    level: int
    records: tuple[Record, ...]


Memory = tuple[PastLoad, ...]
"""Past loads, the most recent first."""


def agrees(load: PastLoad, level: int, throughput: float, tolerance: float) -> bool:
    """Say whether a load would give this throughput at this level."""
    known = expected(load.records, level)
    return known is not None and abs(throughput - known) <= tolerance * known


def recall(memory: Memory, level: int, throughput: float, tolerance: float) -> PastLoad | None:
    """Return the past load whose curve comes closest to this throughput, or None if none agrees."""
    found = [load for load in memory if agrees(load, level, throughput, tolerance)]

    def distance(load: PastLoad) -> float:
        known = expected(load.records, level)
        return abs(throughput - known) if known is not None else float("inf")

    return min(found, key=distance, default=None)


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
    """Drop one load."""
    return tuple(past for past in memory if past != load)
