"""Say what a run is doing until its first epoch is out: a log record per step, on a terminal a line per step.

Records go to the logger `penstock.steps` at level INFO, so that any configuration of logging can have them.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from penstock.clock import monotonic

log = logging.getLogger("penstock.steps")
_shown = threading.Lock()
_before: list[int] = []
"""The logger's level before the first of those that are shown now, once for each."""


def step(text: str, **fields: Any) -> None:
    """Say that a run has begun something that may take seconds; fields are for logs that machines read."""
    log.info(text, extra={"event": "step", **fields})


class Showing(logging.Handler):
    """Hand each step to a function, with the seconds since this began, until it is closed."""

    def __init__(self, show: Callable[[str, float], None]) -> None:
        super().__init__(logging.INFO)
        self._show, self._began, self._open = show, monotonic(), True
        with _shown:
            _before.append(log.level)
            log.setLevel(min(logging.INFO, log.level or logging.INFO))
            log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage(), monotonic() - self._began)

    def end(self, text: str) -> None:
        """Show one line more, and no other."""
        if self._open:
            self._show(text, monotonic() - self._began)
        self.close()

    def close(self) -> None:
        with _shown:
            if self._open:
                self._open = False
                log.removeHandler(self)
                level = _before.pop()
                if not _before:
                    log.setLevel(level)
        super().close()


def show_on(stream: TextIO | None, flow: str, wanted: bool | None) -> Showing | None:
    """Write the steps as lines, where that is wanted; by default on a terminal."""
    stream = sys.stderr if stream is None else stream
    if wanted is False or (wanted is None and not (stream is not None and stream.isatty())):
        return None

    def show(text: str, seconds: float) -> None:
        print(f"penstock: flow {flow!r}, {seconds:.1f} s: {text}", file=stream, flush=True)

    return Showing(show)
