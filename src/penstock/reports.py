"""What engines report while a flow runs: immutable, and the same for every engine as far as it applies."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class EpochStats:
    """What one epoch did."""

    epoch: int
    rows_in: int
    rows_out: dict[str, int]
    seconds: float
    job_seconds: float
    backlog: int | None
    operators: dict[str, tuple[int, int]]
    """Rows in and out of each operator, in this epoch."""
    shards: dict[str, dict[int, tuple[int, float]]]
    """For each keyed operator and shard: rows, and processor seconds in user code and around it."""
    state_bytes: dict[str, int]
    passed_over: dict[str, int]
    tasks: int
    levels: dict[int, list[tuple[float, float]]]
    """For each level, the seconds (wall, CPU) that each of its tasks spent in Python."""
    attempts: int = 1
    hot_keys: dict[str, dict[int, list[tuple[str, float]]]] = field(default_factory=dict)
    """For each keyed operator and heavy shard: its hottest keys, by name if asked for, and their shares."""
    tables: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """For each keyed operator, the task that held each shard."""
    spent: dict[str, tuple[float, float]] = field(default_factory=dict)
    """For each operator, the seconds (wall, CPU) that all tasks spent in it."""
    split: dict[str, float] = field(default_factory=dict)
    """Where the epoch's seconds went: reading, user code, state, shuffle, sink, and the fixed cost of a job."""
