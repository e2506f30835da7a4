"""Say where rows go. A writer describes; the engine writes, in order."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from penstock.connectors.paths import absolute, is_file, is_hidden, path_given
from penstock.connectors.read import FileFormat
from penstock.connectors.retries import retried
from penstock.errors import FlowError
from penstock.public import makers
from penstock.rows.timing import ticks

FILE_SIZE = 128_000_000
"""Bytes of a file, where the user says nothing."""
LARGE_PART = 8_000_000
"""Where the user says nothing: what a task wrote is a file of its own from so many bytes on, and not copied."""
LAST_PART = 1_000_000
"""The same of an epoch whose rows are to appear with its commit, which would have to wait for the copy."""
ROLL_SECONDS = 10.0
_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", re.IGNORECASE)

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark call the partition of null."""
PartFile = tuple[str, int, int, int]
"""What was written of some rows: name, rows, bytes, and a number that tells which files have the same fields."""
Size = str | int
"""Bytes: "128 MB", "64 MiB", or a number."""
Span = str | float | dt.timedelta
"""A time: "10 s", a timedelta, or seconds."""


@dataclass(frozen=True)
class Retain:
    """How much of what was published is kept: files, bytes, or seconds; None where that does not matter."""

    files: int | None = None
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Directory:
    """A directory of files that appear whole: `epoch=N/part-00000.parquet`, or `k=1/part-N-00000.parquet`.

    Names tell the order, and N is the last epoch that a file has rows of.
    """

    path: str
    format: FileFormat
    header: bool = True
    file_size: int | None = None
    roll_every: float = ROLL_SECONDS
    retain: Retain | None = None
    _: KW_ONLY
    partition_by: tuple[str, ...] = ()

    @property
    def full(self) -> int:
        """Return from how many bytes on what waits is a file."""
        return FILE_SIZE if self.file_size is None else self.file_size

    @property
    def large(self) -> int:
        """Return from how many bytes on the file of one task is left as it is."""
        return LARGE_PART if self.file_size is None else max(1, self.file_size // 2)

    @property
    def last(self) -> int | None:
        """Return the same for an epoch that appears with its commit; None where the user says how large files are."""
        return LAST_PART if self.file_size is None else None


@dataclass(frozen=True)
class Memory:
    """Keep the rows; read them as `run.results[name]`."""


@dataclass(frozen=True)
class Console:
    """Print rows on the driver, at most `limit` an epoch."""

    limit: int = 20


@dataclass(frozen=True)
class Callback:
    """Call a function on the driver with each epoch's rows, in order: `function(rows, epoch)`."""

    function: Callable[[list[Any], int], Any]


@dataclass(frozen=True)
class FrameCallback:
    """Call a function with each epoch's rows as a Spark DataFrame: `function(dataframe, epoch)`."""

    function: Callable[[Any, int], Any]


Writer = Directory | Memory | Console | Callback | FrameCallback


def parquet(
    path: str,
    *,
    file_size: Size | None = None,
    roll_every: Span = ROLL_SECONDS,
    retain: Size | dt.timedelta | None = None,
    partition_by: str | Sequence[str] = (),
) -> Directory:
    """Write Parquet: exactly once, in order.

    Rows wait under a hidden name until they are `file_size` ("128 MB") or have waited for `roll_every` (0: not at all).
    `retain` removes the oldest files: a number of files, a size ("50 GB") or an age ("7 days") to keep.
    `partition_by` names the fields whose values become directories (`day=1`), as Hive and Spark have them.
    """
    return _directory(path, "parquet", True, file_size, roll_every, retain, partition_by)


def json(
    path: str,
    *,
    file_size: Size | None = None,
    roll_every: Span = ROLL_SECONDS,
    retain: Size | dt.timedelta | None = None,
    partition_by: str | Sequence[str] = (),
) -> Directory:
    """Write JSON lines: exactly once, in order; options as of `parquet`."""
    return _directory(path, "json", True, file_size, roll_every, retain, partition_by)


def csv(
    path: str,
    *,
    header: bool = True,
    file_size: Size | None = None,
    roll_every: Span = ROLL_SECONDS,
    retain: Size | dt.timedelta | None = None,
    partition_by: str | Sequence[str] = (),
) -> Directory:
    """Write CSV: exactly once, in order; options as of `parquet`."""
    return _directory(path, "csv", header, file_size, roll_every, retain, partition_by)


def _directory(
    path: str,
    form: FileFormat,
    header: bool,
    file_size: Size | None,
    roll_every: Span,
    retain: Size | dt.timedelta | None,
    partition_by: str | Sequence[str],
) -> Directory:
    where = f"ps.write.{form}({str(path)!r})"
    place = absolute(path_given(path, f"ps.write.{form}"))
    named = isinstance(partition_by, Iterable) and not isinstance(partition_by, str)
    by: tuple[str, ...] = tuple(partition_by) if named else (partition_by,)  # type: ignore[assignment]
    if any(not isinstance(name, str) or not name for name in by) or len(set(by)) != len(by):
        raise FlowError(f"{where}: partition_by={partition_by!r} must be names of fields, each once")
    if "epoch" in by[:1]:
        raise FlowError(
            f"{where}: partition_by begins with 'epoch', as Penstock's own directories do; rename the field"
        )
    hidden = [name for name in by if is_hidden(name)]
    if hidden:
        raise FlowError(
            f"{where}: partition_by names {hidden[0]!r}, and what begins so is hidden from who reads the directory; "
            f"rename the field"
        )
    size = None if file_size is None else _bytes(where, "file_size", file_size)
    period, kept = _seconds(where, "roll_every", roll_every), _retain(where, retain)
    return Directory(place, form, header, size, period, kept, partition_by=by)


def _bytes(where: str, option: str, value: Any) -> int:
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        unit = found[2].lower()
        value = round(float(found[1]) * (_BINARY.get(unit) or _UNITS.get(unit, 0)))
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FlowError(f'{where}: {option}={value!r} is no size; write for example "128 MB", or a number of bytes')
    return value


def _seconds(where: str, option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, dt.timedelta)):
        raise FlowError(f'{where}: {option}={value!r} is no time; write for example "10 s", or a number of seconds')
    found = float(value) if isinstance(value, (int, float)) else ticks(value, where, option)[0] / 1e6
    if not 0 <= found < float("inf"):
        raise FlowError(f"{where}: {option}={value!r} must be 0 or more, and end")
    return found


