"""What happened in a flow, told alike by every engine and the simulator.

Everything is counted since the start, by operator and shard, so that a period is the difference of two (`since`). What
only holds for a moment (queues, workers, tables) is in the same description, and a period has it as it was at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the moment that rows are read to the moment that what they led to is out."""

    batches: int
    p50: float
    p99: float
    trimmed_mean: float
    """The mean over the batches from 20 to 80 % of the run so far, as Ordered reports it."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What one worker does and has done."""

    number: int
    state: Literal["idle", "busy", "suspended"]
    operator: str | None
    busy_for: float
    """Seconds since it took the operator that it is in."""
    busy_seconds: float
    """Seconds that it has spent in operators."""
    own: bool = False
    """Whether it belongs to one port, and so is not one of those that the scheduler shares out."""


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """What one replica of an operator has done, and what waits for it."""

    label: str
    batches: int
    """Batches, or parts of batches, that it worked on."""
    rows: int
    seconds: float
    """Seconds that workers spent in it."""
    queued: int
    full: float
    """Seconds that its queue was full."""
    partitions: tuple[int, ...] = ()
    """The shards that belong to it, where they do."""

    def since(self, before: ReplicaStats | None) -> ReplicaStats:
        """Return what it did after an earlier description; all of it where it went and came again."""
        if before is None or self.batches < before.batches:
            return self
        return replace(
            self,
            batches=self.batches - before.batches,
            rows=self.rows - before.rows,
            seconds=self.seconds - before.seconds,
            full=self.full - before.full,
        )


@dataclass(slots=True)
class Totals:
    """What was done for one operator since the start."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    wall: float = 0.0
    """Seconds that workers spent in it."""
    cpu: float = 0.0
    """Seconds of processor time among them: the difference is waiting, and waiting for the interpreter's lock."""
    below_full: float = 0.0
    """Seconds that workers stood still because a queue below was full and another one was draining it (for a source:
    because as many batches were in the flow as there may be)."""
    below_taken: float = 0.0
    """Seconds that they stood still because another producer was at a queue below."""
    errors: int = 0
    """Rows that failed and were passed over."""


@dataclass(slots=True)
class OperatorStats(Totals):
    """What one operator has done, and what waits for it."""

    name: str = ""
    kind: str = ""
    came: float = 0
    """Rows that came to its input ports."""
    full: tuple[float, ...] = ()
    """Seconds that the queue of each input port was full, so that those that write to it were blocked."""
    shards: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """Rows and seconds of each shard of a keyed operator."""
    replicas: tuple[ReplicaStats, ...] = ()
    """Its replicas; none where its workers share it as its kind allows."""
    queued: tuple[int, ...] = ()
    """Batches that wait at each input port."""
    rows_queued: float = 0
    """Rows among them."""
    reorder_depth: int = 0
    """Batches that are done and wait for an earlier one."""
    oldest_gap: float = 0.0
    """Seconds since the batch that they wait for came in; 0 where none waits."""
    keys: int | None = None
    """Keys that have state; None where the operator has none."""
    permits: int | None = None
    """How many workers it admits; None for any number."""
    table: tuple[int, ...] | None = None
    """Which task or replica has each shard; None where any worker takes any."""

    @property
    def blocked(self) -> dict[str, float]:
        """Seconds that workers in it stood still, by cause.

        `full`: a queue below was (`below_full`). `lock`: another producer was at one (`below_taken`). `wait`: its own
        code waited, for data or the interpreter's lock.
        """
        return {"full": self.below_full, "lock": self.below_taken, "wait": max(0.0, self.wall - self.cpu)}

    @property
    def selectivity(self) -> float | None:
        """Rows out for a row in."""
        return self.rows_out / self.rows_in if self.rows_in else None

    def since(self, before: OperatorStats | None) -> OperatorStats:
        """Return what was done after an earlier description; all of it where the operator went and came again.

        The time of a chain that runs as one is shared out anew at each look: nothing was undone.
        """
        if before is None or self.batches < before.batches:
            return self
        earlier = {each.label: each for each in before.replicas}
        shards = {
            shard: (rows - then[0], seconds - then[1])
            for shard, (rows, seconds) in self.shards.items()
            for then in (before.shards.get(shard, (0, 0.0)),)
        }
        return OperatorStats(
            self.batches - before.batches,
            self.rows_in - before.rows_in,
            self.rows_out - before.rows_out,
            max(0.0, self.wall - before.wall),
            max(0.0, self.cpu - before.cpu),
            self.below_full - before.below_full,
            self.below_taken - before.below_taken,
            self.errors - before.errors,
            self.name,
            self.kind,
            self.came - before.came,
            tuple(now - then for now, then in zip(self.full, before.full, strict=True)),
            shards,
            tuple(each.since(earlier.get(each.label)) for each in self.replicas),
            self.queued,
            self.rows_queued,
            self.reorder_depth,
            self.oldest_gap,
            self.keys,
            self.permits,
            self.table,
        )


