"""What a task must know of its epoch: small, pickled with the job, the same for all tasks of a level."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.ingress.splits import Split
from penstock.kernels.intake import SourceMarks
from penstock.spark.batches import BatchPlaces
from penstock.store.checkpoint import ShardIndex
from penstock.timing import Ticks

CHAIN_LIMIT = 8
"""A shard is written whole once its chain has as many files, if it changes."""


@dataclass(frozen=True)
class StatePointers:
    """Which files hold the shards of one operator: for each shard, numbers into `files`, oldest first."""

    files: tuple[str, ...] = ()
    chains: dict[int, tuple[int, ...]] = field(default_factory=dict)
    due: dict[int, Ticks] = field(default_factory=dict)
    """The earliest timer of each shard that has one."""
    full: frozenset[int] = frozenset()
    """Shards whose chain is long: they are written whole if they change."""

    @classmethod
    def of(cls, index: ShardIndex) -> StatePointers:
        """Return what tasks must know of an operator's files."""
        files = index.files()
        number = {name: i for i, name in enumerate(files)}
        chains = {shard: tuple(number[name] for name in chain) for shard, chain in index.chains.items()}
        full = frozenset(shard for shard, chain in index.chains.items() if len(chain) >= CHAIN_LIMIT)
        return cls(tuple(files), chains, dict(index.due), full)


@dataclass(frozen=True)
class EpochSpec:
    """One epoch."""

    epoch: int
    tasks: tuple[int, ...]
    """The number of tasks of each level."""
    tables: dict[str, tuple[int, ...]]
    """For each keyed operator, the task of each shard; for each sink, the task of each slice."""
    slices: dict[str, tuple[int, ...]]
    """For each sink, the positions at which its slices begin, but for the first."""
    splits: tuple[tuple[tuple[str, Split], ...], ...]
    """For each task of level 0, the (source, split) pairs that it reads."""
    marks: dict[str, SourceMarks]
    """The watermarks of each source and its parts before the epoch."""
    ends: dict[str, tuple[int, ...]]
    """The sources that end with this epoch, and where."""
    state: dict[str, StatePointers]
    checkpoint: str
    flow_id: str
    """Names the flow and its checkpoint in a worker's cache."""
    sink_schemas: dict[str, bytes]
    """The schema of a sink whose rows are not declared, once it is known."""
    fence: int
    """The number of the driver's lease: tasks of a driver that is gone write where nobody looks."""
    in_flight: dict[str, int] = field(default_factory=dict)
    """For operators that wait, how many rows at once, where it is not what the flow says."""
    threads: int = 1
    """Threads of a task, for operators without memory."""
    name_keys: bool = False
    """Whether the hottest keys may leave a task by name: they are values of rows."""
    solo: bool = False
    """Whether one task runs all levels one after the other: for epochs so small that a shuffle would cost more."""

    batches: dict[str, BatchPlaces] = field(default_factory=dict)
    """For each streaming DataFrame that the epoch reads, what tells the places of its rows."""

    @property
    def waters(self) -> dict[str, Ticks]:
        """Return the watermark of each source before the epoch."""
        return {name: marks.water for name, marks in self.marks.items()}

    def following(self, level: int) -> int:
        """Return the number of tasks that a level's envelopes go to: those of the next level, or the driver."""
        return self.tasks[level + 1] if not self.solo and level + 1 < len(self.tasks) else 1
