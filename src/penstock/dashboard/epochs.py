"""Describe a run from the epochs of its last seconds: what the Spark engine reports, and the sequential one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.dashboard.graph import Reach
from penstock.dashboard.pressure import pressure_in_epochs
from penstock.dashboard.shards import ShardTracker
from penstock.reports import EpochStats

Json = dict[str, Any]

RECENT_SECONDS = 5.0
KEPT = 1000
"""Epochs that are remembered: latencies are of these."""
SHOWN = 48
NOTHING = (0, 0, 0.0, 0.0)
"""What an operator did that did nothing: rows in and out, seconds, processor seconds."""


@dataclass
class _Sums:
    """What all epochs of a run add up to."""

    rows_in: int = 0
    rows_out: int = 0
    epochs: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    operators: dict[str, list[int]] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=dict)


class EpochView:
    """Remember the last epochs. The engine's thread brings them; another one describes."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._recent: deque[tuple[float, EpochStats]] = deque(maxlen=KEPT)
        self._sums = _Sums()
        self._shards = ShardTracker()
        self._sinks: set[str] = set()
        self._reach = Reach()

    def take(self, stats: EpochStats, at: float) -> None:
        """Take in an epoch that was committed just now."""
        sums = self._sums
        sums.rows_in += stats.rows_in
        sums.rows_out += sum(stats.rows_out.values())
        sums.epochs += 1
        for name, count in stats.passed_over.items():
            sums.errors[name] = sums.errors.get(name, 0) + count
        for name, rows in stats.operators.items():
            total = sums.operators.setdefault(name, [0, 0])
            total[0] += rows[0]
            total[1] += rows[1]
        for name, seconds in stats.spent.items():
            spent = sums.spent.setdefault(name, [0.0, 0.0])
            spent[0] += seconds[0]
            spent[1] += seconds[1]
        self._shards.take(stats, at)
        self._recent.append((at, stats))

    def totals(self) -> Json:
        """Return what the epochs know whatever the engine: a report of the threads engine is one, too."""
        last = self._recent[-1][1] if self._recent else None
        return {
            "rows_in": self._sums.rows_in,
            "rows_out": self._sums.rows_out,
            "epochs": self._sums.epochs,
            "lag_rows": last.backlog if last is not None else None,
        }

    def describe(self, graph: Json, now: float) -> Json:
        """Return the engine's part of a sample."""
        epochs = list(self._recent)
        window, span = recent(epochs, now)
        last = epochs[-1][1] if epochs else None
        rows = sum(stats.rows_in for stats in window)
        rate = rows / span
        latencies = quantiles([(stats.seconds, stats.rows_in) for _, stats in epochs[-200:]])
        lag = None
        if last is not None and last.backlog is not None:
            lag = last.backlog / rate if rate else (0.0 if not last.backlog else None)
        state = last.state_bytes if last is not None else {}
        self._sinks = {node["name"] for node in graph["nodes"] if node["kind"] == "sink"}
        lately = add_up(window)
        tasks = max((stats.tasks for stats in window), default=1)
        operators = {
            node["name"]: self._operator(node["name"], lately.get(node["name"], NOTHING), span, tasks, state)
            for node in graph["nodes"]
        }
        seconds = {name: each["seconds"] for name, each in operators.items()}
        mean_rows = rows // max(1, len(window))
        return {
            "totals": {
                "rate": round(rate, 1),
                "latency": latencies,
                "lag_seconds": None if lag is None else round(lag, 3),
                "size": last.tasks if last is not None else 0,
                "size_name": "tasks",
                "state_bytes": sum(state.values()),
                "errors": sum(self._sums.errors.values()),
            },
            "operators": operators,
            "pressure": pressure_in_epochs(
                self._reach.look(graph), last.backlog if last else None, mean_rows, seconds, fixed_share(window)
            ),
            "shards": self._shards.describe(window),
            "order": {"depth": 0, "gap": 0.0, "operator": None},
            "epochs": [describe_epoch(stats, at) for at, stats in epochs[-SHOWN:]],
            "checkpoint": self._checkpoint(epochs, now, sum(state.values())),
            "workers": [],
            "latencies": dict.fromkeys(operators, latencies),
        }

    def _checkpoint(self, epochs: Sequence[tuple[float, EpochStats]], now: float, size: int) -> Json | None:
        if self._engine != "spark" or not epochs:
            return None
        at, stats = epochs[-1]
        return {"epoch": stats.epoch, "at": round(at, 3), "age": round(max(0.0, now - at), 3), "bytes": size}

    def _operator(self, name: str, lately: Sequence[float], span: float, tasks: int, state: dict[str, int]) -> Json:
        rows_in, rows_out, wall, cpu = lately
        all_rows, all_out = self._sums.operators.get(name, (0, 0))
        all_wall, all_cpu = self._sums.spent.get(name, (0.0, 0.0))
        return {
            "rows_in": all_rows,
            "rows_out": all_out,
            "rate_in": round(rows_in / span, 1),
            "rate_out": round(rows_out / span, 1),
            "busy": round(min(1.0, wall / span / tasks), 4),
            "seconds": round(wall, 5),
            "wall": round(all_wall, 4),
            "cpu": round(all_cpu, 4),
            "cpu_share": round(min(1.0, cpu / wall), 4) if wall > 0 else None,
            "cost": round(1e6 * all_wall / all_rows, 3) if all_rows and all_wall else None,
            "selectivity": round(all_out / all_rows, 4) if all_rows and name not in self._sinks else None,
            "queue": None,
            "errors": self._sums.errors.get(name, 0),
            "keys": None,
            "state_bytes": state.get(name),
            "reorder_depth": 0,
            "oldest_gap": 0.0,
        }


