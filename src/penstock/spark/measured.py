"""Where a task's time goes (reading, user code, state, shuffle, sink), and what an epoch took, for controllers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from penstock.clock import perf_counter, thread_time
from penstock.plan.plan import Plan
from penstock.rows.keys import SHARDS
from penstock.spark.parts import TaskReport
from penstock.spark.stages import EpochSpec
from penstock.statistics import FlowStats, OperatorStats
from penstock.store.checkpoint import ShardIndex

Part = Literal["read", "user", "state", "shuffle", "sink"]
PARTS: tuple[Part, ...] = ("read", "user", "state", "shuffle", "sink")
FIXED = "fixed"
"""What is left: Spark's own scheduling, starting tasks, moving bytes."""


@dataclass(slots=True)
class _Section:
    operator: str
    wall: float = 0.0
    cpu: float = 0.0
    """What sections inside this one took: it is theirs."""


class Spent:
    """Add up the seconds of one task, by part and by operator. A section may lie in another one."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.operators: dict[str, tuple[float, float]] = {}
        self._open: list[_Section] = []

    @contextmanager
    def on(self, part: Part, operator: str = "") -> Iterator[_Section]:
        """Count what is done inside; the operator may be set on what this gives, where it is known only then."""
        section = _Section(operator)
        self._open.append(section)
        wall, cpu = perf_counter(), thread_time()
        try:
            yield section
        finally:
            wall, cpu = perf_counter() - wall, thread_time() - cpu
            self._open.pop()
            if self._open:
                self._open[-1].wall += wall
                self._open[-1].cpu += cpu
            self.parts[part] = self.parts.get(part, 0.0) + wall - section.wall
            if section.operator:
                before = self.operators.get(section.operator, (0.0, 0.0))
                own = (wall - section.wall, cpu - section.cpu)
                self.operators[section.operator] = (before[0] + own[0], before[1] + own[1])

    def absorb(self, other: Spent, threads: int) -> None:
        """Add what was spent in one of so many threads of the same task: beside each other, they take as much less."""
        for part, seconds in other.parts.items():
            self.parts[part] = self.parts.get(part, 0.0) + seconds / threads
        for name, (wall, cpu) in other.operators.items():
            before = self.operators.get(name, (0.0, 0.0))
            self.operators[name] = (before[0] + wall, before[1] + cpu)


def operator_seconds(timings: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Add up the seconds (wall, CPU) of each operator over all tasks."""
    found: dict[str, tuple[float, float]] = {}
    for timing in timings:
        for name, (wall, cpu) in timing.get("operators", {}).items():
            before = found.get(name, (0.0, 0.0))
            found[name] = (before[0] + wall, before[1] + cpu)
    return found


def epoch_split(
    timings: Iterable[Mapping[str, Any]], seconds: float, publish: float, commit: float
) -> dict[str, float]:
    """Say where an epoch's seconds went.

    The tasks of a level run side by side and the next level waits for the last of them, so the last one's parts count.
    Where one task runs all levels, each has its own timing. The driver publishes the sinks and commits.
    """
    slowest: dict[Any, Mapping[str, Any]] = {}
    for timing in timings:
        level = timing["level"]
        if level not in slowest or timing.get("wall", 0.0) > slowest[level].get("wall", 0.0):
            slowest[level] = timing
    found: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for timing in slowest.values():
        for part, spent in timing.get("parts", {}).items():
            found[part] += spent
    found["sink"] += publish
    found["state"] += commit
    found[FIXED] = max(0.0, seconds - sum(found.values()))
    return found


Waited = tuple[int, float, float, float]
"""Rows of a task, seconds that they took together, seconds that they were in flight added up, and processor seconds."""
NO_WAITS: Waited = (0, 0.0, 0.0, 0.0)
_WEIGHT = 0.5
"""How much the latest epoch counts for what a row of a shard costs."""
_SURE_ROWS = 200
"""From as many rows on, a shard's own cost counts for more than its operator's."""


def is_telling(epoch: FlowStats) -> bool:
    """Tell whether an epoch's times can be compared with others: it had rows, and was not run twice."""
    return epoch.rows_in > 0 and epoch.attempts == 1 and bool(epoch.stage_times)


