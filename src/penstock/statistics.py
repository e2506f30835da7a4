"""What happened in a flow, told alike by every engine and the simulator.

Everything is counted since the start, by operator and shard, so that a period is the difference of two (`since`), and
periods that follow each other, such as epochs, can be put together (`plus`). What only holds for a moment (queues,
workers, tables) is in the same description, and a period has it as it was at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

Number = TypeVar("Number", int, float)


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
    _: KW_ONLY
    partitions: tuple[int, ...] = ()
    """The shards that belong to it, where they do."""

    def since(self, before: ReplicaStats | None) -> ReplicaStats:
        """Return what it did after an earlier description; all of it where it went and came again."""
        if before is None or self.batches < before.batches:
            return self
        added = ("batches", "rows", "seconds", "full")
        return replace(self, **{name: getattr(self, name) - getattr(before, name) for name in added})


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
    _: KW_ONLY
    below_taken: float = 0.0
    """Seconds that they stood still because another producer was at a queue below."""
    errors: int = 0
    """Rows that failed and were passed over."""
    retries: int = 0
    """Attempts of its calls after the first of each."""
    timeouts: int = 0
    """Attempts that took longer than they may."""
    forgotten: int = 0
    """Keys whose time to live was over."""


@dataclass(slots=True)
class OperatorStats(Totals):
    """What one operator has done, and what waits for it."""

    _: KW_ONLY
    name: str = ""
    kind: str = ""
    came: float = 0
    """Rows that came to its input ports."""
    in_flight: float = 0.0
    """Of a function that waits, the seconds that its rows were in flight, added up."""
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
    waits: tuple[int, float, float, float] = (0, 0.0, 0.0, 0.0)
    """Of functions that wait, in the tasks of epochs: rows, seconds that they took together, seconds that they were in
    flight added up, and processor seconds."""
    queue_of: str = ""
    """The operator whose queue it shares, because they are run as one; its own name where it has one."""
    state_bytes: int | None = None
    """Bytes of its state, where that is kept."""
    shard_bytes: Mapping[int, int] = field(default_factory=dict)
    """Of which, by shard."""
    memory_bytes: int | None = None
    """Bytes of memory that its state takes, about, in all workers together."""
    hot_keys: Mapping[int, Sequence[tuple[str, float]]] = field(default_factory=dict)
    """The hottest keys of heavy shards, by name if asked for, and their shares."""
    begun: int = 0
    """Of a function that waits, the rows that it was called for, those included that wait for an answer."""

    def __repr__(self) -> str:
        return _brief(self)

    @property
    def blocked(self) -> dict[str, float]:
        """Seconds that workers in it stood still, by cause.

        `full`: a queue below was (`below_full`). `lock`: another producer was at one (`below_taken`). `wait`: its own
        code waited, for data or the interpreter's lock.
        """
        return {"full": self.below_full, "lock": self.below_taken, "wait": max(0.0, self.wall - self.cpu)}

    @property
    def selectivity(self) -> float | None:
        """Rows out per row in."""
        return self.rows_out / self.rows_in if self.rows_in else None

    def since(self, before: OperatorStats | None) -> OperatorStats:
        """Return what was done after an earlier description; all of it where the operator went and came again.

        The time of a chain that runs as one is shared out anew at each look: nothing was undone.
        """
        if before is None or self.batches < before.batches:
            return self
        earlier = {each.label: each for each in before.replicas}
        period = self._merged(before, -1)
        period.replicas = tuple(each.since(earlier.get(each.label)) for each in self.replicas)
        return period

    def plus(self, later: OperatorStats | None) -> OperatorStats:
        """Return what was done in all, and how it stood after what came later."""
        return self if later is None else later._merged(self, 1)

    def _merged(self, other: OperatorStats, sign: int) -> OperatorStats:
        merged = copy(self)
        for name in _ADDED:
            setattr(merged, name, getattr(self, name) + sign * getattr(other, name))
        merged.wall, merged.cpu = max(0.0, merged.wall), max(0.0, merged.cpu)
        merged.full = tuple(now + sign * then for now, then in zip(self.full, other.full, strict=True))
        waits = tuple(now + sign * then for now, then in zip(self.waits, other.waits, strict=True))
        merged.waits = waits  # type: ignore[assignment]
        nothing = (0, 0.0)
        merged.shards = {
            shard: (own[0] + sign * its[0], own[1] + sign * its[1])
            for shard in (self.shards if sign < 0 else {**other.shards, **self.shards})
            for own, its in ((self.shards.get(shard, nothing), other.shards.get(shard, nothing)),)
        }
        return merged


_ADDED = (*(field.name for field in fields(Totals)), "came", "in_flight", "begun")
"""What is added up for an operator; what else it has is as it stands."""


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
    _: KW_ONLY
    epochs: int = 0
    """Epochs that were committed; reports, with the threads engine."""
    operators: Mapping[str, OperatorStats] = field(default_factory=dict)
    workers: tuple[WorkerStats, ...] = ()
    waited: float = 0.0
    """Seconds for which sources were waited for."""
    computed: float = 0.0
    """Processor seconds of the whole process, or of all tasks."""
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
    knows_backlog: bool = False
    """Whether all sources know."""
    tasks: int = 0
    """Workers; or the tasks of the keyed stages, in the last epoch."""
    job_seconds: float = 0.0
    """Seconds of Spark's jobs."""
    task_seconds: float = 0.0
    """Seconds of all their tasks in Python, waiting included."""
    attempts: int = 0
    """How often epochs were run."""
    split: Mapping[str, float] = field(default_factory=dict)
    """Where the epochs' seconds went: reading, user code, state, shuffle, sink, and the fixed cost of a job."""
    epoch: int = 0
    """The last epoch. What follows is of that one."""
    solo: bool = False
    """Whether one task ran it."""
    stage_tasks: tuple[int, ...] = ()
    """The tasks of each stage."""
    stage_times: Mapping[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """For each stage, the seconds (wall, CPU) that each of its tasks spent in Python."""
    stage_seconds: Mapping[int, float] = field(default_factory=dict)
    """From the end of one stage to the end of the next: together they are the time of the job."""
    between: float = 0.0
    """Seconds that a source takes to give the next epoch, beside those of the epoch: a Spark query does."""

    def __repr__(self) -> str:
        each = "".join(f"\n  {operator!r}" for operator in self.operators.values())
        return _brief(self, leave_out="operators") + each

    @property
    def worked(self) -> float:
        """Seconds that workers spent in operators."""
        return sum(each.wall for each in self.operators.values())

    @property
    def rate(self) -> float:
        """Rows per second, summed over all operators."""
        return sum(each.rows_in for each in self.operators.values()) / self.seconds if self.seconds > 0 else 0.0

    @property
    def in_flight(self) -> int:
        """Batches that came in and are not out: as it stands, so not to be asked of a period."""
        return self.batches_in - self.batches_out

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of all operators, where that is kept."""
        return sum(each.state_bytes or 0 for each in self.operators.values())

    def stuck(self, seconds: float = 10.0) -> tuple[WorkerStats, ...]:
        """Return the workers that have been in one operator for longer than that."""
        return tuple(worker for worker in self.workers if worker.busy_for > seconds)

    def since(self, before: FlowStats) -> FlowStats:
        """Return what was done after an earlier description, and how it stood at the end."""
        busy = {each.number: each.busy_seconds for each in before.workers}
        return replace(
            self._merged(before, -1),
            seconds=self.at - before.at,
            operators={name: each.since(before.operators.get(name)) for name, each in self.operators.items()},
            workers=tuple(
                replace(each, busy_seconds=each.busy_seconds - busy.get(each.number, 0.0)) for each in self.workers
            ),
        )

    def plus(self, later: FlowStats) -> FlowStats:
        """Return what was done before and in a later period, and how it stood at the end of that."""
        names = {**self.operators, **later.operators}
        return replace(
            later._merged(self, 1),
            seconds=self.seconds + later.seconds,
            operators={
                name: self.operators[name].plus(later.operators.get(name)) if name in self.operators else each
                for name, each in names.items()
            },
        )

    def _merged(self, other: FlowStats, sign: int) -> FlowStats:
        added = ("rows_in", "epochs", "batches_in", "batches_out", "waited", "computed", "job_seconds", "task_seconds")
        return replace(
            self,
            **{name: getattr(self, name) + sign * getattr(other, name) for name in (*added, "attempts")},
            rows_out=_merged(self.rows_out, other.rows_out, sign),
            split=_merged(self.split, other.split, sign),
        )


def epoch_fields(stats: FlowStats) -> dict[str, Any]:
    """Return what an epoch did as fields for a log that machines read."""
    return {
        "event": "epoch",
        "epoch": stats.epoch,
        "rows_in": stats.rows_in,
        "rows_out": dict(stats.rows_out),
        "seconds": round(stats.seconds, 4),
        "backlog": stats.backlog,
        "state_bytes": stats.state_bytes,
        "tasks": stats.tasks,
        "attempts": stats.attempts,
    }


def _brief(stats: Any, leave_out: str = "") -> str:
    """Show what is not as it was at the start; of what has many parts, such as shards, only how many there are."""
    shown = []
    for each in fields(stats):
        value = getattr(stats, each.name)
        if each.name == leave_out or not value or value == each.default:
            continue
        if isinstance(value, float):
            value = float(f"{value:.4g}")
        elif isinstance(value, Mapping | tuple | list) and len(value) > _MOST_PARTS:
            value = f"<{len(value)} of them>"
        shown.append(f"{each.name}={value if str(value).startswith('<') else repr(value)}")
    return f"{type(stats).__name__}({', '.join(shown)})"


_MOST_PARTS = 8


def _merged(now: Mapping[str, Number], other: Mapping[str, Number], sign: int) -> dict[str, Number]:
    names = now if sign < 0 else {**other, **now}
    return {name: now.get(name, 0) + sign * other.get(name, 0) for name in names}
