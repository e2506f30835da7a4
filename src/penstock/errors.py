"""Name everything that can go wrong, each with the operator and how to fix it."""

from __future__ import annotations

import difflib
import errno
import json
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

_PACKAGE = tuple(name.rsplit("errors.py", 1)[0] for name in (__file__, (lambda: None).__code__.co_filename))
"""Where the package's files are, and where they were compiled, as tracebacks say: a worker has them in a zip."""
_LIBRARIES = (
    "<frozen",
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)

ROOTS: dict[str, str] = {}
"""In a worker: for each zip of user modules, the directory that its files came from."""


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose."""


class FlowError(PenstockError):
    """Refuse a flow before anything runs."""


class SourceError(PenstockError):
    """Report a source that cannot be read, or whose rows break its promise of order."""


CHECK_PATH = "check the path, and every directory on the way to it"
_GIVE_RIGHTS = "give the user that runs the flow the right to it (chown, chmod), or use another place"
_FREE_SPACE = "free space there, and start again, with the same checkpoint where there is one"
FINAL_FIXES = {
    errno.EACCES: _GIVE_RIGHTS,
    errno.EPERM: _GIVE_RIGHTS,
    errno.EROFS: "the file system is mounted read-only: mount it for writing, or use another place",
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.ENOTDIR: CHECK_PATH,
    errno.EISDIR: CHECK_PATH,
    errno.ENAMETOOLONG: CHECK_PATH,
    errno.ELOOP: CHECK_PATH,
}
"""Errors of a file system that trying again does not change, and what does.

A full disk is one of them, although it may be cleaned up: that takes longer than seconds, and until then each
attempt writes all of its rows for nothing. Nothing that was committed is lost: the flow goes on when there is space.
"""


class StorageError(PenstockError):
    """Report a file that could not be read or written, although it was tried again, or where that is vain (`final`).

    It says nothing about the flow or its rows, so what it ended may be run again; and never that something is absent.
    """

    def __init__(self, what: str, path: str, attempts: int, error: str, fix: str = "", final: bool = False) -> None:
        self.what, self.path, self.attempts, self.error, self.fix = what, path, attempts, error, fix
        self.final = final
        times = "failed with" if attempts == 1 else f"failed {attempts} times, the last time with"
        super().__init__(f"{what} {path} {times} {error}{fix and '; '}{fix}")

    def __reduce__(self) -> tuple[type[StorageError], tuple[object, ...]]:
        return StorageError, (self.what, self.path, self.attempts, self.error, self.fix, self.final)


class CheckpointError(PenstockError):
    """Report a checkpoint that does not fit the flow, or that is damaged."""


class LeaseError(PenstockError):
    """Refuse a second driver on one checkpoint, naming the first."""


class RowTypeError(PenstockError):
    """Report a value that does not fit the declared type of its field."""

    def __init__(self, index: int, field: str, value: object, expected: str) -> None:
        self.index, self.field, self.value, self.expected = index, field, value, expected
        super().__init__(self._text())

    def _text(self) -> str:
        return (
            f"field {self.field!r} has the value {shorten(self.value)} ({type(self.value).__name__}), "
            f"which does not fit the declared type {self.expected}"
        )

    def __reduce__(self) -> tuple[type[RowTypeError], tuple[object, ...]]:
        return type(self), (self.index, self.field, self.value, self.expected)


class UnknownFieldError(RowTypeError):
    """Report a row with a field that its schema does not have; `expected` is what it has."""

    def _text(self) -> str:
        known = self.expected.split(", ")
        return (
            f"the row has a field {self.field!r}, the schema has {self.expected or 'none'}"
            f"{did_you_mean(self.field, known)}"
        )


class MissingFieldError(RowTypeError):
    """Report a row without a field that its schema has; `expected` is what it has."""

    def _text(self) -> str:
        return (
            f"the row has no field {self.field!r}, the schema has {self.expected}; return it, as None where there is "
            f"no value, or leave it out of the schema"
        )


class OperatorError(PenstockError):
    """Report what a user's function raised: the operator, the place in the user's file, and the row."""

    def __init__(self, operator: str, error: str, where: str, row: str, trace: str = "", attempts: int = 1) -> None:
        self.operator, self.error, self.where, self.row, self.trace = operator, error, where, row, trace
        self.attempts = attempts
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        times = f", the last of {self.attempts} attempts" if self.attempts > 1 else ""
        return f"operator {self.operator!r} failed{place}{times}: {self.error}; row: {self.row}"

    def __reduce__(self) -> tuple[type[OperatorError], tuple[object, ...]]:
        return OperatorError, (self.operator, self.error, self.where, self.row, self.trace, self.attempts)


class SetupError(PenstockError):
    """Report a `setup=` that failed in a worker: no row's fault, so the flow stops whatever `on_error` says."""


class ExhaustedError(Exception):
    """Carries what the last attempt of a call raised, and how many there were."""

    def __init__(self, error: Exception, attempts: int) -> None:
        self.error, self.attempts = error, attempts
        super().__init__(error, attempts)


def operator_error(operator: str, error: BaseException, row: object) -> OperatorError:
    """Describe an exception raised inside an operator, pointing at the user's own line."""
    if isinstance(error, OperatorError):
        return error
    attempts = 1
    if isinstance(error, ExhaustedError):
        attempts, error = error.attempts, error.error
    frames = _user_frames(error.__traceback__)
    # The user's own line, not that of a library that it called into.
    mine = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames[:1]
    where = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else ""
    kind = "" if isinstance(error, PenstockError) else f"{type(error).__name__}: "
    lines = traceback.format_list(frames[-5:])
    return OperatorError(
        operator, f"{kind}{error}{_known_fields(error)}", where, shorten(row, 400), "".join(lines), attempts
    )


def users_line() -> str:
    """Return the file and line of the caller's nearest frame that is not Penstock's own; "" where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def row_text(row: Any) -> str:
    """Write a row as JSON, so that a dead letter loses nothing that can be written."""
    fields = getattr(row, "_fields", None)
    value = dict(zip(fields, row, strict=True)) if fields else getattr(row, "__dict__", row)
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):  # keys that are no text, or an object inside itself
        return repr(row)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message: the known name that was probably meant, if there is one."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _known_fields(error: BaseException) -> str:
    """Say which fields a row has, where a function has read one that it has not."""
    if not isinstance(error, AttributeError) or not isinstance(error.obj, tuple) or error.name is None:
        return ""
    fields = getattr(error.obj, "_fields", ())
    hint = did_you_mean(error.name, fields)
    return f"{hint}{' ' if hint else '; '}the row has {', '.join(fields)}" if fields else ""


def _user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Keep the frames of a traceback that are not Penstock's own, under the names of the user's files."""
    return [
        traceback.FrameSummary(_original(frame.filename), frame.lineno, frame.name, lookup_line=False, line=frame.line)
        for frame in traceback.extract_tb(trace)
        # Cython's files are named as they were where a library was built.
        if not frame.filename.startswith(_PACKAGE) and not frame.filename.endswith((".pxi", ".pyx"))
    ]


def _original(filename: str) -> str:
    """Return where a file of a shipped zip came from."""
    for archive, root in ROOTS.items():
        if f"/{archive}/" in filename:
            return f"{root}/{filename.split(f'/{archive}/', 1)[1]}"
    return filename


def shorten(value: object, limit: int = 120) -> str:
    """Show a value in at most `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
