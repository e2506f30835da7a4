"""Say where rows go. A writer (`interfaces.py`) describes; the engine writes, in order."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.annotated import makers
from penstock.connectors.directory import ROLL_SECONDS, Directory, Retain
from penstock.connectors.files import FileFormat
from penstock.connectors.interfaces import Callback, Console, FrameCallback, Memory, Writer
from penstock.connectors.paths import absolute, is_hidden, path_given
from penstock.errors import FlowError
from penstock.rows.timing import ticks

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", re.IGNORECASE)

Size = str | int
"""Bytes: "128 MB", "64 MiB", or a number."""
Span = str | float | dt.timedelta
"""A time: "10 s", a timedelta, or seconds."""


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
    """Write JSON lines: exactly once, in order; options as for `parquet`."""
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
    """Write CSV: exactly once, in order; options as for `parquet`."""
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
            f"{where}: partition_by names {hidden[0]!r}, and what begins so is hidden from readers of the directory; "
            f"rename the field"
        )
    size = None if file_size is None else _bytes(where, "file_size", file_size)
    period, kept = _seconds(where, "roll_every", roll_every), _retain(where, retain)
    return Directory(place, form, header, size, period, kept, partition_by=by)


def _bytes(where: str, option: str, value: Any) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        unit = match[2].lower()
        value = round(float(match[1]) * (_BINARY.get(unit) or _UNITS.get(unit, 0)))
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FlowError(f'{where}: {option}={value!r} is no size; write for example "128 MB", or a number of bytes')
    return value


def _seconds(where: str, option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, dt.timedelta)):
        raise FlowError(f'{where}: {option}={value!r} is no time; write for example "10 s", or a number of seconds')
    number = float(value) if isinstance(value, (int, float)) else ticks(value, where, option)[0] / 1e6
    if not 0 <= number < float("inf"):
        raise FlowError(f"{where}: {option}={value!r} must be 0 or more, and end")
    return number


def _retain(where: str, value: Any) -> Retain | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return Retain(files=value)
    if isinstance(value, str) and _SIZE.fullmatch(value) and value.strip().lower().endswith("b"):  # "10 m" is a time
        return Retain(bytes=_bytes(where, "retain", value))
    if isinstance(value, (str, dt.timedelta)):
        try:
            age = ticks(value, where, "retain")[0] / 1e6
        except FlowError:
            age = 0.0
        if age > 0:
            return Retain(seconds=age)
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


def as_writer(value: Any) -> Writer:
    """Take a writer as it is; wrap a function; None means memory."""
    if value is None:
        return Memory()
    if isinstance(value, Writer):
        return value
    if callable(value):
        return Callback(value)
    raise TypeError(
        f"{value!r} is no sink; use ps.write.parquet(...), json, csv, console, callback, frame, memory, "
        f"or a function of (rows, epoch)"
    )


def __dir__() -> list[str]:
    return makers(globals(), "Directory|Memory|Console|Callback|FrameCallback")
