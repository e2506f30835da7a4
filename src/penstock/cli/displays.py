"""Show how a run goes (a line rewritten in place on a terminal, log lines elsewhere), rows as tables, what went wrong.

Progress goes to the standard error, because the standard output belongs to the flow's own rows.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, TextIO

from penstock.errors import OperatorError, PenstockError
from penstock.statistics import FlowStats, epoch_fields

MOST_LINES = 20
"""How many lines an error may take: a whole terminal page must not be needed to see it."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def explain(error: BaseException) -> list[str]:
    if isinstance(error, OperatorError):
        return [*_headed(error.trace.rstrip().splitlines()), f"OperatorError: {one_line(str(error))}"]
    if isinstance(error, PenstockError):
        kind, lines = type(error).__name__, str(error).splitlines()
        # An error of a flow that is being composed happened at a line of the user's file.
        return [*_headed(_user_lines(error)), f"{kind}: {lines[0]}", *lines[1:]]
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).rstrip().splitlines()[-MOST_LINES:]
    return [*_headed(_user_lines(error)), f"{type(error).__name__}: {one_line(str(error))}"]


def one_line(text: str) -> str:
    """Put a message on one line; what a user's function raises may have many."""
    return " ".join(text.split())


def _headed(lines: list[str]) -> list[str]:
    if not lines:
        return []
    room = MOST_LINES - 2
    return ["Where it happened (most recent call last):", *lines[-room:]]


