"""Show the progress of a run: a line rewritten in place on a terminal, log lines elsewhere.

All of it goes to the standard error, because the standard output belongs to the flow's own rows.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

from penstock.cli.failures import explain, one_line
from penstock.cli.progress import Progress
from penstock.errors import OperatorError

_CLEAR = "\r\x1b[K"


class Display(Protocol):
    """What a run is shown by. `epoch` is called by the engine's thread, the rest by the main one."""

    def say(self, event: str, text: str, **fields: Any) -> None:
        """Tell that something happened."""

    def epoch(self, stats: Any) -> None:
        """Take the statistics of an epoch."""

    def tick(self) -> None:
        """Bring what is shown up to date; called a few times a second."""

    def fail(self, error: BaseException) -> None:
        """Tell what the flow failed with."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class PlainDisplay:
    """Write log lines, at most one a second for epochs: a log is read long after, by people."""

    def __init__(self, progress: Progress, err: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._err, self._clock = progress, err, clock
        self._shown = float("-inf")

    def say(self, event: str, text: str, **fields: Any) -> None:
        print(f"{dt.datetime.now():%H:%M:%S} {text}", file=self._err, flush=True)

    def epoch(self, stats: Any) -> None:
        now = self._clock()
        self._progress.take(stats, now)
        if now - self._shown >= 1:
            self._shown = now
            self.say("epoch", self._progress.line())

    def tick(self) -> None:
        """Do nothing: each line is written as it comes."""

    def fail(self, error: BaseException) -> None:
        print("\n".join(explain(error)), file=self._err, flush=True)

    def close(self) -> None:
        """Do nothing: a log has no end."""


class JsonDisplay:
    """Write one JSON object a line, one line an epoch."""

    def __init__(self, progress: Progress, err: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._err, self._clock = progress, err, clock

    def say(self, event: str, text: str, **fields: Any) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, "message": text, **fields}
        print(json.dumps(line, default=str), file=self._err, flush=True)

    def epoch(self, stats: Any) -> None:
        self._progress.take(stats, self._clock())
        self.say("epoch", self._progress.line(), **self._progress.record())

    def tick(self) -> None:
        """Do nothing: each line is written as it comes."""

    def fail(self, error: BaseException) -> None:
        fields = {}
        if isinstance(error, OperatorError):
            fields = {"operator": error.operator, "where": error.where, "row": error.row}
        self.say("failed", one_line(str(error)), error=type(error).__name__, **fields)

    def close(self) -> None:
        """Do nothing: a log has no end."""


class LiveDisplay:
    """Rewrite one line of a terminal; what the flow itself prints appears above it."""

    def __init__(self, progress: Progress, err: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._err, self._clock = progress, err, clock
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
            self._progress.take(stats, self._clock())

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
        """Write what the flow prints."""
        with self._lock:
            self.clear()
            return self._stdout.write(text)

    def fail(self, error: BaseException) -> None:
        self.close()
        print("\n".join(explain(error)), file=self._err, flush=True)

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


def make_display(log: str | None, progress: Progress, err: TextIO) -> Display:
    """Choose: what was asked for, else a live line on a terminal and plain lines elsewhere."""
    if log == "json":
        return JsonDisplay(progress, err)
    if log == "plain" or not err.isatty():
        return PlainDisplay(progress, err)
    return LiveDisplay(progress, err)
