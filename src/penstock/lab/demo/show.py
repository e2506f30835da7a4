"""Print what the demonstration does: a line per second, each decision with its reason, and a table at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from statistics import median

import numpy as np

from penstock.cli.displays import Progress, count, duration, size
from penstock.elastic.decisions import Decision
from penstock.lab.demo.check import Verdict
from penstock.lab.demo.flow import sensors
from penstock.statistics import FlowStats

LINE_SECONDS = 1.0
_RECENT = 20


class Show:
    """Follow a run, epoch by epoch. Times are passed in."""

    def __init__(self, began: float) -> None:
        self.progress = Progress(began)
        self.milliseconds: list[float] = []
        self.changes: list[str] = []
        """The changes of the number of tasks, as "1 -> 2 (190 ms)"."""
        self.decided: Counter[str] = Counter()
        self._gaps: list[float] = []
        """Milliseconds from each epoch to the next."""
        self._began, self._shown, self._rows_shown = began, began, 0
        self._last: float | None = None
        self._tasks: int | None = None

    def epoch(self, stats: FlowStats, now: float) -> None:
        """Take in an epoch; print a line if the last one was a second ago."""
        self.progress.take(stats, now)
        if stats.rows_in:
            self.milliseconds.append(stats.seconds * 1000)
        gap = 0.0 if self._last is None else 1000 * (now - self._last)
        if self._tasks is not None and stats.tasks != self._tasks:
            self.changes.append(f"{self._tasks} -> {stats.tasks}: {gap:.0f} ms")
            usual = f", {median(self._gaps):.0f} ms is usual" if self._gaps else ""
            tell(
                f"epoch {stats.epoch} ran with {count(stats.tasks, 'task')} instead of {self._tasks}, "
                f"{gap:.0f} ms after the one before{usual}: no restart"
            )
        if self._last is not None:
            self._gaps = [*self._gaps[1 - _RECENT :], gap]
        self._tasks, self._last = stats.tasks, now
        if now - self._shown >= LINE_SECONDS and self.progress.rows_in > self._rows_shown:
            print(self._line(stats, now), flush=True)
            self._shown, self._rows_shown = now, self.progress.rows_in

    def decisions(self, made: Iterable[Decision]) -> None:
        """Print decisions with their reasons; what one step decided several times over is one line."""
        acted = (each for each in made if each.what != "hold")
        for (controller, _), group in groupby(acted, key=lambda each: (each.controller, each.step)):
            some = list(group)
            self.decided[controller] += 1
            for each in {each.what: each for each in reversed(some)}.values():
                tell(f"decided: {each.why}")

    def _line(self, stats: FlowStats, now: float) -> str:
        seen = sensors(self._rows_shown, self.progress.rows_in)
        names, counts = np.unique(seen, return_counts=True)
        busiest = np.argsort(-counts, kind="stable")[:3]
        hot = " ".join(f"{names[i]} ({100 * counts[i] / len(seen):.0f} %)" for i in busiest)
        return (
            f"{now - self._began:5.0f} s  {self.progress.rate():7,.0f} rows/s  epoch {stats.epoch:3} "
            f"{stats.seconds * 1000:5.0f} ms  tasks {stats.tasks}  hot sensors {hot}"
        )

    def summary(self, verdicts: list[Verdict], now: float, check_seconds: float) -> str:
        progress, last = self.progress, self.progress.last
        spent = now - self._began
        lines = [
            ("rows in", f"{progress.rows_in:,}, {progress.rows_in / spent:,.0f} a second on average"),
            ("rows out", ", ".join(f"{verdict.rows:,} {verdict.sink}" for verdict in verdicts)),
            ("epochs", f"{progress.epochs:,}, median {median(self.milliseconds or [0]):.0f} ms"),
            ("state", size(last.state_bytes) if last is not None else "-"),
            ("task changes", f"{len(self.changes)} ({', '.join(self.changes) or 'none'})"),
            ("decisions", ", ".join(f"{number} {name}" for name, number in self.decided.items()) or "none"),
            ("order check", f"against the one-row-at-a-time run, {duration(check_seconds)}"),
        ]
        table = [f"  {name:<14}{value}" for name, value in lines]
        table += [f"  {'':<14}{_verdict(verdict)}" for verdict in verdicts]
        passed = all(verdict.difference is None for verdict in verdicts)
        return "\n".join([*table, f"  {'ORDER CHECK':<14}{'PASSED' if passed else 'FAILED'}"])


def tell(line: str) -> None:
    """Print what is being done, or was decided."""
    print(f"         {line}", flush=True)


def _verdict(verdict: Verdict) -> str:
    if verdict.difference is None:
        return f"{verdict.sink}: {verdict.rows:,} rows, each exactly once and in its place"
    return f"{verdict.sink}: {verdict.difference}"
