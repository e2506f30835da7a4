"""Name everything that can go wrong, each with the operator and the way to mend it."""

from __future__ import annotations

import sysconfig
import traceback
from types import TracebackType

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


class CheckpointError(PenstockError):
    """Report a checkpoint that does not fit the flow, or that is damaged."""


class LeaseError(PenstockError):
    """Refuse a second driver on one checkpoint, naming the first."""


class RowTypeError(PenstockError):
    """Report a value that does not fit the declared type of its field."""

    def __init__(self, index: int, field: str, value: object, expected: str) -> None:
        self.index, self.field, self.value, self.expected = index, field, value, expected
        super().__init__(
            f"field {field!r} has the value {_shorten(value)} ({type(value).__name__}), "
            f"which does not fit the declared type {expected}"
        )

    def __reduce__(self) -> tuple[type[RowTypeError], tuple[object, ...]]:
        return RowTypeError, (self.index, self.field, self.value, self.expected)


class OperatorError(PenstockError):
    """Report what a user's function raised: the operator, the place in the user's file, and the row."""

    def __init__(self, operator: str, error: str, where: str, row: str, trace: str = "") -> None:
        self.operator, self.error, self.where, self.row, self.trace = operator, error, where, row, trace
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"operator {self.operator!r} failed{place}: {self.error}; row: {self.row}"

    def __reduce__(self) -> tuple[type[OperatorError], tuple[str, ...]]:
        return OperatorError, (self.operator, self.error, self.where, self.row, self.trace)


def operator_error(operator: str, error: BaseException, row: object) -> OperatorError:
    """Describe an exception raised inside an operator, pointing at the user's own line."""
    if isinstance(error, OperatorError):
        return error
    frames = _user_frames(error.__traceback__)
    # The user's own line, not that of a library that it called into.
    mine = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames[:1]
    where = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else ""
    kind = "" if isinstance(error, PenstockError) else f"{type(error).__name__}: "
    lines = traceback.format_list(frames[-5:])
    return OperatorError(operator, f"{kind}{error}", where, _shorten(row, 400), "".join(lines))


def _user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Keep the frames of a traceback that are not Penstock's own, under the names of the user's files."""
    package = __file__.rsplit("errors.py", 1)[0]
    return [
        traceback.FrameSummary(_original(frame.filename), frame.lineno, frame.name, lookup_line=False, line=frame.line)
        for frame in traceback.extract_tb(trace)
        if not frame.filename.startswith(package)
    ]


def _original(filename: str) -> str:
    """Return where a file of a shipped zip came from."""
    for archive, root in ROOTS.items():
        if f"/{archive}/" in filename:
            return f"{root}/{filename.split(f'/{archive}/', 1)[1]}"
    return filename


def _shorten(value: object, limit: int = 120) -> str:
    """Show a value in at most `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