def add_up(epochs: Sequence[EpochStats]) -> dict[str, list[float]]:
    """Return the rows in and out, the seconds and the processor seconds of each operator in these epochs."""
    found: dict[str, list[float]] = {}
    for stats in epochs:
        for at, measured in ((0, stats.operators), (2, stats.spent)):
            for name, (first, second) in measured.items():
                sums = found.get(name)
                if sums is None:
                    sums = found[name] = [0, 0, 0.0, 0.0]
                sums[at] += first
                sums[at + 1] += second
    return found


def describe_epoch(stats: EpochStats, at: float) -> Json:
    """Return one epoch as plain JSON."""
    split = {part: round(seconds, 5) for part, seconds in stats.split.items()} or {"user": round(stats.seconds, 5)}
    return {
        "epoch": stats.epoch,
        "at": round(at, 3),
        "rows": stats.rows_in,
        "seconds": round(stats.seconds, 5),
        "split": split,
        "tasks": stats.tasks,
        "attempts": stats.attempts,
    }


def recent(epochs: Sequence[tuple[float, EpochStats]], now: float) -> tuple[list[EpochStats], float]:
    """Return the epochs of the last seconds, at least one, and the seconds that they span; none where all is quiet."""
    if not epochs:
        return [], 1.0
    at, last = epochs[-1]
    if now - at > max(RECENT_SECONDS, 3 * last.seconds):
        return [], 1.0
    found: list[EpochStats] = []
    began = at
    for committed, stats in reversed(epochs):
        if found and committed < now - RECENT_SECONDS:
            # From this one's commit on: between epochs time passes too.
            return found, max(at - committed, 1e-3)
        found.append(stats)
        began = committed - stats.seconds
    return found, max(at - began, 1e-3)


def fixed_share(epochs: Sequence[EpochStats]) -> float:
    """Return the part of the epochs' time that went into Spark's own work."""
    seconds = sum(stats.seconds for stats in epochs)
    return sum(stats.split.get("fixed", 0.0) for stats in epochs) / seconds if seconds else 0.0


def quantiles(weighted: Sequence[tuple[float, int]]) -> Json | None:
    """Return the median and the 99th percentile of (seconds, rows): rows of an epoch take as long as the epoch."""
    with_rows = sorted((seconds, rows) for seconds, rows in weighted if rows)
    total = sum(rows for _, rows in with_rows)
    if not total:
        return None
    found = {}
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        passed = 0
        for seconds, rows in with_rows:
            passed += rows
            if passed >= part * total:
                found[name] = round(seconds, 5)
                break
    return found
