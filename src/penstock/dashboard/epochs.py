"""Describe a run from the epochs of its last seconds: what the Spark engine reports, and the sequential one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import reduce
from typing import Any

from penstock.dashboard.graph import Reach
from penstock.dashboard.pressure import pressure_in_epochs
from penstock.dashboard.shards import ShardTracker
from penstock.statistics import FlowStats, OperatorStats

Json = dict[str, Any]

RECENT_SECONDS = 5.0
KEPT = 1000
"""Epochs that are remembered: latencies are of these."""
SHOWN = 48


class EpochView:
    """Remember the last epochs. The engine's thread brings them; another one describes."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._recent: deque[tuple[float, FlowStats]] = deque(maxlen=KEPT)
        self._shards = ShardTracker()
        self._reach = Reach()

    def take(self, stats: FlowStats, at: float) -> None:
        """Take in an epoch that was committed just now."""
        self._shards.take(stats, at)
        self._recent.append((at, stats))

    def describe(self, graph: Json, now: float, stats: FlowStats) -> Json:
        """Return the engine's part of a sample; `stats` is what the run has done since it started."""
        epochs = list(self._recent)
        window, span = recent(epochs, now)
        lately = reduce(FlowStats.plus, window, FlowStats())
        rate = lately.rows_in / span
        latencies = quantiles([(each.seconds, each.rows_in) for _, each in epochs[-200:]])
        lag = None
        if stats.backlog is not None:
            lag = stats.backlog / rate if rate else (0.0 if not stats.backlog else None)
        tasks = max((each.tasks for each in window), default=1)
        nothing = OperatorStats()
        operators = {
            name: self._operator(stats.operators.get(name, nothing), lately.operators.get(name, nothing), span, tasks)
            for name in (node["name"] for node in graph["nodes"])
        }
        seconds = {name: each["seconds"] for name, each in operators.items()}
        mean_rows = lately.rows_in // max(1, len(window))
        fixed = lately.split.get("fixed", 0.0) / lately.seconds if lately.seconds else 0.0
        return {
            "totals": {
                "rate": round(rate, 1),
                "latency": latencies,
                "lag_seconds": None if lag is None else round(lag, 3),
                "size": stats.tasks,
                "size_name": "tasks",
                "state_bytes": stats.state_bytes,
                "errors": sum(each.errors for each in stats.operators.values()),
            },
            "operators": operators,
            "pressure": pressure_in_epochs(self._reach.look(graph), stats.backlog, mean_rows, seconds, fixed),
            "shards": self._shards.describe(lately),
            "order": {"depth": 0, "gap": 0.0, "operator": None},
            "epochs": [describe_epoch(each, at) for at, each in epochs[-SHOWN:]],
            "checkpoint": self._checkpoint(epochs, now, stats.state_bytes),
            "workers": [],
            "latencies": dict.fromkeys(operators, latencies),
        }

    def _checkpoint(self, epochs: Sequence[tuple[float, FlowStats]], now: float, size: int) -> Json | None:
        if self._engine != "spark" or not epochs:
            return None
        at, stats = epochs[-1]
        return {"epoch": stats.epoch, "at": round(at, 3), "age": round(max(0.0, now - at), 3), "bytes": size}

    def _operator(self, now: OperatorStats, lately: OperatorStats, span: float, tasks: int) -> Json:
        return {
            **describe_operator(now, lately, span),
            "busy": round(min(1.0, lately.wall / span / tasks), 4),
            "queue": None,
            "state_bytes": now.state_bytes,
        }


def describe_operator(now: OperatorStats, lately: OperatorStats, span: float) -> Json:
    """Return what an operator has done as plain JSON, and what it did in the last `span` seconds."""
    shown = now.selectivity if now.kind != "sink" else None
    return {
        "rows_in": now.rows_in,
        "rows_out": now.rows_out,
        "rate_in": round(lately.rows_in / span, 1),
        "rate_out": round(lately.rows_out / span, 1),
        "seconds": round(lately.wall, 5),
        "wall": round(now.wall, 4),
        "cpu": round(now.cpu, 4),
        "cpu_share": round(min(1.0, lately.cpu / lately.wall), 4) if lately.wall > 0 else None,
        "cost": round(1e6 * now.wall / now.rows_in, 3) if now.rows_in and now.wall else None,
        "selectivity": None if shown is None else round(shown, 4),
        "errors": now.errors,
        "keys": now.keys,
        "reorder_depth": now.reorder_depth,
        "oldest_gap": round(now.oldest_gap, 4),
    }


def describe_epoch(stats: FlowStats, at: float) -> Json:
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


def recent(epochs: Sequence[tuple[float, FlowStats]], now: float) -> tuple[list[FlowStats], float]:
    """Return the epochs of the last seconds, at least one, and the seconds that they span; none where all is quiet."""
    if not epochs:
        return [], 1.0
    at, last = epochs[-1]
    if now - at > max(RECENT_SECONDS, 3 * last.seconds):
        return [], 1.0
    found: list[FlowStats] = []
    began = at
    for committed, stats in reversed(epochs):
        if found and committed < now - RECENT_SECONDS:
            # From this one's commit on: between epochs time passes too.
            return found, max(at - committed, 1e-3)
        found.append(stats)
        began = committed - stats.seconds
    return found, max(at - began, 1e-3)


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
