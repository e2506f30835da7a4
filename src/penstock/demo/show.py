"""Print what the demonstration does: a line a second, and a table at the end."""

from __future__ import annotations

from statistics import median

import numpy as np

from penstock.cli.displays import Progress, count, duration, size
from penstock.demo.check import Verdict
from penstock.demo.flow import Readings
from penstock.statistics import FlowStats

LINE_SECONDS = 1.0


class Show:
    """Follow a run, epoch by epoch. Times are passed in."""

    def __init__(self, readings: Readings, began: float) -> None:
        self.progress = Progress(began)
        self.milliseconds: list[float] = []
        self.changes: list[str] = []
        """The changes of the number of tasks, as "2 -> 4"."""
        self._readings, self._began = readings, began
        self._shown, self._rows_shown = began, 0
        self._tasks: int | None = None

    def epoch(self, stats: FlowStats, now: float) -> None:
        """Take in an epoch; print a line if the last one was a second ago."""
        self.progress.take(stats, now)
        if stats.rows_in:
            self.milliseconds.append(stats.seconds * 1000)
        if self._tasks is not None and stats.tasks != self._tasks:
            self.changes.append(f"{self._tasks} -> {stats.tasks}")
            now_tasks = count(stats.tasks, "task")
            print(f"         epoch {stats.epoch} ran with {now_tasks} instead of {self._tasks}: no restart")
        self._tasks = stats.tasks
        if now - self._shown >= LINE_SECONDS and self.progress.rows_in > self._rows_shown:
            print(self._line(stats, now), flush=True)
            self._shown, self._rows_shown = now, self.progress.rows_in

    def _line(self, stats: FlowStats, now: float) -> str:
        seen = self._readings.sensors(self._rows_shown, self.progress.rows_in)
        sensors, counts = np.unique(seen, return_counts=True)
        busiest = np.argsort(-counts, kind="stable")[:3]
        hot = " ".join(f"{sensors[i]} ({100 * counts[i] / len(seen):.0f} %)" for i in busiest)
        return (
            f"{now - self._began:5.0f} s  epoch {stats.epoch:3}  {self.progress.rate():6,.0f} rows/s  "
            f"{stats.seconds * 1000:5.0f} ms  tasks {stats.tasks}  hot sensors {hot}  "
            f"busiest shard {shard_load(stats)}  state {size(stats.state_bytes)}"
        )

    def summary(self, verdicts: list[Verdict], now: float, check_seconds: float) -> str:
        """Make the table at the end."""
        progress, last = self.progress, self.progress.last
        spent = now - self._began
        lines = [
            ("rows in", f"{progress.rows_in:,}"),
            ("rows out", ", ".join(f"{verdict.rows:,} {verdict.sink}" for verdict in verdicts)),
            ("rows/s", f"{progress.rows_in / spent:,.0f}"),
            ("epochs", f"{progress.epochs:,}"),
            ("median epoch", f"{median(self.milliseconds):.0f} ms" if self.milliseconds else "-"),
            ("state", size(last.state_bytes) if last is not None else "-"),
            ("task changes", f"{len(self.changes)} ({', '.join(self.changes) or 'none'})"),
            ("order check", f"against the one-row-at-a-time run, {duration(check_seconds)}"),
        ]
        table = [f"  {name:<14}{value}" for name, value in lines]
        table += [f"  {'':<14}{_verdict(verdict)}" for verdict in verdicts]
        passed = all(verdict.difference is None for verdict in verdicts)
        return "\n".join([*table, f"  {'ORDER CHECK':<14}{'PASSED' if passed else 'FAILED'}"])


def shard_load(stats: FlowStats) -> str:
    """Say how much more the busiest shard of the epoch had to do than the average one of the 256."""
    track = stats.operators.get("track")
    rows = [rows for rows, _ in track.shards.values()] if track is not None else []
    return f"{max(rows) * 256 / sum(rows):.0f}x the mean" if rows and sum(rows) else "-"


def _verdict(verdict: Verdict) -> str:
    if verdict.difference is None:
        return f"{verdict.sink}: {verdict.rows:,} rows, each the same and in the same place"
    return f"{verdict.sink}: {verdict.difference}"