@dataclass(frozen=True)
class FlowStats:
    """What a flow has done, and how it stands."""

    at: float = 0.0
    """When that was, by the engine's clock."""
    seconds: float = 0.0
    """How long it took; since the start of the flow, or of the period."""
    rows_in: int = 0
    rows_out: Mapping[str, int] = field(default_factory=dict)
    """Rows that each sink has written."""
    batches_in: int = 0
    batches_out: int = 0
    epochs: int = 0
    """Epochs that were committed; reports, with the threads engine."""
    operators: Mapping[str, OperatorStats] = field(default_factory=dict)
    workers: tuple[WorkerStats, ...] = ()
    waited: float = 0.0
    """Seconds for which sources were waited for."""
    computed: float = 0.0
    """Processor seconds of the whole process."""
    latency: Latency | None = None
    """Of the last batches; None before the first one is out."""
    queries: Mapping[str, Latency] = field(default_factory=dict)
    """For each sink, the latency of what reaches it."""
    capacity: int = 0
    """Batches that an input port holds."""
    most_in_flight: int = 0
    """Batches that may be in the flow at once."""
    oldest: float = 0.0
    """Seconds since the oldest batch in flight came in."""
    backlog: int | None = None
    """Rows that are known to wait at the sources; None where no source knows."""

    @property
    def worked(self) -> float:
        """Seconds that workers spent in operators."""
        return sum(each.wall for each in self.operators.values())

    @property
    def rate(self) -> float:
        """Rows a second, summed over all operators."""
        return sum(each.rows_in for each in self.operators.values()) / self.seconds if self.seconds > 0 else 0.0

    @property
    def in_flight(self) -> int:
        """Batches that came in and are not out: as it stands, so not to be asked of a period."""
        return self.batches_in - self.batches_out

    def stuck(self, seconds: float = 10.0) -> tuple[WorkerStats, ...]:
        """Return the workers that have been in one operator for longer than that."""
        return tuple(worker for worker in self.workers if worker.busy_for > seconds)

    def since(self, before: FlowStats) -> FlowStats:
        """Return what was done after an earlier description, and how it stood at the end."""
        busy = {each.number: each.busy_seconds for each in before.workers}
        return replace(
            self,
            seconds=self.at - before.at,
            rows_in=self.rows_in - before.rows_in,
            rows_out={sink: rows - before.rows_out.get(sink, 0) for sink, rows in self.rows_out.items()},
            epochs=self.epochs - before.epochs,
            batches_in=self.batches_in - before.batches_in,
            batches_out=self.batches_out - before.batches_out,
            operators={name: each.since(before.operators.get(name)) for name, each in self.operators.items()},
            workers=tuple(
                replace(each, busy_seconds=each.busy_seconds - busy.get(each.number, 0.0)) for each in self.workers
            ),
            waited=self.waited - before.waited,
            computed=self.computed - before.computed,
        )