def _retain(where: str, value: Any) -> Retain | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return Retain(files=value)
    if isinstance(value, str) and _SIZE.fullmatch(value) and value.strip().lower().endswith("b"):  # "10 m" is a time
        return Retain(bytes=_bytes(where, "retain", value))
    if isinstance(value, (str, dt.timedelta)):
        try:
            found = ticks(value, where, "retain")[0] / 1e6
        except FlowError:
            found = 0.0
        if found > 0:
            return Retain(seconds=found)
    raise FlowError(
        f'{where}: retain={value!r} is neither a number of files (1000), nor a size ("50 GB"), nor an age ("7 days")'
    )


def memory() -> Memory:
    """Keep the rows in memory; read them as `run.results[name]`."""
    return Memory()


def console(limit: int = 20) -> Console:
    """Print rows on the driver."""
    return Console(limit)


def callback(function: Callable[[list[Any], int], Any]) -> Callback:
    """Call `function(rows, epoch)` on the driver; at least once, with the epoch as the idempotence key."""
    return Callback(function)


def frame(function: Callable[[Any, int], Any]) -> FrameCallback:
    """Call `function(dataframe, epoch)`: for any DataFrame writer; at least once."""
    return FrameCallback(function)


def refuse_file(sink: str, writer: Directory) -> None:
    """Refuse to write a directory where there is a file."""
    if retried(lambda: is_file(writer.path), f"sink {sink!r}: looking at", writer.path):
        raise FlowError(f"sink {sink!r}: {writer.path} is a file; give a directory")


def refuse_strangers(sink: str, writer: Directory, names: Iterable[str]) -> None:
    """Refuse a directory that holds files of somebody else, by the names in it: readers could not tell them apart."""
    own = ("epoch=", ".", *(f"{name}=" for name in writer.partition_by[:1]))
    others = sorted(name for name in names if name != "_penstock" and not name.startswith(own))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise FlowError(
            f"sink {sink!r}: {writer.path} holds files that no run of Penstock has written ({others[0]}{more}), which "
            f"whoever reads the directory would take for rows; write to a directory of its own, or move them away"
        )


def as_writer(value: Any) -> Writer:
    """Take a writer as it is; wrap a function; None means memory."""
    if value is None:
        return Memory()
    if isinstance(value, (Directory, Memory, Console, Callback, FrameCallback)):
        return value
    if callable(value):
        return Callback(value)
    raise TypeError(
        f"{value!r} is no sink; use ps.write.parquet(...), json, csv, console, callback, frame, memory, "
        f"or a function of (rows, epoch)"
    )


def __dir__() -> list[str]:
    return makers(globals(), "Directory|Memory|Console|Callback|FrameCallback")