def stage_seconds(timings: Iterable[dict[str, Any]], started: float, seconds: float) -> dict[int, float]:
    """Divide the time of a job that began at `started` among its stages, by when the last task of each was done.

    The clocks of a cluster differ a little: no stage ends before the one above, or after the job.
    """
    ends: dict[int, float] = {}
    for timing in timings:
        ends[timing["level"]] = max(timing.get("ended", 0.0), ends.get(timing["level"], 0.0))
    found, before = {}, started
    for stage in sorted(ends):
        end = min(max(ends[stage], before), started + seconds)
        found[stage], before = end - before, end
    return found


def describe_epoch(plan: Plan, spec: EpochSpec, outcome: TaskReport, state: Mapping[str, ShardIndex]) -> FlowStats:
    """Put together what the tasks of an epoch reported, and what their state is by now."""
    shards: dict[str, dict[int, tuple[int, float]]] = {}
    hot: dict[str, dict[int, list[tuple[str, float]]]] = {}
    waits: dict[str, Waited] = {}
    stages: dict[int, list[tuple[float, float]]] = {}
    memory: dict[str, int] = {}
    for timing in outcome.timings:
        stages.setdefault(timing["level"], []).append((timing.get("wall", 0.0), timing.get("cpu", 0.0)))
        for name, load in timing["load"].items():
            shards.setdefault(name, {}).update({shard: (rows, spent) for shard, rows, spent in load})
        for name, keys in timing.get("hot_keys", {}).items():
            hot.setdefault(name, {}).update(keys)
        for name, held in timing.get("held", {}).items():
            memory[name] = memory.get(name, 0) + held
        for name, (rows, wall, flight, cpu) in timing.get("waits", {}).items():
            a, b, c, d = waits.get(name, NO_WAITS)
            waits[name] = (a + rows, b + wall, c + flight, d + cpu)
    spent, keyed = operator_seconds(outcome.timings), {node.name for node in plan.keyed}
    operators = {
        name: OperatorStats(
            1,
            outcome.rows_in.get(name, 0),
            outcome.rows_out.get(name, 0),
            *spent.get(name, (0.0, 0.0)),
            errors=outcome.passed_over.get(name, 0),
            retries=outcome.retried.get(name, 0),
            timeouts=outcome.timed_out.get(name, 0),
            forgotten=outcome.forgotten.get(name, 0),
            name=name,
            kind=node.operator.kind,
            shards=shards.get(name, {}),
            table=spec.tables[name] if name in keyed else None,
            waits=waits.get(name, NO_WAITS),
            keys=sum(state[name].keys.values()) if name in state else None,
            state_bytes=state[name].bytes() if name in state else None,
            memory_bytes=memory.get(name),
            shard_bytes={shard: sum(sizes) for shard, sizes in state[name].sizes.items()} if name in state else {},
            hot_keys=hot.get(name, {}),
        )
        for name, node in plan.nodes.items()
    }
    # One task reports itself once for each stage.
    tasks, add = [task for stage in stages.values() for task in stage], max if spec.solo else sum
    return FlowStats(
        rows_in=sum(outcome.rows_in.get(node.name, 0) for node in plan.sources),
        epochs=1,
        operators=operators,
        computed=add([cpu for _, cpu in tasks] or [0.0]),
        tasks=max(spec.tasks),
        task_seconds=add([wall for wall, _ in tasks] or [0.0]),
        epoch=spec.epoch,
        solo=spec.solo,
        stage_tasks=spec.tasks,
        stage_times=stages,
    )


class ShardLoads:
    """Estimate the load of each shard of an operator from epoch to epoch.

    Rows are counted exactly and change with the keys at once; what a row of a shard costs is noisy and changes slowly.
    So the load is the rows of the last epoch times a cost that is smoothed.
    """

    def __init__(self, shards: int = SHARDS) -> None:
        self._cost: dict[int, float] = {}
        self.loads: tuple[float, ...] = (0.0,) * shards

    def add(self, measured: Mapping[int, tuple[int, float]]) -> None:
        total = sum(rows for rows, _ in measured.values())
        if not total:
            return
        mean = sum(spent for _, spent in measured.values()) / total
        loads = [0.0] * len(self.loads)
        for shard, (rows, spent) in measured.items():
            sure = rows / (rows + _SURE_ROWS)
            cost = mean + (spent / rows - mean) * sure
            known = self._cost.get(shard, cost)
            self._cost[shard] = known + (cost - known) * _WEIGHT
            loads[shard] = rows * self._cost[shard]
        self.loads = tuple(loads)