def _user_lines(error: BaseException) -> list[str]:
    """Return the frames of an error that are neither Penstock's nor those of the import."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "<frozen"))
    ]
    return "".join(traceback.format_list(frames[-5:])).rstrip().splitlines()


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While inside, Ctrl-C and SIGTERM are counted and raise nothing.

    Enter it after the start of Spark: PySpark sets a handler of its own that cancels the job under way.
    """

    def __init__(self) -> None:
        self.count = 0
        self.signal = signal.SIGINT
        self._before: dict[signal.Signals, Any] = {}

    @property
    def code(self) -> int:
        return 128 + self.signal

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._took)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _took(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.signal = signal.Signals(number)


def show(
    rows: Sequence[Mapping[str, Any]],
    as_json: bool,
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    empty: str = "nothing",
) -> None:
    """Print rows that have the same fields; `formats` writes some of them for people."""
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
        return
    if not rows:
        print(empty)
        return
    names = list(rows[0])
    cells = [names, *([str((formats or {}).get(name, str)(row[name])) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


RECENT_SECONDS = 5.0


class Progress:
    """Add up the epochs of a run. Times are passed in, in seconds of a clock that never goes back."""

    def __init__(self, began: float) -> None:
        self.began = began
        """When the first epoch began; until there is one, when the command did."""
        self.epochs = self.rows_in = self.rows_out = 0
        self.last: FlowStats | None = None
        """The last epoch."""
        self.doing = "waiting for the first epoch"
        """What the run does until there is one."""
        self._recent: deque[tuple[float, int]] = deque([(began, 0)])
        """When each recent epoch was committed, and the rows until then."""

    def take(self, stats: FlowStats, now: float) -> None:
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
        """Return the rows per second of the last few seconds."""
        (first, before), (last, rows) = self._recent[0], self._recent[-1]
        return (rows - before) / (last - first) if last > first else 0.0

    def line(self) -> str:
        if self.last is None:
            return self.doing
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
            **epoch_fields(last),
            "rows_per_second": round(self.rate(), 1),
            "total_rows_in": self.rows_in,
            "total_rows_out": self.rows_out,
        }


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _rate(rows: float) -> str:
    """Write rows per second; of a slow flow not as zero."""
    return f"{rows:,.0f} rows/s" if rows >= 10 or not rows else f"{rows:.2g} rows/s"


def size(amount: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


_CLEAR = "\r\x1b[K"


class Display(ABC):
    """What a run is shown by. `epoch` is called by the engine's thread, the rest by the main one."""

    def __init__(self, progress: Progress, err: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._err, self._clock = progress, err, clock

    @abstractmethod
    def say(self, event: str, text: str, **fields: Any) -> None:
        """Tell that something happened."""

    def epoch(self, stats: Any) -> None:
        self._progress.take(stats, self._clock())

    def tick(self) -> None:  # noqa: B027
        """Bring what is shown up to date; called a few times a second."""

    def fail(self, error: BaseException) -> None:
        print("\n".join(explain(error)), file=self._err, flush=True)

    def close(self) -> None:  # noqa: B027
        """Leave the terminal as it was."""


class PlainDisplay(Display):
    """Write log lines, at most one per second for epochs: a log is read long after, by people."""

    _shown = float("-inf")

    def say(self, event: str, text: str, **fields: Any) -> None:
        print(f"{dt.datetime.now():%H:%M:%S} {text}", file=self._err, flush=True)

    def epoch(self, stats: Any) -> None:
        super().epoch(stats)
        now = self._clock()
        if now - self._shown >= 1:
            self._shown = now
            self.say("epoch", self._progress.line())


class JsonDisplay(Display):
    """Write one JSON object per line, one line per epoch."""

    def say(self, event: str, text: str, **fields: Any) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "message": text, "event": event, **fields}
        print(json.dumps(line, default=str), file=self._err, flush=True)

    def epoch(self, stats: Any) -> None:
        super().epoch(stats)
        self.say(text=self._progress.line(), **self._progress.record())

    def fail(self, error: BaseException) -> None:
        fields = {}
        if isinstance(error, OperatorError):
            fields = {"operator": error.operator, "where": error.where, "row": error.row}
        self.say("failed", one_line(str(error)), error=type(error).__name__, **fields)


class LiveDisplay(Display):
    """Rewrite one line of a terminal; what the flow itself prints appears above it."""

    def __init__(self, progress: Progress, err: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(progress, err, clock)
        self._lock = threading.RLock()
        self._drawn = False
        """Whether the line stands on the terminal now."""
        self._stdout = sys.stdout
        self._above = _Above(self._stdout, self)
        sys.stdout = self._above

    def say(self, event: str, text: str, **fields: Any) -> None:
        with self._lock:
            self.clear()
            print(text, file=self._err, flush=True)

    def epoch(self, stats: Any) -> None:
        with self._lock:
            super().epoch(stats)

    def tick(self) -> None:
        width = shutil.get_terminal_size().columns - 1
        with self._lock:
            if self._above.inside_line:
                return  # what the flow has printed so far would be overwritten
            self._err.write(_CLEAR + self._progress.line()[:width])
            self._err.flush()
            self._drawn = True

    def clear(self) -> None:
        """Take the line away, if it is there: what else stands on the terminal must stay."""
        with self._lock:
            if self._drawn:
                self._err.write(_CLEAR)
                self._err.flush()
                self._drawn = False

    def print_above(self, text: str) -> int:
        with self._lock:
            self.clear()
            return self._stdout.write(text)

    def fail(self, error: BaseException) -> None:
        self.close()
        super().fail(error)

    def close(self) -> None:
        sys.stdout = self._stdout
        self.clear()


class _Above:
    """A standard output that first takes the progress line away."""

    def __init__(self, stdout: TextIO, display: LiveDisplay) -> None:
        self._stdout, self._display = stdout, display
        self.inside_line = False
        """Whether the last line that was printed has no end yet."""

    def write(self, text: str) -> int:
        if text:
            self.inside_line = not text.endswith("\n")
        return self._display.print_above(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


class LogRecords(logging.Handler):
    """Show what Penstock's loggers warn of like everything else, so that it is neither lost nor in the way."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        self._display.say("log", f"{level}: {record.getMessage()}", level=level, logger=record.name)


def make_display(log: str | None, progress: Progress, err: TextIO) -> Display:
    """Choose: what was asked for, else a live line on a terminal and plain lines elsewhere."""
    if log == "json":
        return JsonDisplay(progress, err)
    if log == "plain" or not err.isatty():
        return PlainDisplay(progress, err)
    return LiveDisplay(progress, err)
