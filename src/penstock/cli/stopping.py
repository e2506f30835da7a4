"""Count the signals that ask for an end, so that a run can end between two epochs."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While inside, Ctrl-C and SIGTERM are counted and raise nothing.

    Enter it behind the start of Spark: PySpark sets a handler of its own that cancels the job under way.
    """

    def __init__(self) -> None:
        self.count = 0
        self.signal = signal.SIGINT
        self._before: dict[signal.Signals, Any] = {}

    @property
    def code(self) -> int:
        """The exit code of a process that such a signal stopped."""
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
