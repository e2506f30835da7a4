"""Say how a run is doing: what was done so far, in one line."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.statistics import FlowStats

RECENT_SECONDS = 5.0


class Progress:
    """Add up the epochs of a run. Times are passed in, in seconds of a clock that never goes back."""

    def __init__(self, began: float) -> None:
        self.began = began
        """When the first epoch began; until there is one, when the command did."""
        self.epochs = self.rows_in = self.rows_out = 0
        self.last: FlowStats | None = None
        """The last epoch."""
        self._recent: deque[tuple[float, int]] = deque([(began, 0)])
        """When each recent epoch was committed, and the rows until then."""

    def take(self, stats: FlowStats, now: float) -> None:
        """Add an epoch that was committed just now."""
        if not self.epochs:  # what came before it is the start of Spark, and says nothing of the flow
            self.began = max(self.began, now - stats.seconds)
            self._recent[0] = (self.began, 0)
        self.epochs += 1
        self.rows_in += stats.rows_in
        self.rows_out += sum(stats.rows_out.values())
        self.last = stats
        self._recent.append((now, self.rows_in))
        # Two epochs at least: the one that only ends the flow reads no rows.
        while len(self._recent) > 3 and self._recent[1][0] < now - RECENT_SECONDS:
            self._recent.popleft()

    def rate(self) -> float:
        """Return the rows a second of the last few seconds."""
        (first, before), (last, rows) = self._recent[0], self._recent[-1]
        return (rows - before) / (last - first) if last > first else 0.0

    def line(self) -> str:
        """Describe the run as it stands."""
        if self.last is None:
            return "waiting for the first epoch"
        lag = "" if self.last.backlog is None else f" | lag {self.lag()}"
        return (
            f"epoch {self.last.epoch:,} in {duration(self.last.seconds)} | {self.rows_in:,} rows in, "
            f"{self.rows_out:,} out | {_rate(self.rate())}{lag}"
        )

    def lag(self) -> str:
        """Say how many rows are known to wait, and how long they will take at this rate."""
        waiting, rate = None if self.last is None else self.last.backlog, self.rate()
        if not waiting:
            return "unknown" if waiting is None else "0"
        return f"{waiting:,} rows" + (f" ({duration(waiting / rate)})" if rate else "")

    def total(self, now: float) -> str:
        """Describe the run as a whole."""
        spent = now - self.began
        rate = f", {_rate(self.rows_in / spent)}" if spent > 0 and self.rows_in else ""
        return (
            f"{count(self.epochs, 'epoch')}, {self.rows_in:,} rows in, {self.rows_out:,} out, {duration(spent)}{rate}"
        )

    def record(self) -> dict[str, Any]:
        """Return the last epoch as fields for a log that machines read."""
        last = self.last
        assert last is not None, "there was no epoch"
        return {
            "epoch": last.epoch,
            "rows_in": last.rows_in,
            "rows_out": dict(last.rows_out),
            "seconds": round(last.seconds, 4),
            "rows_per_second": round(self.rate(), 1),
            "backlog": last.backlog,
            "state_bytes": last.state_bytes,
            "tasks": last.tasks,
            "attempts": last.attempts,
            "total_rows_in": self.rows_in,
            "total_rows_out": self.rows_out,
        }


def duration(seconds: float) -> str:
    """Write a duration as people do."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _rate(rows: float) -> str:
    """Write rows a second; of a slow flow not as zero."""
    return f"{rows:,.0f} rows/s" if rows >= 10 or not rows else f"{rows:.2g} rows/s"


def size(amount: float) -> str:
    """Write a number of bytes as people do."""
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def count(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
