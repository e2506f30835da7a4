"""Say what went wrong in few lines, the user's frames and last what matters; and count signals that ask for an end."""

from __future__ import annotations

import os
import signal
import traceback
from types import FrameType
from typing import Any

from penstock.errors import OperatorError, PenstockError

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
